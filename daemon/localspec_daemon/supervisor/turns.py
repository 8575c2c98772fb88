"""Gives the requests of a model their turns, first come first served, and tells each its place."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from localspec.wire.messages import Progress
from localspec_daemon.supervisor.broadcast import Broadcast


@dataclass
class Turns:
    """Lets `count` requests go on at a time; the others wait. On the event loop's thread."""

    count: int
    _line: list[str] = field(default_factory=list)
    """Ids in the order of arrival. The first `count` have their turn; the others wait."""
    _moved: Broadcast = field(default_factory=Broadcast)

    @contextmanager
    def joined(self, id_: str, *, waits: bool = True) -> Iterator[None]:
        """Keep a place in the line until the block ends; without `waits` take no place."""
        if waits:
            self._line.append(id_)
        try:
            yield
        finally:
            if waits:
                self._line.remove(id_)
                self._moved.notify_all()

    async def places(self, id_: str) -> AsyncGenerator[Progress]:
        """A request's place in the waiting line at each change, 1 for the next, until its turn."""
        told = 0
        while id_ in self._line and (place := self._line.index(id_) + 1 - self.count) > 0:
            if place == told:
                await self._moved.wait()
                continue
            told = place
            yield Progress("queue", 0.0, f"waiting for its turn, {place} in the line", id_)
