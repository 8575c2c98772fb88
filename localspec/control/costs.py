"""What a round costs on this machine: the measured curves, learned and kept.

The target's cost over the rows of one decode is a jagged staircase that differs per machine,
quantization and model. It is held as log-offsets from a prior shape, measured row count by row
count, on top of one common level: a machine that gets busy moves the level, and the stairs, on
which every decision rests, stay as they were. Attention comes on top, for every row by the tokens
that it looks back on, and what a forward takes more because the one before it had another row count:
on a GPU that can be more than all the rest. Drafting costs hang off the same level.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
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
_TABLE_ROWS, _TABLE_KEPT = np.arange(1, 129), 8
"""Row counts whose cost is kept ready, because a round asks for dozens of them, and for how many
measurements: stairs move slowly, and the level, which does not, is no part of it."""

_PADDING_PAYS = 1.03
"""More rows have to be cheaper by this share: beliefs about neighbours differ by their noise."""

_PADDING_COSTS = 1.03
"""Rows are padded to one of `POINTS` where that costs less: few row counts are soon at home anywhere."""

_FIRST_ROW_SECONDS = 0.03
_FIRST_STEP, _READS_A_STEP = 0.35, 5.0
"""Priors of drafting a token, in rows of the target, and of reading one, in drafted tokens."""
_FIRST_LOOK, _FIRST_READ_LOOK = 5e-5, 2e-5
"""Priors of looking back on one token, in rows of the target; a read token looks back cheaper."""
_FIRST_CHANGE = 0.02
"""Prior of a change of rows, in rows of the target: on a CPU it is noise."""
_FIRST_HOST_SECONDS = 0.0005
STEADY = 2
"""From the third forward of a row count on, what its change cost is over."""

_LEVEL = (4.0, 5e-3)
"""Variance and drift. At first nothing is known of this machine; then its speed may change by 7 %
every round."""
_STAIR = (0.09, 3e-5)
"""A stair is 30 % uncertain before it is measured; then it moves 13 times less than the level, which
plain rounds tell apart from it."""
_LOOK = (0.5, 1e-5)
_DRAFT = (0.25, 1e-5)
_CHANGE = (0.25, 1e-4)


class _Staircase:
    """Seconds of one target forward: a level, an offset from `_SHAPE` per row count, attention.

    `changes` are places of what the first and the second forward of a row count take more.
    """

    def __init__(self) -> None:
        self.beliefs = Beliefs()
        self._level = self.beliefs.add(math.log(_FIRST_ROW_SECONDS), *_LEVEL)
        self._look = self.beliefs.add(math.log(_FIRST_LOOK), *_LOOK)
        self.changes = [self.beliefs.add(math.log(_FIRST_CHANGE), *_CHANGE) for _ in range(STEADY)]
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
        return float(self.beliefs.means[self._look])

    def change(self, alike: int) -> float:
        """What a forward takes more, in rows at the level, if `alike` ones came right before it."""
        return math.exp(self.beliefs.means[self.changes[alike]]) if alike < STEADY else 0.0

    def expect_change(self, alike: int, rows: float) -> None:
        """What a change was found to cost, in rows at the level."""
        self.beliefs.means[self.changes[alike]] = math.log(max(rows, _FIRST_CHANGE))

    def measured(self, rows: int, looks: float, alike: int, log_seconds: float) -> float:
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
            (self._look, looks * math.exp(self.look)),
        ]
        if alike < STEADY:
            parts.append((self.changes[alike], self.change(alike)))
        whole = sum(part for _, part in parts)
        slopes = [(self._level, 1.0), *((place, part / whole) for place, part in parts)]
        surprise = log_seconds - self.level - math.log(whole)
        self.beliefs.measured(slopes, surprise)
        return surprise

    def stair(self, rows: int) -> float:
        """What a forward of `rows` rows costs, in forwards of one row at the level."""
        self._tabulate()
        if rows <= len(self._table):
            return self._table[rows - 1]
        return math.exp(float(self.log_stairs(np.array([rows]))[0]))

    def plateau(self, rows: int) -> int:
        """The cheapest row count from `rows` on: a curve may fall, and then rows may be padded."""
        self._tabulate()
        return self._plateaus[rows - 1] if rows <= len(self._plateaus) else rows

    def _tabulate(self) -> None:
        if self._table:
            return
        self._table = np.exp(self.log_stairs(_TABLE_ROWS)).tolist()
        cheapest = len(self._table)
        self._plateaus = []
        for rows in range(len(self._table), 0, -1):
            others = rows not in POINTS and rows < POINTS[-1]
            dearer = self._table[cheapest - 1] / self._table[rows - 1]
            if dearer > (_PADDING_COSTS if others else 1 / _PADDING_PAYS):
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
            "look": [self.look, variance(self._look, self._level)],
            "changes": [[float(means[at]), variance(at, self._level)] for at in self.changes],
            "points": {
                str(rows): [float(means[place]), variance(place, self._level)]
                for rows, place in self.places.items()
            },
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> _Staircase:
        """The level starts uncertain, because machines change overnight."""
        staircase = cls()
        staircase.beliefs = Beliefs()
        staircase.beliefs.add(_finite(data["level"]), *_LEVEL)
        staircase.beliefs.add(*_belief(data["look"]), _LOOK[1])
        first, second = data["changes"]
        for change in (first, second):
            staircase.beliefs.add(*_belief(change), _CHANGE[1])
        for rows, point in data["points"].items():
            staircase.places[int(rows)] = staircase.beliefs.add(*_belief(point), _STAIR[1])
        return staircase


class _DraftCost:
    """One drafter, relative to the level of the target.

    Log costs of drafting a token, of reading one beforehand, of what each of these takes more for
    every token that it looks back on, and of a forward with other rows than the one before.
    """

    def __init__(self, step: float = _FIRST_STEP) -> None:
        self.beliefs = Beliefs()
        self.measured_once = False
        self._costs: list[float] | None = None
        for cost, beliefs in (
            (step, _DRAFT),
            (step / _READS_A_STEP, _DRAFT),
            (_FIRST_LOOK, _LOOK),
            (_FIRST_READ_LOOK, _LOOK),
            (_FIRST_CHANGE, _CHANGE),
        ):
            self.beliefs.add(math.log(cost), *beliefs)

    def expect_change(self, rows: float) -> None:
        """What a change of rows was found to cost, in rows of the target."""
        self.beliefs.means[-1] = math.log(max(rows, _FIRST_CHANGE))
        self._costs = None

    def parts(self, pending: int, depth: float, cells: float, changes: int) -> list[float]:
        """What `draft` costs, in rows of the target: steps, reading, looking back, changes."""
        read = max(pending - 1, 0)
        amounts = (depth, read, depth * cells, read * max(cells - read / 2, 0.0), changes)
        if self._costs is None:
            self._costs = np.exp(self.beliefs.means).tolist()
        return [amount * cost for amount, cost in zip(amounts, self._costs, strict=True)]

    def measured(
        self, pending: int, depth: int, cells: float, changes: int, log_cost: float
    ) -> None:
        """Correct each part by its share in what was expected."""
        parts = self.parts(pending, depth, cells, changes)
        whole = sum(parts)
        slopes = [(place, part / whole) for place, part in enumerate(parts)]
        self.beliefs.measured(slopes, log_cost - math.log(whole))
        self.measured_once, self._costs = True, None

    def to_list(self) -> list[list[float]]:
        means = self.beliefs.means.tolist()
        return [[mean, self.beliefs.variance(place)] for place, mean in enumerate(means)]

    @classmethod
    def from_list(cls, data: Any) -> _DraftCost:
        cost = cls()
        if len(data) != len(cost.beliefs.means):
            raise ValueError("not a cost profile: a drafter has other parts")
        cost.beliefs = Beliefs()
        for belief, (_, drift) in zip(data, (_DRAFT, _DRAFT, _LOOK, _LOOK, _CHANGE), strict=True):
            cost.beliefs.add(*_belief(belief), drift)
        cost.measured_once = True
        return cost


_UNKNOWN = _DraftCost()


class Costs:
    """Seconds of every part of a round. Model lifetime; state only, no clock.

    `looks` are the tokens that the rows of a forward look back on, all rows together; `cells` those
    that a drafting session has before it.
    """

    def __init__(self) -> None:
        self._staircase = _Staircase()
        self._drafters: dict[str, _DraftCost] = {}
        self._host_seconds = _FIRST_HOST_SECONDS
        self.furthest = 0.0
        """The most tokens that a measured row looked back on."""
        self._row_seconds = self._look_seconds = 0.0
        self._refresh()

    # --- what it costs ----------------------------------------------------------------------------

    def target(self, rows: int, looks: float = 0.0) -> float:
        """Seconds of one target forward over `rows` >= 1 rows, as the forwards before it."""
        return self._row_seconds * self._staircase.stair(rows) + looks * self._look_seconds

    def _refresh(self) -> None:
        """A belief about the target has changed: what was worked out from it holds no more."""
        staircase = self._staircase
        self._row_seconds = math.exp(staircase.level)
        self._look_seconds = math.exp(staircase.level + staircase.look)

    @property
    def change_seconds(self) -> float:
        """What it takes more, in all, to go over to forwards with another row count."""
        return self._row_seconds * sum(map(self._staircase.change, range(STEADY)))

    def plateau(self, rows: int) -> int:
        """The cheapest row count of at least `rows`."""
        return self._staircase.plateau(rows)

    @property
    def look_seconds(self) -> float:
        """What one row of the target takes more for each token that it looks back on."""
        return self._look_seconds

    def draft(
        self, name: str, pending: int, depth: float, cells: float = 0.0, changes: int = 0
    ) -> float:
        """Seconds to draft `depth` tokens one after another, reading `pending` tokens first.

        The first forward reads a pending token and gives the first drafted one. `changes` of the
        forwards have other rows than the one before.
        """
        cost = self._drafters.get(name, _UNKNOWN)
        return self._row_seconds * sum(cost.parts(pending, depth, cells, changes))

    @property
    def host_seconds(self) -> float:
        """Everything of a round that is neither target nor drafter."""
        return self._host_seconds

    def measured_rows(self, cells: int = 0) -> dict[int, float]:
        """Seconds by row count, of those that have been measured, behind so many tokens."""
        return {rows: self.target(rows, rows * cells) for rows in sorted(self._staircase.places)}

    @property
    def measured_drafters(self) -> frozenset[str]:
        """Drafters whose cost is no mere guess."""
        return frozenset(name for name, cost in self._drafters.items() if cost.measured_once)

    def expect_draft(self, name: str, step: float) -> None:
        """What drafting a token may cost, in rows of the target; only until it is measured."""
        if name not in self._drafters:
            self._drafters[name] = _DraftCost(step)

    def expect_change(self, alike: int, seconds: float) -> None:
        """What a forward was found to take more that had `alike` ones right before it."""
        self._staircase.expect_change(alike, seconds / self._row_seconds)

    def expect_draft_change(self, name: str, seconds: float) -> None:
        """What a change of rows was found to cost a drafter."""
        if name in self._drafters:
            self._drafters[name].expect_change(seconds / self._row_seconds)

    # --- what was measured ------------------------------------------------------------------------

    def measured(self, rows: int, seconds: float, looks: float = 0.0, alike: int = STEADY) -> float:
        """One target forward, and by how much it surprised: log of measured by expected.

        `alike` forwards right before it had as many rows. Robust: a single outlier moves nothing far.
        """
        if rows < 1 or looks < 0 or alike < 0 or not 0 < seconds < math.inf:
            return 0.0
        surprise = self._staircase.measured(rows, looks, alike, math.log(seconds))
        self.furthest = max(self.furthest, looks / rows)
        self._refresh()
        return surprise

    def measured_draft(  # noqa: PLR0913 — what a draft is made of
        self,
        name: str,
        pending: int,
        depth: int,
        seconds: float,
        cells: float = 0.0,
        changes: int = 0,
    ) -> None:
        """One drafting of `depth` tokens after reading `pending`, or only that."""
        something = depth > 0 or pending > 1
        if not something or depth < 0 or cells < 0 or not 0 < seconds < math.inf:
            return
        if name not in self._drafters:
            self._drafters[name] = _DraftCost()
        cost = self._drafters[name]
        cost.measured(pending, depth, cells, changes, math.log(seconds) - self._staircase.level)

    def measured_host(self, seconds: float) -> None:
        """The rest of one round."""
        if 0 <= seconds < math.inf:
            bounded = min(seconds, 4 * self._host_seconds)  # a stolen time slice is not host work
            self._host_seconds += 0.05 * (bounded - self._host_seconds)

    # --- on disk ----------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """Everything learned, as JSON has it."""
        return {
            "staircase": self._staircase.to_dict(),
            "furthest": self.furthest,
            "drafters": {
                name: cost.to_list() for name, cost in self._drafters.items() if cost.measured_once
            },
            "host_seconds": self._host_seconds,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Costs:
        """What `to_dict` gave.

        Raises:
            ValueError: the data has another shape; measure anew.
        """
        costs = cls()
        try:
            costs._staircase = _Staircase.from_dict(data["staircase"])
            costs._refresh()
            costs.furthest = _finite(data["furthest"])
            costs._drafters = {
                name: _DraftCost.from_list(cost) for name, cost in data["drafters"].items()
            }
            costs._host_seconds = _finite(data["host_seconds"])
        except (KeyError, TypeError, IndexError, AttributeError, OverflowError) as error:
            raise ValueError(f"not a cost profile: {error!r}") from error
        return costs


def _belief(data: Any) -> tuple[float, float]:
    """Mean and variance."""
    mean, variance = map(_finite, data)
    if variance < 0:
        raise ValueError(f"not a cost profile: {variance} is no variance")
    return mean, variance


def _finite(value: Any) -> float:
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"not a cost profile: {number} is not a number")
    return number
