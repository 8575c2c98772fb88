"""Opens and closes the daemon's TCP port, for tools that cannot speak through a Unix socket.

A port that was opened here is noted beside the records of `localspec connect`; a port that the user
opened is never closed here.
"""

from __future__ import annotations

import contextlib
import socket
from pathlib import Path

import click

from localspec import paths
from localspec.cli import chosen, launch, waiting
from localspec.cli.confirm import confirm
from localspec.errors import ConfigError, NotRunning, RequestError

_HOST = "127.0.0.1"
_PORTS = range(8080, 8180)
"""8080 is where llama-server listens, and where tools look first."""
_KEY = "server.tcp"


def opened(title: str, *, yes: bool) -> str:
    """Return the daemon's TCP address; the port is opened now if the user agrees.

    Raises ConfigError if the user does not agree.
    """
    from localspec.cli import config_edit  # noqa: PLC0415  Tab loads this file, and no settings

    if address := chosen.settings().server.tcp:
        return address
    address = f"{_HOST}:{_free_port()}"
    try:
        confirm(
            f"{title} cannot speak through a Unix socket. Open {address}, for programs of this "
            "computer that have the token, and restart the daemon?",
            yes=yes,
        )
    except RequestError as error:
        raise ConfigError(
            f"{title} cannot speak through a Unix socket, and {_KEY} is not set.",
            fix=f"Add --yes, or: localspec config set {_KEY} {address}; localspec restart",
        ) from error
    config_edit.apply(paths.config_file(), config_edit.set_to(_KEY, address))
    paths.write_atomically(_record(), address.encode())
    click.echo(f"opened: {address}, by {_KEY} in {paths.config_file()}", err=True)
    _restart()
    return address


def closed() -> str:
    """Close a port that was opened here and not changed since. Returns a sentence or ""."""
    from localspec import config  # noqa: PLC0415  as in `opened`
    from localspec.cli import config_edit  # noqa: PLC0415

    try:
        address = _record().read_text(encoding="utf-8")
    except FileNotFoundError:
        return ""
    is_ours = config.load(paths.config_file()).server.tcp == address
    if is_ours:
        config_edit.apply(paths.config_file(), config_edit.without(_KEY))
    _record().unlink()  # not before: while the configuration has a mistake nothing can be closed
    if not is_ours:
        return ""
    _restart()
    return f"closed: {address}"


def _record() -> Path:
    return paths.state_dir() / "door"


def _restart() -> None:
    """Restart a running daemon, so that it listens as the file says now."""
    client = chosen.client()
    drain_seconds = chosen.settings().server.drain_seconds
    with contextlib.suppress(NotRunning), waiting.shown("restarting the daemon"):
        launch.local_pid(client)
        launch.stop(client, drain_seconds=drain_seconds)
        waiting.running_daemon()


def _free_port() -> int:
    for port in _PORTS:
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((_HOST, port))
            return port
    raise ConfigError(
        f"No port from {_PORTS[0]} to {_PORTS[-1]} is free.",
        fix=f"localspec config set {_KEY} {_HOST}:PORT",
    )
