"""Maps places in a text to positions, which differ after an image of two dimensions (M-RoPE).

Such an image of n x m rows takes max(n, m) positions. A gap is the place in a text where its rows
end, and how many more rows than positions they are.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from localspec.engine.images import Gap
from localspec.types import Row


class SlotPositions:
    """The positions of each slot's places in one context. Used by the context's thread."""

    def __init__(self) -> None:
        self._gaps: dict[int, tuple[Gap, ...]] = {}

    def of(self, slot: int, place: int) -> int:
        """The position of a place in the slot's text."""
        if slot not in self._gaps:
            return place
        return place - sum(more for end, more in self._gaps[slot] if end <= place)

    def placed(self, rows: Sequence[Row]) -> Sequence[Row]:
        """The same rows at their positions."""
        if not self._gaps:
            return rows
        return [replace(row, position=self.of(row.slot, row.position)) for row in rows]

    def gaps(self, slot: int) -> tuple[Gap, ...]:
        """The gaps of a slot's text."""
        return self._gaps.get(slot, ())

    def hold(self, slot: int, gaps: Iterable[Gap], length: int) -> None:
        """Note the gaps of a slot's text, as far as they are in its first `length` tokens."""
        kept = tuple(gap for gap in gaps if gap[0] <= length)
        if kept:
            self._gaps[slot] = kept
        else:
            self._gaps.pop(slot, None)

    def cut(self, slot: int, length: int) -> None:
        """Note that a slot was truncated."""
        if slot in self._gaps:
            self.hold(slot, self._gaps[slot], length)

    def saw(self, slot: int, gap: Gap) -> None:
        """Note that a slot has read rows of an image that end with this gap."""
        self._gaps[slot] = (*self.gaps(slot), gap)
