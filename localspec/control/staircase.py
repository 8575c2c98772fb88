"""Seconds of the target's forwards: a level, stairs by rows, attention, changes of rows.

The target's cost over the rows of one decode is a jagged staircase that differs per machine,
quantization and model. It is held as log-offsets from a prior shape, measured row count by row
count, on top of one common level: a machine that gets busy moves the level, and the stairs, on
which every decision rests, stay as they were. Attention comes on top, for every row by the tokens
that it looks back on, and what a forward takes more because the one before it had another row
count: on a GPU that can be more than all the rest.
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
"""Cost relative to one row before anything is measured: a slow CPU, so that it errs to plain."""
_TABLE_KEPT = 8
"""For how many measurements the costs of row counts are kept ready, because a round asks for dozens
of them: stairs move slowly, and the level, which does not, is no part of it."""

_ALIKE = 1.03
"""Row counts whose costs differ by less are as dear: beliefs about neighbours differ by their
noise. Of those that are, one of `POINTS` is taken: few counts, so that forwards soon repeat
them; and rows that add up to no more are as good as paid."""

_FIRST_ROW_SECONDS = 0.03
FIRST_ATTENDED = 5e-5
"""Prior of looking back on one token, in rows of the target."""
FIRST_CHANGE = 0.02
"""Prior of a change of rows, in rows of the target: on a CPU it is noise."""
STEADY = 2
"""From the third forward of a row count on, what its change cost is over."""

_LEVEL = (4.0, 5e-3)
"""Variance and drift. At first nothing is known of this machine; then its speed may change by 7 %
every round."""
_STAIR = (0.09, 3e-5)
"""A stair is 30 % uncertain before it is measured; then it moves 13 times less than the level,
which plain rounds tell apart from it."""
PART = (0.25, 1e-5)
"""Of attention, and of each part of drafting."""
CHANGE = (0.25, 1e-4)


class Staircase:
    """Seconds of one target forward: a level, an offset from `_SHAPE` per row count, attention.

    `changes` are places of what the first and the second forward of a row count take more.
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
        """Log seconds of one row with nothing to look back on, its own offset aside."""
        return float(self.beliefs.means[self._level])

    @property
    def look(self) -> float:
        """Log cost of one row looking back on one token, relative to the level."""
        return float(self.beliefs.means[self._attended])

    def change(self, alike: int) -> float:
        """The extra cost of a forward, in rows at the level, behind `alike` ones."""
        return math.exp(self.beliefs.means[self.changes[alike]]) if alike < STEADY else 0.0

    def expect_change(self, alike: int, rows: float) -> None:
        """The measured cost of a change of row count, in rows at the level."""
        self.beliefs.means[self.changes[alike]] = math.log(max(rows, FIRST_CHANGE))

    def measured(self, rows: int, attended: float, alike: int, log_seconds: float) -> float:
        """Correct all that a forward is made of, each by its share in the uncertainty.

        Returns what was measured less what was expected.
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
        """The cheapest row count from `rows` on: a curve may fall, and then rows may be padded."""
        self._tabulate()
        return self._plateaus[rows - 1] if rows <= len(self._plateaus) else rows

    def flat(self, rows: int) -> int:
        """The most rows up to which each costs next to nothing more than `rows`."""
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
        """Shape and an offset: measured, between those of its neighbours, or none."""
        stairs: Array = np.log(np.interp(rows, *_SHAPE))
        if self.places:
            known = sorted(self.places)
            offsets = [self.beliefs.means[self.places[count]] for count in known]
            stairs += np.interp(rows, known, offsets)
        return stairs

    def to_dict(self) -> dict[str, Any]:
        """Stairs with the variance they would have if the level were known."""
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
        """The level starts uncertain, because machines change overnight."""
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
        ValueError: they are none.
    """
    mean, variance = map(finite, data)
    if variance < 0:
        raise ValueError(f"not a cost profile: {variance} is no variance")
    return mean, variance


def finite(value: Any) -> float:
    """A number on disk.

    Raises:
        ValueError: it is none.
    """
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"not a cost profile: {number} is not a number")
    return number
