"""The memory of the slots of one llama_context: copied out and in, shared, and taken back."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from ctypes import c_int32, c_void_p
from typing import Any

import numpy as np

from localspec.engine.kv.cells import Cells
from localspec.engine.kv.places import SlotPositions
from localspec.engine.kv.rollback import Checkpoints, Rollback, Snapshots, Stored
from localspec.engine.llama.copies import STATE_ONLY, Copies
from localspec.engine.llama.library import native, ours
from localspec.errors import EngineError, NoRoom
from localspec.types import Floats, ForwardOutput, Row

_TRIED_TEXT, _TRIED_BACK = 3, 2
"""Tokens that are read to try snapshots, and those that are taken back."""
_ROUNDED = 0.02
"""A share of the range of logits: rounding changes them by less, other tokens' states by more."""


class SlotMemory(ABC):
    """The memory of a context's slots. Used by the thread that made the context.

    `rollback` is how it goes back, as the model has it; `find_rollback` tries it.
    """

    n_slots: int
    rollback: Rollback
    trees: bool
    """Whether a row may follow another one than the row before it: not with streams or states."""
    _forks: dict[int, int]
    """By slot: up to this position each row of the latest forward follows the one before it."""
    _cells: Cells
    _checkpoints: Checkpoints
    _copies: Copies
    _places: SlotPositions
    _snapshots: Snapshots
    _handle: Any
    _memory: Any

    @abstractmethod
    def decode(self, rows: Sequence[Row]) -> ForwardOutput:
        """One forward over all rows."""

    @abstractmethod
    def _grow(self, size: int) -> bool:
        """Grow to `size` cells, and keep what is held; False without memory."""

    @abstractmethod
    def leave_snapshots(self, count: int) -> None:
        """Let forwards leave so many snapshots. Every slot is empty before and afterwards."""

    @property
    def snapshots(self) -> int:
        """How many last tokens a slot can take back after one forward of more rows, if any."""
        return self._snapshots.most

    def truncate(self, slot: int, length: int) -> int:
        """Forget a slot's tokens from position `length` on; returns how many it holds then.

        A memory that is a state goes back to a snapshot of its latest forward, otherwise to the
        latest checkpoint at or before `length`; without one it forgets all. Cells beside a state
        (hybrid models) are cut to the same length.
        """
        kept = min(length, self._cells.held[slot], self._forks.get(slot, length))
        if kept < self._cells.held[slot] and slot in self._copies.partial:
            kept = 0
        if not kept:
            self._copies.partial.discard(slot)
        back = self._cells.held[slot] - kept
        if kept and self._snapshots.reach(slot, back):
            self._snapshots.use(slot)
        elif back:
            self._snapshots.lose(slot)
            kept = self._restored(slot, kept)
        if not native.llama_memory_seq_rm(self._memory, slot, self._places.of(slot, kept), -1):
            raise EngineError(f"The memory of slot {slot} cannot go back to {kept}.")
        self._cells.cut(slot, kept)
        self._places.cut(slot, kept)
        self._checkpoints.cut(slot, kept)
        return kept

    def keep(self, slot: int, row: int, length: int) -> int:
        """As `truncate`; of the latest forward's rows the slot keeps `row` and its ancestors."""
        if self._forks.pop(slot, None) is not None:
            ours.call("keep", None, c_void_p(self._memory), c_int32(slot), c_int32(row))
        return self.truncate(slot, length)

    def _shape(self, rows: Sequence[Row]) -> None:
        """Tell llama.cpp, before a forward, which of these rows follows which."""
        self._forks = {}
        for row in rows:
            if row.back != 1:
                self._forks[row.slot] = min(row.position, self._forks.get(row.slot, row.position))
        if not self.trees:
            if self._forks:
                raise EngineError("Rows of a tree need a memory that can hold trees.")
            return
        back = [row.back for row in rows] if self._forks else []
        given = (c_int32 * len(back))(*back)
        ours.call("tree", None, c_void_p(self._memory), given, c_int32(len(back)))

    def _restored(self, slot: int, length: int) -> int:
        """Bring back the state after `length` tokens, or after fewer; returns how many."""
        if not length or self.rollback == "trim":
            return length
        checkpoint = self._checkpoints.latest(slot, length)
        if checkpoint is None:
            return 0
        self._copies.load(slot, checkpoint.state, STATE_ONLY)
        return checkpoint.length

    def checkpoint(self, slot: int, *, lasting: bool = False) -> None:
        """Copy the slot's state, over its passing copy or as one more lasting copy.

        Does nothing where cells can be forgotten, or for an empty slot.
        """
        length = self._cells.held[slot]
        if self.rollback != "restore" or not length:
            return
        if not self._checkpoints.has(slot, length, lasting=lasting):
            size = self._copies.size(slot, STATE_ONLY)
            checkpoint = self._checkpoints.begun(slot, size, lasting=lasting)
            self._copies.save(slot, checkpoint.state, STATE_ONLY)
            checkpoint.length = length

    def copy(self, source: int, slot: int, length: int) -> None:
        """Let `slot` hold the first `length` tokens that `source` holds, and nothing else.

        In a shared cache the cells then belong to both (llama_memory_seq_cp); those of a stream are
        copied bit by bit.
        """
        native.llama_memory_seq_rm(self._memory, slot, 0, -1)
        if not self._cells.streams:
            end = self._places.of(source, length)
            native.llama_memory_seq_cp(self._memory, source, slot, 0, end)
            self._cells.held[slot] = length
            self._places.hold(slot, self._places.gaps(source), length)
            return
        self._copies.load(slot, self._copies.saved(source))
        self._cells.held[slot] = self._cells.held[source]
        self._places.hold(slot, self._places.gaps(source), self._cells.held[source])
        self.truncate(slot, length)

    @property
    def shifts(self) -> bool:
        """Whether tokens in the middle can be forgotten."""
        able: bool = native.llama_memory_can_shift(self._memory)
        return able and self.rollback == "trim"

    def shift(self, slot: int, keep: int, count: int) -> None:
        """Forget `count` tokens after the first `keep`; the tokens after them move up.

        Cells that other slots hold too are copied before. Raises NoRoom or MemoryError.
        """
        if not self._cells.streams:
            self.put_back(slot, self.take_out(slot))
        end = keep + count
        if not native.llama_memory_seq_rm(self._memory, slot, keep, end):
            raise EngineError(f"The memory of slot {slot} cannot forget {count} tokens.")
        native.llama_memory_seq_add(self._memory, slot, end, -1, -count)
        held = self._cells.held[slot] - count
        self._cells.cut(slot, held)
        self.decode([Row(0, held, slot)])  # the next forward, of any row, rotates the keys
        self.truncate(slot, held)
        if self._cells.streams:  # classes of forwards were probed on cells without holes
            self.put_back(slot, self.take_out(slot))

    def keep_copies(self, most_bytes: int) -> None:
        """Let all lasting copies of states together have so many bytes from now on."""
        self._checkpoints.most_bytes = most_bytes

    def stored(self, slot: int) -> Stored:
        """A copy of all that the slot holds. Raises MemoryError."""
        state, lasting = self._copies.saved(slot), self._checkpoints.lasting(slot)
        return Stored(self._cells.held[slot], state, lasting, self._places.gaps(slot))

    def stored_size(self, slot: int) -> int:
        """Bytes of such a copy."""
        lasting = self._checkpoints.lasting(slot)
        return self._copies.size(slot) + sum(len(each.state) for each in lasting)

    def take_out(self, slot: int) -> Stored:
        """Copy all that the slot holds, and empty it. Raises MemoryError, and changes nothing."""
        state, length = self._copies.saved(slot), self._cells.held[slot]
        gaps = self._places.gaps(slot)
        stored = Stored(length, state, self._checkpoints.taken(slot), gaps)
        self.truncate(slot, 0)
        return stored

    def put_back(self, slot: int, stored: Stored) -> None:
        """Let an empty slot hold a copy again. Raises NoRoom, and the slot stays empty."""
        cells = self._cells
        needed = cells.needed_with(slot, stored.length)
        if needed > cells.now and not self._grow(cells.grown(needed)):
            raise NoRoom(f"There is no memory for {stored.length} tokens any more.")
        self._snapshots.lose(slot)
        self._copies.load(slot, stored.state)
        cells.held[slot] = stored.length
        self._places.hold(slot, stored.gaps, stored.length)
        self._checkpoints.given(slot, stored.checkpoints)

    def length(self, slot: int) -> int:
        """Number of positions that the slot's memory holds."""
        return int(native.llama_memory_seq_pos_max(self._memory, slot)) + 1

    def find_rollback(self) -> Rollback:
        """Try the rollback of this memory; it becomes "none" if that fails. Leaves slot 0 empty.

        Two tokens are read and one is forgotten. A state that came back has to give the same bits.
        Snapshots are switched off unless they are states of the right tokens.
        """
        if self.snapshots and not self._snapshots_hold():
            self.leave_snapshots(0)
        second = [Row(0, 1, 0, wants_logits=True)]
        self.decode([Row(0, 0, 0)])
        self.checkpoint(0)
        logits = self.decode(second).logits.copy()
        self._snapshots.lose(0)
        try:
            able = self.truncate(0, 1) == self.length(0) == 1
        except EngineError:
            able = False
        if able and self.rollback == "restore":
            able = np.array_equal(self.decode(second).logits, logits)
        if not able:
            self.rollback = "none"
        self._forget_all()
        return self.rollback

    def _forget_all(self) -> None:
        native.llama_memory_clear(self._memory, True)
        self._cells.held = [0] * self.n_slots
        self._places = SlotPositions()
        self._forks.clear()
        self._checkpoints = Checkpoints(self._checkpoints.most_bytes)
        self._snapshots = Snapshots(self.snapshots)

    def _snapshots_hold(self) -> bool:
        """Whether rejected tokens leave no trace, and the state before them comes back.

        After different rejected tokens the logits have to agree to the last bit. With those of the
        text alone they need not: that text is read by a forward of fewer rows.
        """
        back = min(self.snapshots, _TRIED_BACK)
        text, wrong = range(_TRIED_TEXT), range(_TRIED_TEXT, _TRIED_TEXT + back)
        found = [
            self._after([*text, *(token + shift for token in wrong)], back) for shift in (0, back)
        ]
        right = self._after([*text], 0)
        apart = np.abs(found[0] - right).max()
        return np.array_equal(found[0], found[1]) and bool(apart <= _ROUNDED * np.ptp(right))

    def _after(self, tokens: Sequence[int], back: int) -> Floats:
        """The logits of one more token after these tokens, with the last `back` taken back."""
        self.decode([Row(token, place, 0) for place, token in enumerate(tokens)])
        held = self.truncate(0, len(tokens) - back)
        logits: Floats = self.decode([Row(0, held, 0, wants_logits=True)]).logits[0].copy()
        self.truncate(0, 0)
        return logits
