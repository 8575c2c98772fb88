"""`localspec service`: the unit or agent that lets systemd or launchd keep the daemon running."""

from __future__ import annotations

import html
import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import click

from localspec import paths
from localspec.cli import chosen as configured
from localspec.cli import launch
from localspec.errors import LocalSpecError

PLACEHOLDER = "@PYTHON@"
"""What stands in the shipped files for the interpreter that LocalSpec is installed in."""

LABEL = "dev.localspec"


@dataclass(frozen=True, slots=True)
class Host:
    """What keeps services on this platform: which file it reads where, and its commands.

    `escape` makes a path safe inside that file.
    """

    shipped: str
    target: Path
    install: tuple[tuple[str, ...], ...]
    uninstall: tuple[tuple[str, ...], ...]
    status: tuple[str, ...]
    escape: Callable[[str], str]


def host() -> Host:
    """The user manager of systemd, or launchd on macOS."""
    if sys.platform == "darwin":
        target = Path.home() / "Library" / "LaunchAgents" / f"{LABEL}.plist"
        domain = f"gui/{os.getuid()}"
        return Host(
            f"daemon/launchd/{LABEL}.plist",
            target,
            (("launchctl", "bootstrap", domain, str(target)),),
            (("launchctl", "bootout", f"{domain}/{LABEL}"),),
            ("launchctl", "print", f"{domain}/{LABEL}"),
            html.escape,
        )
    configured = os.environ.get("XDG_CONFIG_HOME")
    base = Path(configured) if configured else Path.home() / ".config"
    systemctl, unit = ("systemctl", "--user"), "localspec.service"
    return Host(
        f"daemon/systemd/{unit}",
        base / "systemd" / "user" / unit,
        ((*systemctl, "daemon-reload"), (*systemctl, "enable", "--now", unit)),
        ((*systemctl, "disable", "--now", unit),),
        (*systemctl, "status", "--no-pager", unit),
        _systemd_escape,
    )


@click.group()
def service() -> None:
    """Let systemd or launchd keep the daemon running."""


@service.command()
@click.option("--print", "only_print", is_flag=True, help="Print the file, change nothing.")
def install(*, only_print: bool) -> None:
    """Start the daemon now and at every login.

    Writes the service file of this user.

    Example: localspec service install
    """
    chosen = host()
    text = unit_text(chosen)
    if only_print:
        click.echo(text, nl=False)
        return
    paths.write_atomically(chosen.target, text.encode(), mode=0o644)
    click.echo(f"written: {chosen.target}")
    _make_way()
    for command in chosen.install:
        _run(command)


@service.command()
def uninstall() -> None:
    """End the service and remove its file.

    Example: localspec service uninstall
    """
    chosen = host()
    if not chosen.target.exists():
        click.echo(f"not installed: there is no {chosen.target}")
        return
    try:
        for command in chosen.uninstall:
            _run(command)
    finally:
        chosen.target.unlink(missing_ok=True)
        click.echo(f"removed: {chosen.target}")


@service.command()
def status() -> None:
    """Show what systemd or launchd says of the service.

    Example: localspec service status
    """
    _run(host().status)


def _make_way() -> None:
    """End a daemon that was started by hand: it owns the socket that the service needs."""
    client = configured.client()
    if client.socket_path is None:
        return
    pid = launch.stop(client, drain_seconds=configured.settings().server.drain_seconds)
    if pid:
        click.echo(f"stopped: pid {pid}; the service takes over")


def unit_text(chosen: Host, python: str = sys.executable) -> str:
    """The shipped file with this installation's interpreter in it. Raises LocalSpecError."""
    path = paths.shipped(chosen.shipped)
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise LocalSpecError(
            f"The service file that travels with LocalSpec is missing: {path}.",
            fix="Install LocalSpec again.",
        ) from error
    return text.replace(PLACEHOLDER, chosen.escape(python))


def _systemd_escape(path: str) -> str:
    """`path` between the quotes of an ExecStart=, where % begins a specifier."""
    return path.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%")


def _run(command: tuple[str, ...]) -> None:
    """Run one command of the platform with its output on ours. Raises LocalSpecError."""
    try:
        done = subprocess.run(command, check=False)  # noqa: S603  constants of this file
    except FileNotFoundError as error:
        raise LocalSpecError(
            f"There is no {command[0]} here.", fix="localspec start  # runs without a service"
        ) from error
    if done.returncode:
        raise LocalSpecError(f"`{shlex.join(command)}` ended with exit code {done.returncode}.")
