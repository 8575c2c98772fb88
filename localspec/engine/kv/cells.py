"""How full a KV cache is, and how large it has to be. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from localspec.types import Backend, Row, Sharing

STEP = 256
"""llama.cpp allocates so many cells at a time."""

KEPT_CELLS = 32768
"""A cache grows to so many cells before idle slots forget texts; beyond, they forget first."""


@runtime_checkable
class Reserving(Protocol):
    """A backend whose cache may grow; it grows only once if it knows how long a text will be."""

    def foresee(self, slot: int, tokens: int) -> None:
        """Note that the slot is going to hold so many tokens; 0 if that is unknown."""


class Cells:
    """The cells of one context: what each slot holds, how many there are, how many there may be.

    Args:
        slots: Sessions at the same time.
        now: Cells that there are, for all slots together.
        most: Cells to which the cache may grow.
        streams: Every slot has an equal part of its own; otherwise all share all.
    """

    def __init__(self, slots: int, now: int, most: int, *, streams: bool) -> None:
        self.held = [0] * slots
        self.foreseen = [0] * slots
        """Tokens that each slot is going to hold, as far as that is known."""
        self.streams = streams
        self._parts = slots if streams else 1
        self.now = self._whole(now)
        self.most = max(self.now, self._whole(most))

    @property
    def longest(self) -> int:
        """Tokens that one slot may come to hold."""
        return self.most // self._parts

    def take(self, rows: Sequence[Row]) -> None:
        """Note that these rows were decoded."""
        self.held = self._with(rows)

    def cut(self, slot: int, length: int) -> None:
        """Note that a slot was truncated."""
        self.held[slot] = min(self.held[slot], length)

    def needed(self, rows: Sequence[Row]) -> int:
        """Cells that there must be, for all slots together, to decode these rows as well."""
        return self._room(self._with(rows))

    def needed_with(self, slot: int, length: int) -> int:
        """Cells that there must be, for all slots together, where this one holds so many tokens."""
        return self._room([*self.held[:slot], length, *self.held[slot + 1 :]])

    def wanted(self, rows: Sequence[Row]) -> int:
        """Cells for these rows and what is foreseen to follow them, at most as many as may be.

        A cache that grows to this size at once copies only what other slots hold. If it grew again
        later, it would also copy what was read of this text.
        """
        held = self._with(rows)
        for slot in {row.slot for row in rows}:
            held[slot] = max(held[slot], self.foreseen[slot])
        return min(self._room(held), self.most)

    def _with(self, rows: Sequence[Row]) -> list[int]:
        """The cells of each slot once these rows are decoded: siblings have cells of their own."""
        held, begun = list(self.held), set[int]()
        for row in rows:
            if row.slot not in begun:
                begun.add(row.slot)
                held[row.slot] = row.position
            held[row.slot] += 1
        return held

    def _room(self, held: Sequence[int]) -> int:
        return max(held) * self._parts if self.streams else sum(held)

    def grown(self, needed: int) -> int:
        """The size to grow to: doubled until `needed` fits, at most `most`."""
        size = self.now
        while size < needed:
            size *= 2
        return min(self._whole(size), self.most)

    def fail(self, size: int) -> None:
        """Lower the limit after an allocation of `size` failed, and forget what was foreseen."""
        self.most = max(self.now, self._whole(min(self.most, size) // 2 - 1))
        self.foreseen = [0] * len(self.held)

    def _whole(self, cells: int) -> int:
        """Cells as llama.cpp allocates them: each stream a multiple of its step."""
        unit = STEP * self._parts
        return -(-cells // unit) * unit


def unasked(target: Backend) -> int:
    """Tokens that a slot may hold only to measure or to probe something.

    For these a cache grows at most to the size beyond which texts are forgotten first: memory that
    no conversation has asked for is left to other programs.
    """
    if not isinstance(target, Sharing):
        return target.context
    return min(target.context, max(target.kv_cells, KEPT_CELLS) // target.n_slots)
