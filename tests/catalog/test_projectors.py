"""Projectors: found beside their model, by name and width, and checked before native code."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import gguf
import projectors
import pytest
import tiny

from localspec.catalog.registry import Registry


@pytest.fixture
def models(tmp_path: Path) -> Path:
    """A directory with two models of the same width."""
    tiny.build(tmp_path / "gemma-3-4b-it-Q4_K_M.gguf")
    tiny.build(tmp_path / "qwen3-4b-q8_0.gguf", seed=1)
    return tmp_path


def of(models: Path, name: str = "gemma-3-4b-it-Q4_K_M") -> tuple[str, str]:
    """The name of the projector that is found for a model, and why none is used."""
    path, why = Registry(models).projector(models / f"{name}.gguf")
    return Path(path).name if path else "", why


@pytest.mark.parametrize(
    "name",
    [
        "mmproj-gemma-3-4b-it-Q4_K_M",
        "mmproj-gemma-3-4b-it-f16",
        "mmproj-Gemma-3-4B-it-BF16",
        "gemma-3-4b-it-mmproj-Q8_0",
        "gemma-3-4b-it.mmproj-f16",
        "mmproj-model-f16-gemma-3-4b",
    ],
)
def test_a_projector_is_its_models_by_name(models: Path, name: str) -> None:
    """Not another one's of the same width, and no model of its own."""
    projectors.build(models / f"{name}.gguf")
    assert of(models) == (f"{name}.gguf", "")
    assert of(models, "qwen3-4b-q8_0") == ("", "")
    known = {model.name: model for model in Registry(models).models() if model.installed}
    assert set(known) == {"gemma-3-4b-it-q4_k_m", "qwen3-4b-q8_0"}
    assert known["gemma-3-4b-it-q4_k_m"].sees
    assert not known["qwen3-4b-q8_0"].sees


def test_a_projector_without_a_name_is_the_only_models(models: Path) -> None:
    """Among several it says what it should be called."""
    projectors.build(models / "mmproj-model-f16.gguf")
    name, why = of(models)
    assert not name
    assert "call it mmproj-gemma-3-4b-it-Q4_K_M.gguf" in why
    (models / "qwen3-4b-q8_0.gguf").unlink()
    assert of(models) == ("mmproj-model-f16.gguf", "")


def sound(path: Path) -> None:
    """A projector for sound."""
    writer = gguf.GGUFWriter(path, "clip")
    writer.add_bool("clip.has_audio_encoder", True)
    tiny.ended(writer, path)


def cut(path: Path) -> None:
    """A projector whose tensors lie behind the file's end."""
    projectors.build(path)
    path.write_bytes(path.read_bytes()[:-4000])


BROKEN: dict[str, tuple[Callable[[Path], object], str]] = {
    "of another width": (lambda path: projectors.build(path, width=96), "96 numbers"),
    "for sound": (sound, "sound alone"),
    "cut": (cut, "mmproj-gemma-3-4b-it.gguf"),
    "no GGUF": (lambda path: path.write_bytes(b"x" * 100), "mmproj-gemma-3-4b-it.gguf"),
    "empty": (lambda path: path.write_bytes(b""), "mmproj-gemma-3-4b-it.gguf"),
    "a model": (tiny.build, "is no projector"),
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_file_that_cannot_be_used_is_told_in_a_sentence(models: Path, what: str) -> None:
    """And once it is mended it is used, by the same process."""
    build, why = BROKEN[what]
    path = models / "mmproj-gemma-3-4b-it.gguf"
    build(path)
    name, told = of(models)
    assert name == ""
    assert why in told
    assert len(told) < 300
    path.unlink()
    projectors.build(path)
    assert of(models) == (path.name, "")
