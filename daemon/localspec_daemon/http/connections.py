"""Room for connections: how much there is for whom, and who makes way. Lives on the loop's thread.

| connection | room | when there is none left |
| --- | --- | --- |
| Unix socket, which is this user's | the most | 503 |
| TCP, a request of it had the token | a part of its own | 429 for that request |
| TCP, none had it yet | a small part, for seconds | the oldest makes way for the next |

So no class takes room from those above.
"""

from __future__ import annotations

import resource
from typing import NamedTuple, Protocol

from localspec.errors import Busy

WANTED_DESCRIPTORS = 4096
"""Open files of this process: a connection is one, and macOS gives 256 to who does not ask."""
RESERVED_DESCRIPTORS = 48
"""The daemon's own: 14 when it rests, 3 for a worker and 8 more while it is started, and a dozen
for connections that were just accepted or are just being closed."""
MOST_ON_SOCKET = 512
MOST_UNKNOWN = 64
"""Callers without a token: each needs a place for the milliseconds until its head is read."""
UNKNOWN_SECONDS = 5.0
"""From a TCP connection to its first request with a token. A program sends that at once."""


class Shares(NamedTuple):
    """How many connections each kind of caller may have."""

    socket: int
    known: int
    unknown: int


def shares(descriptors: int, most: int = MOST_ON_SOCKET) -> Shares:
    """The connections a limit of open files leaves room for; `most` are on the Unix socket."""
    free = max(0, descriptors - RESERVED_DESCRIPTORS)
    return Shares(
        max(1, min(most, free // 2)),
        max(1, min(most // 2, free // 4)),
        max(1, min(MOST_UNKNOWN, free // 8)),
    )


def descriptors() -> int:
    """How many files this process may open, after asking for as many as it wants."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    endless = (resource.RLIM_INFINITY, -1)
    if soft in endless:
        return WANTED_DESCRIPTORS
    wanted = WANTED_DESCRIPTORS if hard in endless else min(WANTED_DESCRIPTORS, hard)
    if soft >= wanted:
        return soft
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    except (OSError, ValueError):  # a system may have a lower bound that it does not tell
        return soft
    return wanted


class Connection(Protocol):
    """The needed part of a connection."""

    def close_now(self) -> None:
        """Close it now."""


class Connections:
    """All that are open. Server lifetime. Those of TCP have `unknown_seconds` to show the token."""

    def __init__(self, shares: Shares, unknown_seconds: float = UNKNOWN_SECONDS) -> None:
        self.shares = shares
        self.unknown_seconds = unknown_seconds
        self._socket: dict[Connection, None] = {}
        self._known: dict[Connection, None] = {}
        self._unknown: dict[Connection, None] = {}

    @property
    def full(self) -> bool:
        """Whether the Unix socket has as many as it may."""
        return len(self._socket) >= self.shares.socket

    def add(self, one: Connection, *, on_socket: bool) -> None:
        """One was accepted. On TCP it is unknown, and the oldest of those makes way for it."""
        if on_socket:
            self._socket[one] = None
            return
        while len(self._unknown) >= self.shares.unknown:
            oldest = next(iter(self._unknown))
            del self._unknown[oldest]
            oldest.close_now()
        self._unknown[one] = None

    def admit(self, one: Connection) -> None:
        """A request on it had the token. Raises Busy where there is no room for it."""
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
        """Whether none of its requests had the token yet."""
        return one in self._unknown

    def remove(self, one: Connection) -> None:
        """It was closed."""
        for kind in (self._socket, self._known, self._unknown):
            kind.pop(one, None)
