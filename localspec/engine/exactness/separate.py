"""One forward for each slot: for devices where other sessions' rows change the bits of a row."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from operator import attrgetter

import numpy as np

from localspec.engine.forward_thread import CapacityBackend
from localspec.engine.kv.rollback import snapshots_of
from localspec.errors import NoRoom
from localspec.types import Backend, Floats, ForwardOutput, Row


def apart(target: Backend) -> Backend:
    """A target that decodes the rows of each slot in a forward of their own."""
    return target if isinstance(target, SeparateBackend) else SeparateBackend(target)


class SeparateBackend:
    """A `Backend` over another one. `decode` needs the rows of each slot next to each other."""

    def __init__(self, target: Backend) -> None:
        self.n_vocab, self.n_slots = target.n_vocab, target.n_slots
        self.max_rows = target.max_rows
        self._target = target

    @property
    def context(self) -> int:
        """The target's own value."""
        return self._target.context

    @property
    def snapshots(self) -> int:
        """The target's own value."""
        return snapshots_of(self._target)

    def has_room(self, rows: Sequence[Row]) -> bool:
        """Delegate to the target."""
        return isinstance(self._target, CapacityBackend) and self._target.has_room(rows)

    def decode(self, rows: Sequence[Row]) -> ForwardOutput:
        """Delegate to the target, slot by slot.

        Raises:
            NoRoom: there are no cells for some of them. Nothing was changed, except that a memory
                may have gone back too far.
            EngineError: as the target.
        """
        slots = [list(group) for _, group in itertools.groupby(rows, key=attrgetter("slot"))]
        if len(slots) == 1:
            return self._target.decode(rows)
        found: list[tuple[Floats, Floats | None, Floats | None]] = []
        try:
            for group in slots:  # a forward overwrites what the one before shows
                output = self._target.decode(group)
                states = None if output.states is None else output.states.copy()
                found.append((output.logits.copy(), states, output.features()))
        except NoRoom:
            for group in slots[: len(found)]:
                self._target.truncate(group[0].slot, group[0].position)
            raise
        logits = np.concatenate([rows for rows, _, _ in found])
        shown = _joined([state for rows, state, _ in found if len(rows)])
        features = _joined([tapped for _, _, tapped in found])
        return ForwardOutput(logits, shown, lambda: features)

    def truncate(self, slot: int, length: int) -> int:
        """Delegate to the target."""
        return self._target.truncate(slot, length)

    def checkpoint(self, slot: int, *, lasting: bool = False) -> None:
        """Delegate to the target."""
        self._target.checkpoint(slot, lasting=lasting)


def _joined(parts: Sequence[Floats | None]) -> Floats | None:
    """The parts of all slots, joined; None if one is missing, as rows would be another slot's."""
    there = [part for part in parts if part is not None]
    return np.concatenate(there) if there and len(there) == len(parts) else None
