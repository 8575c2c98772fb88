"""The service files of LocalSpec's package."""

from __future__ import annotations

import configparser
import os
import plistlib
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from localspec import paths
from localspec.cli.service import filled, host
from localspec.client import Client
from localspec.errors import ConfigError, Forbidden

UNIT = paths.shipped("daemon/systemd/localspec.service")
SOCKET = paths.shipped("daemon/systemd/localspec.socket")
WORKER_HOST = paths.shipped("daemon/systemd/localspec-worker-host.service")
AGENT = paths.shipped("daemon/launchd/dev.localspec.plist")
AGENT_KEYS: dict[str, type] = {
    "Label": str,
    "ProgramArguments": list,
    "EnvironmentVariables": dict,
    "RunAtLoad": bool,
    "KeepAlive": dict,
    "ThrottleInterval": int,
    "ProcessType": str,
    "ExitTimeOut": int,
    "SoftResourceLimits": dict,
    "Umask": int,
}
"""The keys of launchd.plist(5) that ours uses; launchd ignores unknown ones."""


def unit(path: Path = UNIT) -> configparser.ConfigParser:
    """Parses a systemd unit as systemd does: case matters; the last of equal keys counts."""
    parser = configparser.ConfigParser(interpolation=None, strict=path == UNIT)
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(path.read_text(encoding="utf-8"))
    return parser


def test_the_unit_runs_the_daemon_and_reloads_it() -> None:
    """Readiness is reported, HUP reloads, TERM goes to the supervisor alone."""
    service = unit()["Service"]
    assert service["Type"] == "notify"
    assert service["ExecStart"] == '"@PYTHON@" -P -m localspec_daemon'
    assert service["ExecReload"].endswith("-HUP $MAINPID")
    assert service["KillMode"] == "mixed"
    assert unit()["Install"]["WantedBy"] == "default.target"


def test_the_socket_is_private_and_older_than_the_daemon() -> None:
    """The daemon inherits the socket; only its owner may connect."""
    door = unit(SOCKET)["Socket"]
    assert (door["SocketMode"], door["DirectoryMode"]) == ("0600", "0700")
    assert unit()["Unit"]["Requires"] == unit()["Unit"]["After"] == SOCKET.name
    assert unit()["Install"]["Also"] == SOCKET.name


def test_a_configuration_error_is_not_tried_again() -> None:
    """The unit's exit code is the error's."""
    assert unit()["Service"]["RestartPreventExitStatus"] == str(ConfigError.exit_code)


def test_nothing_in_the_unit_hides_the_gpu_or_needs_privileges() -> None:
    """Directives that need namespaces fail in a user's manager, or hide devices."""
    forbidden = {"PrivateDevices", "DeviceAllow", "MemoryDenyWriteExecute", "ProtectSystem",
                 "ProtectHome", "PrivateTmp", "PrivateNetwork", "User", "DynamicUser"}  # fmt: skip
    assert not forbidden & set(unit()["Service"])
    assert unit()["Service"]["NoNewPrivileges"] == "true"


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd is not here")
def test_systemd_finds_nothing_wrong_with_the_units(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are checked as installed, from a home with every character special in units.

    For a unit without privileges its exposure is low: below 7 of 10; without hardening it is 9.4.
    """
    monkeypatch.setenv("LOCALSPEC_MODELS", 'a "b" %h \\ $c')
    for path in (UNIT, SOCKET):
        name = f"daemon/systemd/{path.name}"
        (tmp_path / path.name).write_text(filled(name, host().values()))
    units = [str(tmp_path / path.name) for path in (SOCKET, UNIT)]
    security = ["security", "--offline=yes", "--threshold=70", units[1]]
    for command in (["verify", *units], security):
        done = subprocess.run(
            ["systemd-analyze", "--user", *command],
            env=os.environ | {"XDG_RUNTIME_DIR": str(tmp_path)},
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode, done.stderr) == (0, ""), done.stdout


def test_a_worker_host_is_tried_again_unless_it_was_refused() -> None:
    """It restarts after a crash, but not for root or wrong arguments."""
    service = unit(WORKER_HOST)["Service"]
    assert service["ExecStart"].split()[1:] == ["worker-host"]
    assert service["Restart"] == "on-failure"
    refusals = f"{Forbidden.exit_code} {ConfigError.exit_code}"
    assert service["RestartPreventExitStatus"] == refusals


@pytest.mark.skipif(not shutil.which("systemd-analyze"), reason="systemd is not here")
def test_systemd_finds_little_that_a_worker_host_is_exposed_to(tmp_path: Path) -> None:
    """Every line is valid, and the exposure is below 1.5 of 10."""
    path = tmp_path / WORKER_HOST.name
    installed = "/opt/localspec/.venv/bin/localspec"
    path.write_text(WORKER_HOST.read_text(encoding="utf-8").replace(installed, sys.executable))
    verify = ["systemd-analyze", "verify", str(path)]
    security = ["systemd-analyze", "security", "--offline=yes", "--threshold=15", str(path)]
    for command in (verify, security):
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, ""), done.stdout


def test_the_agent_runs_the_daemon_and_keeps_it_alive() -> None:
    """It restarts after a crash, not after an orderly end; its log is in macOS's directory."""
    agent = plistlib.loads(AGENT.read_bytes())
    assert agent["Label"] == AGENT.stem
    assert agent["KeepAlive"] == {"SuccessfulExit": False}
    assert agent["Umask"] == 0o077
    assert agent["SoftResourceLimits"]["NumberOfFiles"] > 512
    shell, option, command, python = agent["ProgramArguments"]
    assert (shell, option, python) == ("/bin/sh", "-c", "@PYTHON@")
    assert "$HOME/Library/Logs/" in command


def test_the_agents_shell_becomes_the_interpreter_it_was_given(tmp_path: Path) -> None:
    """Also with a space in its path; the output is in the log."""
    (tmp_path / "Library" / "Logs").mkdir(parents=True)
    python = tmp_path / "a python"
    python.write_text('#!/bin/sh\necho "$@"\n')
    python.chmod(0o700)
    arguments = plistlib.loads(AGENT.read_bytes())["ProgramArguments"][:-1]
    subprocess.run([*arguments, python], env={"HOME": str(tmp_path)}, check=True)
    log = (tmp_path / "Library" / "Logs" / "localspec.log").read_text()
    assert log == "-P -m localspec_daemon\n"


def test_the_installed_agent_is_a_daemon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The agent's command answers here too, with its variables, and ends in order."""
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setenv("XDG_STATE_HOME", f"{tmp_path}/a & <b>")
    agent = plistlib.loads(filled("daemon/launchd/dev.localspec.plist", host().values()).encode())
    monkeypatch.undo()
    assert {key: type(value) for key, value in agent.items()} == AGENT_KEYS
    variables = agent["EnvironmentVariables"]
    assert "~" not in "".join([*agent["ProgramArguments"], *variables.values()])
    (tmp_path / "Library" / "Logs").mkdir(parents=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(str(tmp_path / "n"))
        manager.settimeout(30)
        known = {name: os.environ[name] for name in ("PATH", "PYTHONPATH") if name in os.environ}
        here = {"HOME": str(tmp_path), "NOTIFY_SOCKET": manager.getsockname()}
        daemon = subprocess.Popen(agent["ProgramArguments"], env=known | here | variables)
        try:
            while not (said := manager.recv(4096).decode()).startswith("READY=1\n"):
                pass
            where = Path(said.partition("Listening on ")[2].partition(";")[0])
            assert where.is_relative_to(variables["XDG_STATE_HOME"])
            assert Client(where).status()["pid"] == daemon.pid
        finally:
            daemon.terminate()
        assert daemon.wait(timeout=30) == 0, "an orderly end is none that KeepAlive undoes"
    assert (
        "INFO localspec.server ready"
        in (tmp_path / "Library" / "Logs" / "localspec.log").read_text()
    )
