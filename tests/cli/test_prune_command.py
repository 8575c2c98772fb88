"""`localspec models prune` as a user types it."""

from __future__ import annotations

from pathlib import Path

import pytest
import tiny
from click.testing import CliRunner, Result

from localspec.catalog.registry import Registry
from localspec.cli.main import cli


def run(*arguments: str | Path) -> Result:
    """`localspec models ...` through the real edge."""
    return CliRunner().invoke(cli, ["models", *map(str, arguments)])


def test_a_pruned_draft_is_attached_where_there_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its target knows it; another draft stays until `--use` is said."""
    models_dir = tmp_path / "models"
    monkeypatch.setenv("LOCALSPEC_MODELS", str(models_dir))
    run("import", tiny.build(tmp_path / "small.gguf", seed=1, layers=1))
    run("import", tiny.build(tmp_path / "big.gguf"))
    assert "list of layers" in run("prune", "big", "--layers", "x").stderr
    made = run("prune", "big", "--layers", "1", "--tokens", "200")
    assert made.exit_code == 0, made.output
    assert "is the draft of big" in made.stdout
    assert Registry(models_dir).find("big").draft == "big-pruned"
    assert run("check", "big", "big-pruned").exit_code == 0
    assert "already here" in run("prune", "big").stderr
    run("rm", "big-pruned", "--yes")
    Registry(models_dir).attach("big", "small")
    assert "stays" in run("prune", "big", "--layers", "0", "--tokens", "200").stdout
    assert Registry(models_dir).find("big").draft == "small"
    run("rm", "big-pruned", "--yes")
    assert run("prune", "big", "--layers", "0", "--tokens", "200", "--use").exit_code == 0
    assert Registry(models_dir).find("big").draft == "big-pruned"
