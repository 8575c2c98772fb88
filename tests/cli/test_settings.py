"""`localspec config`: show, check, path."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner, Result

from localspec.cli.main import cli
from localspec.config import Config


@pytest.fixture
def file(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The configuration file, not yet written."""
    path = home / "my.toml"
    monkeypatch.setenv("LOCALSPEC_CONFIG", str(path))
    return path


def config(*arguments: str) -> Result:
    """`localspec config ARGUMENTS`."""
    return CliRunner().invoke(cli, ["config", *arguments])


def test_path_is_printed_whether_or_not_it_exists(file: Path) -> None:
    """For `$EDITOR "$(localspec config path)"`."""
    assert config("path").stdout == f"{file}\n"


def test_show_marks_what_the_file_sets(file: Path) -> None:
    """Every key is there once; only those of the file carry its name."""
    file.write_text("[engine]\nslots = 2\n[sampling.logit_bias]\n1 = 2.0\n")
    lines = config("show").stdout.splitlines()
    assert f"engine.slots = 2  # {file}" in lines
    assert "engine.context = 0" in lines
    assert len([line for line in lines if str(file) in line]) == 2
    keys = [line.split(" = ")[0] for line in lines]
    assert len(keys) == len(set(keys))


def test_show_without_a_file_is_the_defaults(file: Path) -> None:
    """As one JSON object that programs can read."""
    assert not file.exists()
    assert json.loads(config("show", "--json").stdout) == json.loads(msgspec.json.encode(Config()))


def test_check_refuses_what_the_daemon_would_refuse(file: Path) -> None:
    """Exit code 78, the key and the nearest right one."""
    assert config("check").exit_code == 0
    file.write_text("[engine]\nslot = 2\n")
    result = config("check")
    assert result.exit_code == 78
    assert "engine.slot" in result.stderr
    assert "Did you mean engine.slots?" in result.stderr
    assert config("show").exit_code == 78
