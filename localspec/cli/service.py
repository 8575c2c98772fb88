"""`localspec service`: units or an agent, by which systemd or launchd keep the daemon running."""

from __future__ import annotations

import html
import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import click

from localspec import paths
from localspec.cli import chosen as configured
from localspec.cli import launch, waiting
from localspec.cli.columns import columns, hung
from localspec.cli.groups import Group
from localspec.errors import LocalSpecError, NotRunning

LABEL = "dev.localspec"
UNITS = ("localspec.socket", "localspec.service")
SYSTEMCTL = ("systemctl", "--user")

_WITHOUT = "localspec start  # runs without a service"

PLACES = (
    "LOCALSPEC_CONFIG", "LOCALSPEC_MODELS",
    "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME",
)  # fmt: skip
"""Variables that a service manager does not have; without them other directories would be used."""

Commands: TypeAlias = Sequence[tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Host:
    """The service manager of this platform: its commands, and where it reads our files.

    `values` gives the text for each placeholder of a file. `ask` fails if no such manager runs for
    this user, and changes nothing. `listen` takes over the socket, so that requests from then on
    wait for the daemon that `start` starts. `stop` gets the names of the files that exist, before
    they are removed; `forget` runs after that.
    """

    files: Mapping[str, Path]
    values: Callable[[], Mapping[str, str]]
    ask: Commands
    listen: Commands
    start: Commands
    stop: Callable[[Sequence[str]], Commands]
    forget: Commands
    status: tuple[str, ...]
    advice: str


def host() -> Host:
    """The user manager of systemd, or launchd on macOS."""
    return _launchd() if sys.platform == "darwin" else _systemd()


def _systemd() -> Host:
    chosen = os.environ.get("XDG_CONFIG_HOME")
    base = Path(chosen) if chosen else paths.home() / ".config"
    return Host(
        files={f"daemon/systemd/{unit}": base / "systemd" / "user" / unit for unit in UNITS},
        values=_of_units,
        ask=((*SYSTEMCTL, "daemon-reload"),),
        listen=((*SYSTEMCTL, "daemon-reload"), (*SYSTEMCTL, "start", "localspec.socket")),
        start=((*SYSTEMCTL, "enable", "--now", *UNITS),),
        stop=lambda units: ((*SYSTEMCTL, "disable", "--now", *units),),
        forget=((*SYSTEMCTL, "daemon-reload"), (*SYSTEMCTL, "reset-failed", "localspec.*")),
        status=(*SYSTEMCTL, "status", "--no-pager", *UNITS),
        advice="It runs while you are logged in; `loginctl enable-linger` makes it outlast that.",
    )


def _launchd() -> Host:
    target = paths.home() / "Library" / "LaunchAgents" / f"{LABEL}.plist"
    domain = f"gui/{os.getuid()}"
    return Host(
        files={f"daemon/launchd/{LABEL}.plist": target},
        values=_of_agent,
        ask=(),  # there is no macOS without launchd
        listen=(),  # launchd holds no socket of ours
        start=(("launchctl", "bootstrap", domain, str(target)),),
        stop=lambda _: (("launchctl", "bootout", f"{domain}/{LABEL}"),),
        forget=(),
        status=("launchctl", "print", f"{domain}/{LABEL}"),
        advice="It runs while you are logged in.",
    )


@click.group(cls=Group)
def service() -> None:
    """Let systemd or launchd keep the daemon running."""


@service.command()
@click.option("--print", "only_print", is_flag=True, help="Print the files, change nothing.")
def install(*, only_print: bool) -> None:
    """Start the daemon now and at every login.

    Writes the service files of this user. A daemon that runs already makes way. What
    LOCALSPEC_CONFIG, LOCALSPEC_MODELS and XDG's variables say now is written down, and so is
    server.socket: after a change install again.

    Example: localspec service install
    """
    chosen = host()
    texts = {target: filled(name, chosen.values()) for name, target in chosen.files.items()}
    if only_print:
        click.echo("\n".join(texts.values()), nl=False)
        return
    made = _make_directories(texts)  # may fail, so it comes before anything is stopped
    try:
        for command in chosen.ask:
            _run(command)
    except LocalSpecError:
        for directory in made:
            directory.rmdir()
        raise
    if there := _there(chosen):
        for command in chosen.stop(there):
            _run(command, must=False)
    for target, text in texts.items():
        paths.write_atomically(target, text.encode(), mode=0o644)
        click.echo(f"written: {target}")
    _take_over(chosen)
    click.echo(hung("", chosen.advice, columns()))


@service.command()
def uninstall() -> None:
    """End the service and remove its files.

    Example: localspec service uninstall
    """
    chosen = host()
    there = _there(chosen)
    if not there:
        click.echo(f"not installed: there is no {' or '.join(map(str, chosen.files.values()))}")
        return
    try:
        for command in chosen.stop(there):
            _run(command)
    finally:
        for target in chosen.files.values():
            if target.exists():
                target.unlink()
                click.echo(f"removed: {target}")
    for command in chosen.forget:
        _run(command)


@service.command()
def status() -> None:
    """Show what systemd or launchd says of the service.

    Example: localspec service status
    """
    _run(host().status)


def _there(chosen: Host) -> list[str]:
    """Names of our files that an earlier installation left."""
    return [target.name for target in chosen.files.values() if target.exists()]


def _make_directories(files: Iterable[Path]) -> list[Path]:
    """Make the directories of these files; returns the new ones, deepest first. Raises OSError."""
    missing = {place for file in files for place in file.parents if not place.exists()}
    for file in files:
        paths.make_directory(file.parent)
    return sorted(missing, reverse=True)


def _take_over(chosen: Host) -> None:
    """Start the service after ending a daemon started by hand; requests wait meanwhile."""
    by_hand = _by_hand()  # asked before the socket is the service's
    for command in chosen.listen:
        _run(command)
    if by_hand:
        with waiting.shown("letting running answers finish"):
            launch.end(by_hand, drain_seconds=configured.settings().server.drain_seconds)
        click.echo(f"stopped: pid {by_hand}; the service takes over")
    for command in chosen.start:
        _run(command)


def _by_hand() -> int | None:
    """The pid of a daemon that runs without the service."""
    client = configured.client()
    try:
        return launch.local_pid(client) if client.socket_path else None
    except NotRunning:
        return None


def filled(name: str, values: Mapping[str, str]) -> str:
    """The shipped file of that name, its placeholders filled in. Raises LocalSpecError."""
    path = paths.shipped(name)
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise LocalSpecError(
            f"The service file that travels with LocalSpec is missing: {path}.",
            fix="Install LocalSpec again.",
        ) from error
    for placeholder, value in values.items():
        text = text.replace(f"@{placeholder}@", value)
    return text


def _of_units() -> dict[str, str]:
    """Values of the units' placeholders. Each % is doubled: in a unit it begins a specifier."""
    socket = configured.settings().server.socket
    path = str(paths.expanded(socket).absolute()).replace("%", "%%") if socket else ""
    lines = [f'Environment="{_quoted(f"{name}={value}")}"' for name, value in _places()]
    shell = ["from the shell that installed this:", *(lines or ["# nothing"])]
    return {
        "PYTHON": _quoted(sys.executable),
        "SOCKET": path or "%t/localspec/localspec.sock",
        "ENVIRONMENT": "\n".join(shell),
    }


def _of_agent() -> dict[str, str]:
    """Values of the agent's placeholders, escaped for XML."""
    pairs = (f"<key>{name}</key><string>{html.escape(value)}</string>" for name, value in _places())
    return {"PYTHON": html.escape(sys.executable), "ENVIRONMENT": "".join(pairs)}


def _places() -> list[tuple[str, str]]:
    return [(name, os.environ[name]) for name in PLACES if os.environ.get(name)]


def _quoted(text: str) -> str:
    """`text` between double quotes of a unit."""
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("\n", "\\n")


def _run(command: tuple[str, ...], *, must: bool = True) -> None:
    """Run one command of the platform with its output on ours.

    Raises LocalSpecError when there is no such command, and when one that `must` succeed fails.
    """
    try:
        done = subprocess.run(command, check=False)  # noqa: S603  constants of this file
    except FileNotFoundError as error:
        raise LocalSpecError(f"There is no {command[0]} here.", fix=_WITHOUT) from error
    if must and done.returncode:
        raise LocalSpecError(
            f"`{shlex.join(command)}` ended with exit code {done.returncode}.", fix=_WITHOUT
        )
