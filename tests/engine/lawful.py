"""A backend whose law is known: a next token by the last two, and bits by the whole forward.

What stands at a position is a hash of everything before it and of what its device cares about, a
`Quirk`: so a row that came about in another way has other bits, and so has every row after it, as
keys and values would make it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from localspec.types import ForwardOutput, Row

VOCABULARY = 24
_BASE = np.random.default_rng(3).normal(0, 2, (VOCABULARY, VOCABULARY, VOCABULARY))
_NOISE = 1e-4
_MIX = np.random.default_rng(4).integers(0, 1 << 63, VOCABULARY, dtype=np.uint64) | np.uint64(1)


class Seen(NamedTuple):
    """Quantities on which a device might let a row's bits depend, beyond the tokens.

    place: Index among the rows of its slot; rows: how many these are, and `total` all together.
    end: Cells of its slot after the forward; longest: of any slot that takes part. wanted: Rows of
    the forward that want logits, for these; 0 for its keys and values.
    """

    slot: int
    position: int
    place: int
    rows: int
    total: int
    end: int
    longest: int
    wanted: int = 0


Quirk = Callable[[Seen], object]
"""Rows of equal tokens have equal bits where it gives the same."""


@dataclass
class Lawful:
    """A `Backend`. `decoded` counts rows, `forwards` forwards; `other_bits` what broke the law.

    Rows that want logits are compared with all earlier ones behind the same tokens, unless they are
    forgotten at once: padding, and drafts behind a wrong one, decide nothing.
    """

    quirk: Quirk
    n_slots: int = 4
    context: int = 1024
    max_rows: int = 512
    n_vocab: int = VOCABULARY
    decoded: int = 0
    forwards: int = 0
    compared: int = 0
    other_bits: list[Seen] = field(default_factory=list)
    sizes: set[int] = field(default_factory=set)
    _known: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._cells: list[list[tuple[int, int, int]]] = [[] for _ in range(self.n_slots)]
        self._latest: list[tuple[Seen, int, int]] = []

    def decode(self, rows: Sequence[Row]) -> ForwardOutput:
        """Decode all rows; every row must follow what its slot holds."""
        self._compare(sorted({row.slot for row in rows}))
        self.forwards += 1
        self.decoded += len(rows)
        counts = Counter(row.slot for row in rows)
        self.sizes |= set(counts.values())
        ends = {slot: len(self._cells[slot]) + count for slot, count in counts.items()}
        longest = max(ends.values())
        wanted = sum(row.wants_logits for row in rows)
        places: Counter[int] = Counter()
        found = []
        for row in rows:
            cells = self._cells[row.slot]
            assert row.position == len(cells) < self.context
            seen = Seen(
                row.slot,
                row.position,
                places[row.slot],
                counts[row.slot],
                len(rows),
                ends[row.slot],
                longest,
            )
            places[row.slot] += 1
            text, bits, last = cells[-1] if cells else (0, 0, 0)
            text = hash((text, row.token))
            bits = hash((bits, row.token, self.quirk(seen)))
            cells.append((text, bits, row.token))
            if row.wants_logits:
                bits = hash((bits, self.quirk(seen._replace(wanted=wanted))))
                self._latest.append((seen, text, bits))
                noise = (_MIX * np.uint64(abs(bits))) >> np.uint64(56)
                found.append((_BASE[last, row.token] + _NOISE * noise).astype(np.float32))
        return ForwardOutput(np.array(found, dtype=np.float32).reshape(-1, VOCABULARY))

    def truncate(self, slot: int, length: int) -> int:
        """Forget a slot's cells from `length` on."""
        del self._cells[slot][length:]
        self._latest = [
            each for each in self._latest if each[0].slot != slot or each[0].position < length
        ]
        self._compare([slot])
        return len(self._cells[slot])

    def checkpoint(self, slot: int, *, lasting: bool = False) -> None:
        """Cells can be forgotten one by one."""

    def _compare(self, slots: Sequence[int]) -> None:
        """Compare the latest forward's results with earlier ones behind the same text."""
        for seen, text, bits in self._latest:
            if seen.slot in slots:
                self.compared += 1
                if self._known.setdefault(text, bits) != bits:
                    self.other_bits.append(seen)
        self._latest = [each for each in self._latest if each[0].slot not in slots]


def block(cells: int) -> int:
    """Cells rounded up to what attention is given."""
    return -(-cells // 256) * 256


def cuda(seen: Seen) -> object:
    """Split by all cells of the forward; other products up to eight rows."""
    return block(seen.longest), seen.total <= 8


def stream_k(seen: Seen) -> object:
    """As `cuda`; and tiles of rows share the device's blocks, of which there are not enough far."""
    tiles = -(-seen.rows // 8)
    return cuda(seen), min(tiles * block(seen.longest), 2048) // tiles
