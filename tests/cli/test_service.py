"""`localspec service` beside programs named systemctl and launchctl that write down each call."""

from __future__ import annotations

import plistlib
import re
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from localspec.cli import launch
from localspec.cli.main import cli
from localspec.cli.service import Commands, host
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


def written() -> list[Path]:
    """The files of the service that are there."""
    return [target for target in host().files.values() if target.exists()]


def commands(calls: Path) -> list[str]:
    """The arguments of each call of systemctl or launchctl."""
    return [line.split(" ", 1)[1] for line in calls.read_text().splitlines()]


def joined(asked: Commands) -> list[str]:
    """The same of commands that are to be asked."""
    return [" ".join(command[1:]) for command in asked]


def test_install_writes_this_installation_and_starts_it(calls: Path) -> None:
    """The files name the interpreter that runs now; no placeholder is left."""
    result = service("install")
    assert result.exit_code == 0, result.stderr
    texts = [target.read_text() for target in host().files.values()]
    assert sys.executable in "".join(texts)
    assert not re.search("@[A-Z]+@", "".join(texts))
    assert commands(calls) == joined([*host().ask, *host().listen, *host().start])


def test_a_second_install_ends_the_first(calls: Path) -> None:
    """Its files may have named another socket; that nothing of it runs any more is no error."""
    service("install")
    before = len(commands(calls))
    there = [target.name for target in written()]
    assert service("install").exit_code == 0
    again = [*host().ask, *host().stop(there), *host().listen, *host().start]
    assert commands(calls)[before:] == joined(again)


def test_print_changes_nothing(calls: Path) -> None:
    """The text goes to stdout."""
    assert sys.executable in service("install", "--print").stdout
    assert written() == []
    assert not calls.exists()


def test_uninstall_removes_everything(calls: Path) -> None:
    """The running service, its files and the platform's records of it are gone."""
    service("install")
    before = len(commands(calls))
    stop = host().stop([target.name for target in written()])
    assert service("uninstall").exit_code == 0
    assert commands(calls)[before:] == joined([*stop, *host().forget])
    assert written() == []


def test_uninstall_removes_the_files_even_if_the_platform_objects(
    calls: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The complaint is told, the files are gone, a second time is no error."""
    service("install")
    monkeypatch.setenv("FAIL", "3")
    result = service("uninstall")
    assert result.exit_code == 1
    assert "exit code 3" in result.stderr
    assert written() == []
    assert calls.exists()
    assert "not installed" in service("uninstall").stdout


def test_a_service_finds_what_this_shell_finds(
    calls: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A service manager knows no variables of a shell, so those that name places are written."""
    monkeypatch.setenv("LOCALSPEC_MODELS", f"{home}/<models>")
    text = service("install", "--print").stdout
    assert not calls.exists()
    if sys.platform == "darwin":
        agent = plistlib.loads(text.encode())
        assert agent["EnvironmentVariables"]["LOCALSPEC_MODELS"] == f"{home}/<models>"
    else:
        assert f'Environment="LOCALSPEC_MODELS={home}/<models>"' in text


@pytest.mark.skipif(sys.platform == "darwin", reason="launchd holds no socket of ours")
def test_systemd_listens_where_clients_look(home: Path) -> None:
    """In the runtime directory, or where the configuration says."""
    assert "\nListenStream=%t/localspec/localspec.sock\n" in service("install", "--print").stdout
    file = home / "config" / "localspec" / "config.toml"
    file.parent.mkdir(parents=True)
    file.write_text('[server]\nsocket = "~/a 100% place"\n')
    assert f"\nListenStream={home}/a 100%% place\n" in service("install", "--print").stdout


def test_a_machine_without_a_service_manager_says_what_works(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`localspec start` needs none."""
    monkeypatch.setenv("PATH", str(home))
    result = service("status")
    assert result.exit_code == 1
    assert "localspec start" in result.stderr


@pytest.mark.skipif(sys.platform == "darwin", reason="systemd's syntax")
def test_a_path_with_every_special_character_stays_one_path(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Percent signs, quotes and backslashes mean something to systemd."""
    monkeypatch.setattr(sys, "executable", 'a b%c"d\\e')
    text = service("install", "--print").stdout
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


@pytest.mark.skipif(sys.platform == "darwin", reason="launchd is always there")
def test_a_daemon_stays_where_no_service_could_follow_it(
    calls: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A container has systemctl and no manager: nothing is written, the daemon goes on serving."""
    client = Client.from_environment()
    pid = launch.start(client)["pid"]
    monkeypatch.setenv("FAIL", "1")
    try:
        result = service("install")
        assert result.exit_code == 1
        assert "localspec start" in result.stderr
        assert client.status()["pid"] == pid
        assert written() == []
        assert not any(place.exists() for place in (home / "config" / "systemd", home / "Library"))
        assert commands(calls) == joined(host().ask)
    finally:
        launch.stop(client, drain_seconds=1.0)
