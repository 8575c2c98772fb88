"""Queues prepared requests until they get a slot. Pure, no clock."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from localspec.worker.preparation import PreparedRequest


@dataclass(frozen=True, slots=True)
class Waiting:
    """A prepared request without a slot yet."""

    prepared: PreparedRequest
    arrived_at: float

    @property
    def id(self) -> str:
        """The request's id."""
        return self.prepared.request.id


class Queue:
    """First come, first served; warm-ups only while there is no other request.

    Of several warm-ups of one conversation only the latest is of use.
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
        """Add a request."""
        self._waiting.append(waiting)

    def take(self, id_: str) -> Waiting | None:
        """Remove and return the request of this id; None if it does not wait."""
        found = next((waiting for waiting in self._waiting if waiting.id == id_), None)
        if found:
            self._waiting.remove(found)
        return found

    def turns(self, *, busy: bool) -> list[Waiting]:
        """The requests that may have a slot now, in order; `busy` while others are answered."""
        warm = not busy and not self.pressing
        return [waiting for waiting in self._waiting if warm or not waiting.prepared.warms]

    def outdated(self) -> list[Waiting]:
        """Remove and return the warm-ups that a later one of the same conversation replaces."""
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
