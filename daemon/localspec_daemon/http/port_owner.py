"""The process that listens on a TCP port, for an error's message."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path

_LISTENING = "0A"
"""TCP_LISTEN in /proc/net/tcp."""


def port_owner(port: int, proc: Path = Path("/proc")) -> str:
    """`python3 (pid 123)`, or "" when the process is another user's or this is not Linux."""
    sockets = {f"socket:[{inode}]" for inode in _inodes(port, proc)}
    with contextlib.suppress(OSError):
        for process in proc.iterdir():
            if process.name.isdecimal() and _holds(process, sockets):
                name = (process / "comm").read_text(encoding="utf-8", errors="replace").strip()
                return f"{name} (pid {process.name})"
    return ""


def _inodes(port: int, proc: Path) -> Iterator[str]:
    """The inodes of sockets that listen on the port, from proc_net_tcp(5)."""
    for table in ("tcp", "tcp6"):
        with contextlib.suppress(OSError):
            for line in (proc / "net" / table).read_text(encoding="ascii").splitlines()[1:]:
                fields = re.split(r"\s+", line.strip())
                if fields[3] == _LISTENING and int(fields[1].rpartition(":")[2], 16) == port:
                    yield fields[9]


def _holds(process: Path, sockets: set[str]) -> bool:
    with contextlib.suppress(OSError):  # another user's, or gone
        for open_file in (process / "fd").iterdir():
            with contextlib.suppress(OSError):
                if str(open_file.readlink()) in sockets:
                    return True
    return False
