"""`localspec models check` on models of two tokenizers."""

from __future__ import annotations

import json
from pathlib import Path

import tiny
from click.testing import CliRunner

from localspec.cli.main import cli


def test_models_of_two_tokenizers_can_speculate_by_text(tmp_path: Path) -> None:
    """The difference is said, and what it costs."""
    target = tiny.build(tmp_path / "target.gguf", layers=2)
    draft = tiny.build(tmp_path / "draft.gguf", extra_tokens=1, layers=1)
    arguments = ["models", "check", str(target), str(draft)]
    result = CliRunner().invoke(cli, arguments)
    assert result.exit_code == 0
    assert "not by rejection" in result.stdout
    assert "is only in the draft" in result.stdout
    assert json.loads(CliRunner().invoke(cli, [*arguments, "--json"]).stdout)["by_text"] is True
