"""Orders without a slot: who is next. Pure, no clock."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from localspec.worker.preparation import PreparedRequest


@dataclass(frozen=True, slots=True)
class Waiting:
    """An order without a slot yet."""

    prepared: PreparedRequest
    arrived_at: float

    @property
    def id(self) -> str:
        """The request's id."""
        return self.prepared.request.id


class Queue:
    """First come, first served, and warm-ups only while no other request is there.

    Of warm-ups of one conversation the latest is what its client wants to be read.
    """

    def __init__(self) -> None:
        self._waiting: list[Waiting] = []

    def __len__(self) -> int:
        return len(self._waiting)

    def __iter__(self) -> Iterator[Waiting]:
        return iter(list(self._waiting))

    @property
    def pressing(self) -> bool:
        """Whether a request waits for text."""
        return any(not waiting.prepared.warms for waiting in self._waiting)

    def put(self, waiting: Waiting) -> None:
        """One more."""
        self._waiting.append(waiting)

    def take(self, id_: str) -> Waiting | None:
        """It is not among those that wait any more; None where it was not."""
        found = next((waiting for waiting in self._waiting if waiting.id == id_), None)
        if found:
            self._waiting.remove(found)
        return found

    def turns(self, *, busy: bool) -> list[Waiting]:
        """Who may have a slot now, in their order; `busy` while others are being answered."""
        warm = not busy and not self.pressing
        return [waiting for waiting in self._waiting if warm or not waiting.prepared.warms]

    def outdated(self) -> list[Waiting]:
        """Warm-ups behind which a later one of the same conversation waits; they leave."""
        warming = sorted(
            (one for one in self._waiting if one.prepared.warms), key=lambda one: one.arrived_at
        )
        latest = {_conversation(one): one for one in warming}
        found = [one for one in warming if latest[_conversation(one)] is not one]
        for one in found:
            self._waiting.remove(one)
        return found

    def clear(self) -> None:
        """Empty the queue."""
        self._waiting.clear()


def _conversation(waiting: Waiting) -> tuple[str, str]:
    request = waiting.prepared.request
    return request.client, request.session
