"""`localspec service` beside programs named systemctl and launchctl that write down each call."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from localspec.cli import launch
from localspec.cli.main import cli
from localspec.cli.service import host, unit_text
from localspec.client import Client
from localspec.errors import NotRunning


@pytest.fixture
def calls(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Each call of systemctl or launchctl as a line; the real ones are out of reach."""
    programs, written = home / "bin", home / "calls"
    programs.mkdir()
    for name in ("systemctl", "launchctl"):
        program = programs / name
        program.write_text(f'#!/bin/sh\necho "{name} $*" >> {written}\nexit ${{FAIL:-0}}\n')
        program.chmod(0o755)
    monkeypatch.setenv("PATH", str(programs), prepend=":")
    return written


def service(*arguments: str) -> Result:
    """`localspec service ARGUMENTS`."""
    return CliRunner().invoke(cli, ["service", *arguments])


def test_install_writes_this_installation_and_starts_it(calls: Path) -> None:
    """The unit names the interpreter that runs now; no placeholder is left."""
    result = service("install")
    assert result.exit_code == 0, result.stderr
    text = host().target.read_text()
    assert sys.executable in text
    assert "@PYTHON@" not in text
    assert [line.split(" ", 1)[1] for line in calls.read_text().splitlines()] == [
        " ".join(command[1:]) for command in host().install
    ]


def test_print_changes_nothing(calls: Path) -> None:
    """The text goes to stdout."""
    assert sys.executable in service("install", "--print").stdout
    assert not host().target.exists()
    assert not calls.exists()


def test_uninstall_removes_the_file_even_if_the_platform_objects(
    calls: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The complaint is told, the file is gone, a second time is no error."""
    service("install")
    monkeypatch.setenv("FAIL", "3")
    result = service("uninstall")
    assert result.exit_code == 1
    assert "exit code 3" in result.stderr
    assert not host().target.exists()
    assert calls.exists()
    assert "not installed" in service("uninstall").stdout


def test_a_machine_without_a_service_manager_says_what_works(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`localspec start` needs none."""
    monkeypatch.setenv("PATH", str(home))
    result = service("status")
    assert result.exit_code == 1
    assert "localspec start" in result.stderr


@pytest.mark.skipif(sys.platform == "darwin", reason="systemd's syntax")
def test_a_path_with_every_special_character_stays_one_path() -> None:
    """Percent signs, quotes and backslashes mean something to systemd."""
    text = unit_text(host(), 'a b%c"d\\e')
    assert r'ExecStart="a b%%c\"d\\e" -P -m localspec_daemon' in text


def test_install_takes_over_from_a_daemon_that_was_started_by_hand(calls: Path) -> None:
    """It owns the socket that the service needs, so it ends before the platform starts ours."""
    client = Client.from_environment()
    pid = launch.start(client)["pid"]
    try:
        result = service("install")
        assert f"stopped: pid {pid}; the service takes over" in result.stdout
        with pytest.raises(NotRunning):
            client.status()
        assert calls.exists()
    finally:
        launch.stop(client, drain_seconds=1.0)
