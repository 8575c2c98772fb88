"""Seconds of the target's forwards: a level, stairs by rows, attention, changes of rows.

The target's cost over the rows of one decode is a jagged staircase that differs per machine,
quantization and model. It is held as log-offsets from a prior shape, measured row count by row
count, on top of one common level: a machine that gets busy moves the level, and the stairs, on
which every decision rests, stay as they were. Two costs are added: attention, for every row by the
tokens that it looks back on, and a change of rows, where the forward before had another row count.
On a GPU a change can cost more than all the rest.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import takewhile
from typing import Any

import numpy as np
from numpy.typing import NDArray

from localspec.control.kalman import Array, Beliefs

POINTS = (1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 12, 16, 24, 32)
"""Row counts worth measuring at load; every other one is interpolated until a round has used it."""

_SHAPE = (
    np.array([*POINTS, 4096], dtype=float),
    np.array([1, 1.7, 2.3, 3, 3.5, 4, 4.5, 5, 5.1, 5.2, 5.4, 6, 8.5, 11, 1281]),
)
"""Prior cost relative to one row: that of a slow CPU, so that errors favour plain decoding."""
_TABLE_KEPT = 8
"""Measurements for which the table of stairs is kept, because a round reads dozens of its entries.
Stairs move slowly; the level, which does not, is no part of the table."""

_ALIKE = 1.03
"""Costs of row counts that differ by a smaller factor are taken as equal, because beliefs about
neighbours differ by noise. Of equally dear counts one of `POINTS` is decoded: with few counts,
forwards soon repeat them. Further rows that cost no more than that are as good as paid."""

_FIRST_ROW_SECONDS = 0.03
FIRST_ATTENDED = 5e-5
"""Prior cost of looking back on one token, in one-row forwards."""
FIRST_CHANGE = 0.02
"""Prior cost of a change of rows, in one-row forwards: on a CPU it is noise."""
STEADY = 2
"""The forwards that a change of rows makes longer; from the third one on it costs nothing."""

_LEVEL = (4.0, 5e-3)
"""Variance and drift of the level. At first nothing is known of this machine; then its speed may
change by 7 % every round."""
_STAIR = (0.09, 3e-5)
"""Variance and drift of a stair: 30 % uncertain before it is measured; then it moves 13 times less
than the level, which plain rounds tell apart from it."""
PART = (0.25, 1e-5)
"""Variance and drift of attention, and of each part of drafting."""
CHANGE = (0.25, 1e-4)


class Staircase:
    """Seconds of one target forward: a level, an offset from `_SHAPE` per row count, attention.

    `changes` are the places of what a change of rows adds to the first and to the second forward.
    """

    def __init__(self) -> None:
        self.beliefs = Beliefs()
        self._level = self.beliefs.add(math.log(_FIRST_ROW_SECONDS), *_LEVEL)
        self._attended = self.beliefs.add(math.log(FIRST_ATTENDED), *PART)
        self.changes = [self.beliefs.add(math.log(FIRST_CHANGE), *CHANGE) for _ in range(STEADY)]
        self.places: dict[int, int] = {}
        self._table: list[float] = []
        self._plateaus: list[int] = []
        self._table_age = 0

    @property
    def level(self) -> float:
        """Log seconds of a one-row forward without attention and without its own offset."""
        return float(self.beliefs.means[self._level])

    @property
    def look(self) -> float:
        """Log cost of one row looking back on one token, relative to the level."""
        return float(self.beliefs.means[self._attended])

    def change(self, alike: int) -> float:
        """The added cost of a forward behind `alike` ones of as many rows, in rows at the level."""
        return math.exp(self.beliefs.means[self.changes[alike]]) if alike < STEADY else 0.0

    def expect_change(self, alike: int, rows: float) -> None:
        """Set the measured cost of a change of rows, in rows at the level."""
        self.beliefs.means[self.changes[alike]] = math.log(max(rows, FIRST_CHANGE))

    def measured(self, rows: int, attended: float, alike: int, log_seconds: float) -> float:
        """Learn from a forward: correct each of its parts by its share and its uncertainty.

        Returns what was measured less what was expected, in log seconds.
        """
        shape = math.log(float(np.interp(rows, *_SHAPE)))
        place = self.places.get(rows)
        self._table_age += 1
        if place is None or self._table_age >= _TABLE_KEPT:
            self._table, self._table_age = [], 0
        if place is None:
            offset = float(self.log_stairs(np.array([rows]))[0]) - shape
            place = self.places[rows] = self.beliefs.add(offset, *_STAIR)
        parts = [
            (place, math.exp(shape + float(self.beliefs.means[place]))),
            (self._attended, attended * math.exp(self.look)),
        ]
        if alike < STEADY:
            parts.append((self.changes[alike], self.change(alike)))
        whole = sum(part for _, part in parts)
        slopes = [(self._level, 1.0), *((place, part / whole) for place, part in parts)]
        surprise = log_seconds - self.level - math.log(whole)
        self.beliefs.measured(slopes, surprise)
        return surprise

    def stair(self, rows: int) -> float:
        """The cost of a forward of `rows` rows, in forwards of one row at the level."""
        self._tabulate()
        if rows <= len(self._table):
            return self._table[rows - 1]
        return math.exp(float(self.log_stairs(np.array([rows]))[0]))

    def plateau(self, rows: int) -> int:
        """The cheapest row count of at least `rows`: where more rows cost less, rows are padded."""
        self._tabulate()
        return self._plateaus[rows - 1] if rows <= len(self._plateaus) else rows

    def flat(self, rows: int) -> int:
        """The most rows up to which every count costs next to nothing more than `rows`."""
        self._tabulate()
        if rows > len(self._table):
            return rows
        most = _ALIKE * self._table[rows - 1]
        rest = takewhile(lambda cost: cost <= most, self._table[rows:])
        return rows + sum(1 for _ in rest)

    def _tabulate(self) -> None:
        if self._table:
            return
        self._table = np.exp(self.log_stairs(np.arange(1, 129))).tolist()
        cheapest = len(self._table)
        self._plateaus = []
        for rows in range(len(self._table), 0, -1):
            others = rows not in POINTS and rows < POINTS[-1]
            dearer = self._table[cheapest - 1] / self._table[rows - 1]
            if dearer > (_ALIKE if others else 1 / _ALIKE):
                cheapest = rows
            self._plateaus.append(cheapest)
        self._plateaus.reverse()

    def log_stairs(self, rows: NDArray[np.int64]) -> Array:
        """Log costs of row counts: the shape and an offset, interpolated between measured ones."""
        stairs: Array = np.log(np.interp(rows, *_SHAPE))
        if self.places:
            known = sorted(self.places)
            offsets = [self.beliefs.means[self.places[count]] for count in known]
            stairs += np.interp(rows, known, offsets)
        return stairs

    def to_dict(self) -> dict[str, Any]:
        """Everything learned; each variance is what it would be if the level were known."""
        means, variance = self.beliefs.means, self.beliefs.variance
        return {
            "level": self.level,
            "look": [self.look, variance(self._attended, self._level)],
            "changes": [[float(means[at]), variance(at, self._level)] for at in self.changes],
            "points": {
                str(rows): [float(means[place]), variance(place, self._level)]
                for rows, place in self.places.items()
            },
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Staircase:
        """Restore what `to_dict` returned, with an uncertain level: machines change overnight."""
        staircase = cls()
        staircase.beliefs = Beliefs()
        staircase.beliefs.add(finite(data["level"]), *_LEVEL)
        staircase.beliefs.add(*belief(data["look"]), PART[1])
        first, second = data["changes"]
        for change in (first, second):
            staircase.beliefs.add(*belief(change), CHANGE[1])
        for rows, point in data["points"].items():
            staircase.places[int(rows)] = staircase.beliefs.add(*belief(point), _STAIR[1])
        return staircase


def belief(data: Any) -> tuple[float, float]:
    """Mean and variance of a belief on disk.

    Raises:
        ValueError: the data is no belief.
    """
    mean, variance = map(finite, data)
    if variance < 0:
        raise ValueError(f"not a cost profile: {variance} is no variance")
    return mean, variance


def finite(value: Any) -> float:
    """A number on disk.

    Raises:
        ValueError: it is no finite number.
    """
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"not a cost profile: {number} is not a number")
    return number
