"""Starts and ends the daemon's process from outside: detached start, log file, waiting for exit.

Unix only. The daemon itself locks its socket, so two starts at once end with one daemon.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import select
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from localspec import paths
from localspec.cli import chosen
from localspec.client import Client
from localspec.errors import ConfigError, DaemonError, LocalSpecError, NotRunning, RequestError

START_SECONDS = 30.0
POLL_SECONDS = 0.02
LOG_BYTES = 8 * 1024 * 1024
DRAIN_MARGIN_SECONDS = 5.0


def command(client: Client) -> list[str]:
    """The command that runs the daemon which `client` would talk to.

    -P keeps Python from running a file of that name in the caller's directory instead.
    """
    daemon = [sys.executable, "-P", "-m", "localspec_daemon"]
    return [*daemon, "--socket", str(client.socket_path)] if client.socket_path else daemon


def reach(*, spawn: bool, tell: Callable[[str], None]) -> Client:
    """A client of the daemon, which is started first if none runs and `spawn` is set.

    `tell` is called again and again while the daemon starts. Raises NotRunning.
    """
    client = Client.from_environment()
    try:
        client.status()
    except NotRunning:
        if not spawn or client.socket_path is None:
            raise
        start(client, tell)
    chosen.tell(client.config_error)
    return client


def log_file() -> Path:
    """The log of a daemon started in the background; one older file is kept beside it."""
    return paths.state_dir() / "daemon.log"


def start(client: Client, tell: Callable[[str], None] = lambda _: None) -> dict[str, Any]:
    """Start the daemon detached from this terminal and return its status once it answers.

    `tell` is called again and again meanwhile.

    Raises ConfigError for a configuration that the daemon would refuse, and DaemonError with the
    end of the log when it dies or stays silent.
    """
    check_settings()
    log = log_file()
    paths.make_private(log.parent)
    bound_log(log)
    written = log.stat().st_size if log.exists() else 0
    pid = os.posix_spawn(
        sys.executable,
        command(client),
        os.environ,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(log), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsid=True,
    )
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        tell("starting the daemon")
        exit_code = _exit_code(pid)
        try:
            status = client.status()
        except NotRunning as error:
            if exit_code is not None:
                if _outlasted(client, tell):
                    return start(client, tell)
                raise _died(exit_code, log, written) from error
        else:
            if status.get("pid") != pid and exit_code is None:
                _dismiss(pid)
            return status
        time.sleep(POLL_SECONDS)
    raise DaemonError(
        f"The daemon (pid {pid}) did not answer within {START_SECONDS:g} s.", fix="localspec logs"
    )


def check_settings() -> None:
    """Raise the ConfigError that a daemon would end with, if it were started now."""
    from localspec import config  # noqa: PLC0415  the import costs more than most commands

    config.load(paths.config_file())


def stop(
    client: Client, *, drain_seconds: float, margin_seconds: float = DRAIN_MARGIN_SECONDS
) -> int | None:
    """End the daemon and return its pid; None if none runs."""
    try:
        pid = local_pid(client)
    except NotRunning:
        return None
    end(pid, drain_seconds=drain_seconds, margin_seconds=margin_seconds)
    return pid


def end(pid: int, *, drain_seconds: float, margin_seconds: float = DRAIN_MARGIN_SECONDS) -> None:
    """End a daemon; it is killed if it still runs `margin_seconds` after the drain.

    Its workers end with it.
    """
    with Watch(pid) as watch:
        watch.signal(signal.SIGTERM)
        if not watch.wait(drain_seconds + margin_seconds):
            watch.signal(signal.SIGKILL)
            watch.wait(DRAIN_MARGIN_SECONDS)


def reload(client: Client, pid: int) -> None:
    """Have the daemon read its configuration and models again; returns when they are in force.

    A daemon of an older version, whose status has no `reloads`, is not waited for. Raises
    NotRunning if the daemon ends meanwhile.
    """
    before = client.status().get("reloads")
    with Watch(pid) as watch:
        watch.signal(signal.SIGHUP)
        while before is not None and client.status().get("reloads") == before:
            watch.wait(POLL_SECONDS)


def local_pid(client: Client) -> int:
    """The daemon's pid, if it is a process of this machine. Raises NotRunning, RequestError."""
    if client.socket_path is None:
        raise RequestError(
            f"The daemon at {client} is reached by TCP and may run elsewhere.",
            fix="Unset LOCALSPEC_HOST to speak of the daemon of this machine.",
        )
    pid = client.status().get("pid")
    if not isinstance(pid, int) or pid <= 1:
        raise DaemonError("The daemon did not say which process it is.", fix="localspec logs")
    return pid


class Watch:
    """Watches one process until it ends; a zombie has ended. Use in `with`.

    On Linux by a pidfd, elsewhere by kqueue: neither means a later process with the same pid.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._ended = False
        if sys.platform == "linux":
            self._handle = os.pidfd_open(pid)
            return
        self._queue = select.kqueue()
        kind = select.KQ_FILTER_PROC, select.KQ_EV_ADD, select.KQ_NOTE_EXIT
        try:
            self._queue.control([select.kevent(pid, *kind)], 0)
        except ProcessLookupError:
            self._ended = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if sys.platform == "linux":
            os.close(self._handle)
        else:
            self._queue.close()

    def signal(self, number: signal.Signals) -> None:
        """Send `number`; a process that has just ended is no error. Raises LocalSpecError."""
        try:
            if sys.platform == "linux":
                signal.pidfd_send_signal(self._handle, number)
            elif not self.wait(0):
                os.kill(self._pid, number)
        except ProcessLookupError:
            return
        except PermissionError as error:
            raise LocalSpecError(f"Process {self._pid} belongs to another user.") from error

    def wait(self, seconds: float) -> bool:
        """True once the process has ended, False if it has not after `seconds`."""
        if sys.platform == "linux":
            poll = select.poll()
            poll.register(self._handle, select.POLLIN)
            return bool(poll.poll(seconds * 1000))
        self._ended = self._ended or bool(self._queue.control(None, 1, seconds))
        return self._ended


def bound_log(log: Path, limit_bytes: int = LOG_BYTES) -> None:
    """Move the end of a log over its limit to `.1`; the file stays, for the daemon that writes."""
    try:
        if log.stat().st_size <= limit_bytes:
            return
        with log.open("rb") as file:
            file.seek(-limit_bytes, os.SEEK_END)
            paths.write_atomically(log.with_name(f"{log.name}.1"), file.read())
        os.truncate(log, 0)
    except FileNotFoundError:
        return


def _exit_code(pid: int) -> int | None:
    """The exit code of our child, or None while it runs."""
    try:
        ended, status = os.waitpid(pid, os.WNOHANG)
    except ChildProcessError:
        return 0
    return os.waitstatus_to_exitcode(status) if ended else None


def _outlasted(client: Client, tell: Callable[[str], None]) -> bool:
    """Wait for a daemon that owns the socket and does not answer: it ends, or it has just started.

    False if there is none, or if it still does not answer after the longest drain.
    """
    deadline = time.monotonic() + chosen.settings().server.drain_seconds + DRAIN_MARGIN_SECONDS
    found = False
    while _is_owned(client):
        if time.monotonic() > deadline:
            return False
        found = True
        tell("waiting for the daemon that is ending")
        with contextlib.suppress(NotRunning):
            client.status()
            break
        time.sleep(POLL_SECONDS)
    return found


def _is_owned(client: Client) -> bool:
    """Whether a daemon has the lock beside its socket, which it keeps until it has ended."""
    if client.socket_path is None:
        return False
    try:
        lock = client.socket_path.with_name(f"{client.socket_path.name}.lock").open("rb")
    except OSError:
        return False
    with lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def _dismiss(pid: int) -> None:
    """End our child if another daemon was first, so that it does not take over when that stops."""
    os.kill(pid, signal.SIGKILL)  # it owns nothing yet: the other one holds the socket's lock
    os.waitpid(pid, 0)


def _died(exit_code: int, log: Path, start_bytes: int) -> DaemonError:
    with log.open("rb") as file:
        file.seek(start_bytes)
        lines = file.read(LOG_BYTES).decode(errors="replace").splitlines()[-8:]
    said = "\n".join(f"  {line}" for line in lines) or "  (it wrote nothing)"
    return DaemonError(
        f"The daemon ended with exit code {exit_code} while starting:\n{said}",
        fix="localspec config check" if exit_code == ConfigError.exit_code else "localspec logs",
    )
