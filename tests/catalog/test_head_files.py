"""Heads that are published beside a model are taken along by `models pull`, if they fit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import heads
import pytest
from catalog.test_fetching import REPO, models, run, serve

from localspec.catalog.registry import Registry

__all__ = ["models"]


def there(directory: Path) -> list[str]:
    """Files of heads."""
    return sorted(path.name for path in (directory / "heads").glob("*.gguf"))


@pytest.mark.parametrize(
    "name", ["mtp-Tiny-Q8_0.gguf", "MTP/Tiny-Q8_0-MTP.gguf", "nextn-Tiny.gguf"]
)
def test_prediction_layers_in_a_file_of_their_own_come_along(
    hub: Any, tmp_path: Path, models: Path, name: str
) -> None:
    """They are found for the model, listed with it, and removed with it; asked for once."""
    serve(hub, heads.glm4moe(tmp_path / "Tiny-Q4_0.gguf", part="trunk"))
    head = heads.glm4moe(tmp_path / "head.gguf", part="predicts")
    hub.files[name] = head.read_bytes()
    hub.files[name.rpartition("/")[2]] = head.read_bytes()  # where the server looks for its bytes
    result = run("pull", REPO, "--no-draft")
    assert result.exit_code == 0
    assert "prediction layers (MTP)" in result.stderr
    assert there(models) == ["mtp-tiny-q4_0.gguf"]
    found, why = Registry(models).head(models / "tiny-q4_0.gguf")
    assert (found is not None and Path(found.path).name, why) == ("mtp-tiny-q4_0.gguf", "")
    assert "mtp-tiny-q4_0.gguf" in run("list").stdout.replace("\n  ", " ")
    asked = len(hub.ranges)
    assert run("pull", REPO, "--no-draft").exit_code == 0
    assert len(hub.ranges) == asked
    assert run("rm", "tiny-q4_0", "--yes").exit_code == 0
    assert there(models) == []


def test_an_eagle3_head_comes_along_in_the_quantization_of_its_model(
    hub: Any, tmp_path: Path, models: Path
) -> None:
    """Of two; a DFlash head is passed over."""
    serve(hub, heads.qwen2(tmp_path / "Tiny-Q4_0.gguf"))
    head = heads.eagle3(tmp_path / "head.gguf").read_bytes()
    names = ("eagle3-Tiny-Q8_0.gguf", "eagle3-Tiny-Q4_0.gguf", "dflash-Tiny-Q4_0.gguf")
    hub.files |= dict.fromkeys(names, head)
    result = run("pull", REPO, "--no-draft")
    assert "eagle3-Tiny-Q4_0.gguf" in result.stderr.replace("\n", " ")
    assert there(models) == ["eagle3-tiny-q4_0.gguf"]
    assert Registry(models).head(models / "tiny-q4_0.gguf")[0] is not None


@pytest.mark.parametrize("damage", ["another model's", "cut off", "no head"])
def test_a_head_that_cannot_be_used_leaves_the_model_and_nothing_else(
    hub: Any, tmp_path: Path, models: Path, damage: str
) -> None:
    """The reason is one sentence."""
    serve(hub, heads.qwen2(tmp_path / "Tiny-Q4_0.gguf"))
    head = heads.eagle3(tmp_path / "head.gguf", hidden=32 if damage[0] == "a" else heads.WIDTH)
    data = head.read_bytes()
    if damage != "another model's":
        data = data[: len(data) // 2] if damage == "cut off" else b"GGUF" * 99
    hub.files["eagle3-Tiny-Q4_0.gguf"] = data
    result = run("pull", REPO, "--no-draft")
    assert result.exit_code == 0
    assert "Without a head: " in result.stderr
    if damage == "another model's":
        assert "states of 32 numbers" in result.stderr.replace("\n", " ")
    assert there(models) == []
    assert (models / "tiny-q4_0.gguf").exists()


def test_layers_inside_of_the_model_need_no_file(hub: Any, tmp_path: Path, models: Path) -> None:
    """It is said that they are there; what else the repository has is not fetched."""
    serve(hub, heads.glm4moe(tmp_path / "Tiny-Q4_0.gguf"))
    part = heads.glm4moe(tmp_path / "head.gguf", part="predicts")
    hub.files["mtp-Tiny-Q4_0.gguf"] = part.read_bytes()
    result = run("pull", REPO, "--no-draft")
    assert "inside of it" in result.stderr.replace("\n", " ")
    assert there(models) == []
    assert "MTP" in run("list").stdout
