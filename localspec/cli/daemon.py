"""Commands about the daemon's process: serve, start, stop, restart, logs, reload, socket."""

from __future__ import annotations

import os
import sys
import time
from collections import deque
from typing import BinaryIO

import click

from localspec import paths
from localspec.cli import chosen, launch, waiting
from localspec.client import Client
from localspec.errors import LocalSpecError, NotRunning

FOLLOW_SECONDS = 0.2
ON_MACOS = sys.platform == "darwin"
SERVICE_LOG = "less ~/Library/Logs/localspec.log" if ON_MACOS else "journalctl --user -u localspec"


@click.command()
def serve() -> None:
    """Run the daemon in the foreground.

    The log goes to stderr; Ctrl-C drains and ends it.

    Example: localspec serve
    """
    launch.check_settings()
    command = launch.command(chosen.client())
    os.execv(command[0], command)  # noqa: S606  our own interpreter, no shell


@click.command()
def start() -> None:
    """Start the daemon in the background.

    Returns as soon as it answers; a daemon that already runs is fine. A configuration with a
    mistake is refused; a running daemon keeps its last good one.

    Example: localspec start
    """
    _start()


@click.command()
def stop() -> None:
    """Let running answers finish, then end the daemon.

    After server.drain_seconds of the configuration they are cut.

    Example: localspec stop
    """
    if _stop(chosen.client()):
        click.echo(
            "systemd holds the socket and starts it again when it is needed; to keep it off: "
            "systemctl --user stop localspec.socket"
        )


@click.command()
def restart() -> None:
    """Stop the daemon and start it again.

    A configuration with a mistake is refused before anything is stopped.

    Example: localspec restart
    """
    launch.check_settings()
    _stop(chosen.client())
    _start()


def _start() -> None:
    client = Client.from_environment()
    try:
        pid, found = launch.local_pid(client), "already running"
        chosen.tell(client.config_error)
    except NotRunning:
        with waiting.shown("starting the daemon"):
            pid, found = launch.start(client)["pid"], "started"
    click.echo(f"{found}: pid {pid}, socket {client}")


def _stop(client: Client) -> bool:
    """Stop the daemon; True if systemd starts it again at the next connection."""
    try:
        activated = bool(client.status().get("activated"))
    except NotRunning:
        activated = False
    with waiting.shown("letting running answers finish"):
        pid = launch.stop(client, drain_seconds=_drain_seconds())
    click.echo(f"stopped: pid {pid}" if pid else "not running")
    return activated


def _drain_seconds() -> float:
    from localspec import config  # noqa: PLC0415  the import costs more than most commands

    settings, _ = config.in_force(paths.config_file())
    return settings.server.drain_seconds


@click.command()
@click.option("-n", "--lines", default=50, show_default=True, type=click.IntRange(0, 1_000_000))
@click.option("-f", "--follow", is_flag=True, help="Keep printing what is added.")
def logs(*, lines: int, follow: bool) -> None:
    """Show the daemon's log.

    Example: localspec logs -f
    """
    path = launch.log_file()
    launch.bound_log(path)
    try:
        file = path.open("rb")
    except FileNotFoundError as error:
        raise LocalSpecError(
            f"There is no log at {path}: the daemon never ran in the background.",
            fix=f"{SERVICE_LOG}  # where it runs as a service",
        ) from error
    with file:
        for line in deque(file, maxlen=lines):
            click.echo(line, nl=False)
        if follow:
            _follow(file)


def _follow(file: BinaryIO) -> None:
    while True:
        line = file.readline()
        if line:
            click.echo(line, nl=False)
        elif os.fstat(file.fileno()).st_size < file.tell():
            file.seek(0)  # emptied in place by bound_log
        else:
            time.sleep(FOLLOW_SECONDS)


@click.command()
def reload() -> None:
    """Read the configuration and the models again.

    Returns when they are in force: what is asked afterwards is answered by them. A configuration
    with a mistake is refused here; the daemon keeps its last good one in any case.

    Example: localspec reload
    """
    client = chosen.client()
    pid = launch.local_pid(client)
    launch.check_settings()
    with waiting.shown("reading the configuration and the models"):
        launch.reload(client, pid)
    click.echo(f"reloaded: pid {pid}; `localspec status` shows what needs a restart")


@click.command()
def socket() -> None:
    """Print where the daemon listens.

    Example: curl --unix-socket "$(localspec socket)" http://localhost/v1/models
    """
    click.echo(chosen.client())
