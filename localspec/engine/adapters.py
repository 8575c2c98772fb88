"""LoRA adapters in forwards: their scales belong to a whole forward, so sessions take turns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeAlias, runtime_checkable

from localspec.engine.session import Session
from localspec.types import Backend

Scales: TypeAlias = tuple[float, ...]
"""The scale of each adapter that the model was loaded with; () is none of them."""


@runtime_checkable
class AdapterBackend(Backend, Protocol):
    """A backend whose forwards may have LoRA adapters."""

    @property
    def adapters(self) -> int:
        """How many adapters it was loaded with."""

    def adapt(self, scales: Scales) -> None:
        """Give the adapters these scales from the next forward on, unless they have them."""


def owner(client: str, scales: Scales) -> str:
    """The key by which texts of a client are kept that were read with these scales.

    Keys and values computed with adapters can only be reused with the same ones.
    """
    return f"{client} {scales}" if any(scales) else client


class Adapters:
    """Sets the adapters of each forward of one engine.

    Between requests all have a scale of 1: then probes and measurements include the products of
    every adapter, and a forward with fewer adapters has no products that were not included.
    """

    def __init__(self, target: Backend) -> None:
        there = isinstance(target, AdapterBackend) and target.adapters
        self._target = target if there and isinstance(target, AdapterBackend) else None
        self._turn: Scales = ()

    def turn(self, sessions: list[Session]) -> list[Session]:
        """The sessions of the next forward: those whose scales are equal; others wait their turn.

        The adapters are set for them.
        """
        if self._target is None or not sessions:
            return sessions
        waiting = list(dict.fromkeys(session.request.adapters for session in sessions))
        place = waiting.index(self._turn) + 1 if self._turn in waiting else 0
        self._turn = waiting[place % len(waiting)]
        self.use(self._turn)
        return [session for session in sessions if session.request.adapters == self._turn]

    def use(self, scales: Scales) -> None:
        """Set the adapters of the next forward, which is no turn."""
        if self._target is not None:
            self._target.adapt(scales)

    def rest(self, sessions: Sequence[Session]) -> None:
        """Set all adapters once there are no sessions any more."""
        if self._target is not None and not sessions:
            self._target.adapt((1.0,) * self._target.adapters)
