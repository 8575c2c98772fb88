"""A terminal of its own for `localspec chat`: keys go in, and what it shows comes out, timed."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import sys
import termios
import time

ROWS, COLUMNS = 40, 100
PATIENCE_SECONDS = 30.0


PIECE = 1024
"""Bytes that a terminal takes at once: a kernel's buffer holds four times as many."""


class Terminal:
    """One chat, from its beginning until Ctrl-D."""

    def __init__(self, environment: dict[str, str]) -> None:
        self._pid, self._handle = pty.fork()
        if not self._pid:
            command = [sys.executable, "-m", "localspec.cli.main", "chat", "--no-spawn"]
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
