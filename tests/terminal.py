"""Terminals for commands: what one shows, one that a command owns, and keys for a chat, timed."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator, Mapping, Sequence

ROWS, COLUMNS = 40, 100
PATIENCE_SECONDS = 30.0


PIECE = 1024
"""Bytes that a terminal takes at once: a kernel's buffer holds four times as many."""


COMMAND = [sys.executable, "-m", "localspec.cli.main"]
OWNING = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.executable, [sys.executable, *sys.argv[1:]])
"""


def shown(
    command: Sequence[str], environment: Mapping[str, str], columns: int, *streams: str
) -> bytes:
    """Output of a command to these streams, by default stdout and stderr, in such a window."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    seen = dict.fromkeys(streams or ("stdout", "stderr"), theirs)
    stdout, stderr = (seen.get(name, subprocess.DEVNULL) for name in ("stdout", "stderr"))
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr, env=environment
    ):
        os.close(theirs)
        written = b""
        with contextlib.suppress(OSError):  # EIO is how Linux says that nobody writes any more
            while part := os.read(ours, 65536):
                written += part
    os.close(ours)
    return written


@contextlib.contextmanager
def owned(*arguments: str) -> Iterator[tuple[subprocess.Popen[bytes], int, bool]]:
    """A running `localspec ARGUMENTS`, the terminal that it owns, and whether that echoed."""
    ours, theirs = pty.openpty()
    echoed = echoes(theirs)
    command = [sys.executable, "-c", OWNING, *COMMAND[1:], *arguments]
    with subprocess.Popen(
        command, stdin=theirs, stdout=subprocess.PIPE, start_new_session=True
    ) as process:
        yield process, theirs, echoed
    os.close(theirs)
    os.close(ours)


def echoes(handle: int) -> bool:
    """Whether a terminal shows what is typed."""
    return bool(termios.tcgetattr(handle)[3] & termios.ECHO)


class Terminal:
    """One chat, from its beginning until Ctrl-D."""

    def __init__(self, environment: dict[str, str]) -> None:
        self._pid, self._handle = pty.fork()
        if not self._pid:
            command = [*COMMAND, "chat", "--no-spawn"]
            os.execve(sys.executable, command, environment)  # noqa: S606  our own command
        fcntl.ioctl(self._handle, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
        self._shown = b""

    def type(self, keys: str) -> float:
        """As somebody at its keyboard; when that began. What it shows meanwhile is read."""
        typed_at, data = time.monotonic(), keys.encode()
        while data:
            shows, takes, _ = select.select([self._handle], [self._handle], [], PATIENCE_SECONDS)
            assert shows or takes, self._shown[-300:]
            if shows:
                self._shown += os.read(self._handle, 65536)
            if takes:
                data = data[os.write(self._handle, data[:PIECE]) :]
        return typed_at

    def until(self, pattern: str) -> tuple[str, float]:
        """Wait until it shows something like that: what, and when. What stood before it goes."""
        while not (found := re.search(pattern.encode(), self._shown)):
            ready, _, _ = select.select([self._handle], [], [], PATIENCE_SECONDS)
            assert ready, self._shown[-300:]
            self._shown += os.read(self._handle, 65536)
        shown_at = time.monotonic()
        self._shown = self._shown[found.end() :]
        return found[0].decode(), shown_at

    def leave(self) -> None:
        """Ctrl-D."""
        self.type("\x04")
        os.waitpid(self._pid, 0)
        os.close(self._handle)
