"""One forward for each slot: for devices where other sessions' rows change the bits of a row."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from operator import attrgetter

import numpy as np

from localspec.types import Backend, Floats, Row


def apart(target: Backend) -> Backend:
    """A target that decodes the rows of each slot in a forward of their own."""
    return target if isinstance(target, Apart) else Apart(target)


class Apart:
    """A `Backend` over another one. What `decode` takes has the rows of a slot side by side."""

    def __init__(self, target: Backend) -> None:
        self.n_vocab, self.n_slots = target.n_vocab, target.n_slots
        self.context, self.max_rows = target.context, target.max_rows
        self._target = target

    def decode(self, rows: Sequence[Row]) -> Floats:
        """As the target does, slot by slot.

        Raises:
            EngineError: as the target.
        """
        slots = [list(group) for _, group in itertools.groupby(rows, key=attrgetter("slot"))]
        if len(slots) == 1:
            return self._target.decode(rows)
        # A forward overwrites the logits of the one before.
        return np.concatenate([self._target.decode(group).copy() for group in slots])

    def truncate(self, slot: int, length: int) -> None:
        """As the target does."""
        self._target.truncate(slot, length)
