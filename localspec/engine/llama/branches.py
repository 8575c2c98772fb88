"""The sequences on which branches of drafts are decoded, beside each slot's own.

In one cache for all slots a cell belongs to any number of llama.cpp's sequences, and a row attends
to the cells of its first one. A branch is a sequence that shares the slot's cells
(llama_memory_seq_cp moves no data) and has cells of its own from where it departs. What is shared
stays so between forwards, because sharing looks at each cell that is new.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from localspec.engine.kv.places import SlotPositions
from localspec.engine.llama.library import native
from localspec.types import Row

MOST = 8
"""Branches of a slot: 16 rows, the most that cost no more than 9 on an H100, seldom have
more of them that are worth a row."""
_SEQUENCES = 256
"""llama.cpp's LLAMA_MAX_SEQ."""


class Branches:
    """Sequences beside those of `slots`. Made anew with the context's memory.

    Args:
        slots: Sequences 0 up to so many are the slots' own.
        places: Where in the memory places of texts are.
        able: Whether cells can be shared: not between streams, and a state has none.
    """

    def __init__(self, slots: int, places: SlotPositions, *, able: bool) -> None:
        self.most = min(MOST, _SEQUENCES // slots) if able else 1
        self._slots, self._places = slots, places
        self._shared: dict[tuple[int, int], int] = {}
        """By slot and branch: how many of the slot's tokens its sequence has."""
        self._open: dict[int, set[int]] = {}
        """By slot: the branches on which the latest forward wrote."""

    def sequence(self, slot: int, branch: int) -> int:
        """The number of a branch's sequence."""
        return slot if branch == 0 else self._slots + slot * (self.most - 1) + branch - 1

    def prepare(self, memory: Any, rows: Sequence[Row]) -> None:
        """Before a forward: all branches of these rows share what their slots hold."""
        first: dict[int, Row] = {}
        for row in rows:
            first.setdefault(row.slot, row)
        for slot, row in first.items():
            for branch in row.branches[1:]:
                have = self._shared.get((slot, branch), 0)
                to = self.sequence(slot, branch)
                start, end = self._places.of(slot, have), self._places.of(slot, row.position)
                native.llama_memory_seq_cp(memory, slot, to, start, end)
                self._shared[slot, branch] = row.position
                self._open.setdefault(slot, set()).add(branch)

    def keep(self, memory: Any, slot: int, branch: int, length: int) -> None:
        """Let a slot hold `length` tokens by way of a branch, and no cell of any other."""
        start = self._shared[slot, branch]
        begin, end = self._places.of(slot, start), self._places.of(slot, length)
        native.llama_memory_seq_rm(memory, slot, begin, -1)
        native.llama_memory_seq_cp(memory, self.sequence(slot, branch), slot, begin, end)
        self.cut(memory, slot, start)

    def cut(self, memory: Any, slot: int, length: int) -> None:
        """Forget on all branches of a slot what is not the slot's, and its tokens from `length`."""
        ahead = self._open.pop(slot, set[int]())
        for (owner, branch), have in self._shared.items():
            if owner == slot and (branch in ahead or have > length):
                left = min(have, length)
                place = self._places.of(slot, left)
                native.llama_memory_seq_rm(memory, self.sequence(slot, branch), place, -1)
                self._shared[slot, branch] = left
