"""Tells a client that closed only its writing side (`nc -N`) from one that has closed its socket.

Both send the same end of stream. On a Unix socket poll(2) tells them apart; on loopback TCP the
kernel's table does, where a closed socket has no inode. Elsewhere (macOS) a client that has sent an
end of stream counts as gone.
"""

from __future__ import annotations

import select
import socket
import sys
from pathlib import Path

_TABLES = {socket.AF_INET: "tcp", socket.AF_INET6: "tcp6"}


def reads(connection: socket.socket, proc: Path = Path("/proc")) -> bool:
    """Whether the client may still read. `connection` has received an end of stream."""
    if sys.platform != "linux":
        return False
    poll = select.poll()
    poll.register(connection.fileno(), 0)
    if any(event & (select.POLLHUP | select.POLLERR) for _, event in poll.poll(0)):
        return False
    if connection.family == socket.AF_UNIX:
        return True
    try:
        lines = (proc / "net" / _TABLES[connection.family]).read_text(encoding="ascii").splitlines()
        ends = (
            _coded(connection, connection.getpeername()),
            _coded(connection, connection.getsockname()),
        )
    except (OSError, KeyError):
        return False
    for line in lines[1:]:
        fields = line.split()
        if (fields[1], fields[2]) == ends:
            return fields[9] != "0"  # the inode: none where no process has the socket
    return False


def _coded(connection: socket.socket, address: tuple[str, int]) -> str:
    """An address as proc_net_tcp(5) writes it: words of four bytes in the machine's own order."""
    packed = socket.inet_pton(connection.family, address[0])
    words = (packed[at : at + 4] for at in range(0, len(packed), 4))
    turned = (word[::-1] if sys.byteorder == "little" else word for word in words)
    return f"{b''.join(turned).hex().upper()}:{address[1]:04X}"
