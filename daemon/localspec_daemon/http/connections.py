"""Limits on connections, by kind. Lives on the event loop's thread.

| connection | limit | above the limit |
| --- | --- | --- |
| Unix socket, which is this user's | the largest | 503 |
| TCP, after a request with the token | its own | 429 for that request |
| TCP, before such a request | small, for seconds | the oldest one is closed |

So no kind uses up the connections of another.
"""

from __future__ import annotations

import resource
from typing import NamedTuple, Protocol

from localspec.errors import Busy

WANTED_DESCRIPTORS = 4096
"""Open files of this process, one for each connection; macOS allows 256 by default."""
RESERVED_DESCRIPTORS = 48
"""The daemon's own: 14 when it rests, 3 for a worker, or for the process that waits for a load, and
8 more while it is started, and a dozen for connections that were just accepted or are just being
closed."""
MOST_ON_SOCKET = 512
MOST_UNKNOWN = 64
"""Connections without a token yet: each counts for the milliseconds until its head is read."""
UNKNOWN_SECONDS = 5.0
"""The longest time from a TCP connection to a request with the token: clients send one at once."""


class Shares(NamedTuple):
    """The most connections of each kind."""

    socket: int
    known: int
    unknown: int


def shares(descriptors: int, most: int = MOST_ON_SOCKET) -> Shares:
    """The limits for a number of file descriptors; at most `most` on the Unix socket."""
    free = max(0, descriptors - RESERVED_DESCRIPTORS)
    return Shares(
        max(1, min(most, free // 2)),
        max(1, min(most // 2, free // 4)),
        max(1, min(MOST_UNKNOWN, free // 8)),
    )


def descriptors() -> int:
    """How many files this process may open, after raising the limit where possible."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    endless = (resource.RLIM_INFINITY, -1)
    if soft in endless:
        return WANTED_DESCRIPTORS
    wanted = WANTED_DESCRIPTORS if hard in endless else min(WANTED_DESCRIPTORS, hard)
    if soft >= wanted:
        return soft
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    except (OSError, ValueError):  # the system may have a lower bound that it does not report
        return soft
    return wanted


class Connection(Protocol):
    """The part of a connection that the limits need."""

    def close_now(self) -> None:
        """Close it now."""


class Connections:
    """The open connections. Server lifetime. TCP ones have `unknown_seconds` to send the token."""

    def __init__(self, shares: Shares, unknown_seconds: float = UNKNOWN_SECONDS) -> None:
        self.shares = shares
        self.unknown_seconds = unknown_seconds
        self._socket: dict[Connection, None] = {}
        self._known: dict[Connection, None] = {}
        self._unknown: dict[Connection, None] = {}

    @property
    def full(self) -> bool:
        """Whether the Unix socket has as many connections as it may have."""
        return len(self._socket) >= self.shares.socket

    def add(self, one: Connection, *, on_socket: bool) -> None:
        """Add an accepted connection; above the limit, close the oldest unknown one."""
        if on_socket:
            self._socket[one] = None
            return
        while len(self._unknown) >= self.shares.unknown:
            oldest = next(iter(self._unknown))
            del self._unknown[oldest]
            oldest.close_now()
        self._unknown[one] = None

    def admit(self, one: Connection) -> None:
        """Count a connection as known: a request had the token. Raises Busy above the limit."""
        if one not in self._unknown:
            return
        if len(self._known) >= self.shares.known:
            raise Busy(
                f"{len(self._known)} connections with the token are open already.",
                fix="Close some, or use the Unix socket.",
            )
        del self._unknown[one]
        self._known[one] = None

    def is_unknown(self, one: Connection) -> bool:
        """Whether no request on it has had the token yet."""
        return one in self._unknown

    def remove(self, one: Connection) -> None:
        """Remove a connection that was closed."""
        for kind in (self._socket, self._known, self._unknown):
            kind.pop(one, None)
