"""What a round costs on this machine: the measured curves, learned and kept.

The target's cost over the rows of one decode is a jagged staircase that differs per machine,
quantization and model. It is held as log-offsets from a prior shape, measured row count by row
count, on top of one common level: a machine that gets busy moves the level, and the stairs, on
which every decision rests, stay as they were. One Kalman filter over the level and all offsets
tells the two apart. Drafting costs hang off the same level.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

POINTS = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 16, 24, 32)
"""Row counts worth measuring at load; every other one is interpolated until a round has used it."""

_SHAPE = (
    np.array([*POINTS, 4096], dtype=float),
    np.array([1, 1.7, 2.3, 3, 3.5, 4, 4.5, 5, 5.2, 5.4, 6, 8.5, 11, 1281]),
)
"""Cost relative to one row before anything is measured: a slow CPU, so that it errs to plain."""
_TABLE_ROWS = np.arange(1, 129)
"""Row counts whose cost is kept ready: a round asks for dozens of them."""

_FIRST_ROW_SECONDS = 0.03
_FIRST_STEP, _READS_A_STEP = 0.35, 5.0
_FIRST_HOST_SECONDS = 0.0005
"""Priors of a round's other parts: drafting a token and reading one, in rows of the target."""

_NOISE = 0.01
"""Variance of one log measurement: 10 %. Less would let a single stolen time slice move a stair."""
_LEVEL_VARIANCE, _LEVEL_DRIFT = 4.0, 5e-3
"""At first nothing is known of this machine; then its speed may change by 7 % every round."""
_POINT_VARIANCE, _POINT_DRIFT = 0.09, 1e-6
"""A stair is 30 % uncertain before it is measured; then it moves 70 times less than the level."""
_DRAFT_VARIANCE, _DRAFT_DRIFT = 0.25, 1e-5
_CLIP = 2.0
"""Standard deviations beyond which a measurement says only its direction."""


@dataclass(slots=True)
class _Estimate:
    """A log quantity: its mean, how uncertain it is, and how fast it may move."""

    mean: float
    variance: float
    drift: float

    def correct(self, error: float, total_variance: float) -> None:
        """Take the share of `error` that this uncertainty has in the total."""
        gain = self.variance / total_variance
        self.mean += gain * error
        self.variance = (1 - gain) * self.variance + self.drift

    def as_list(self) -> list[float]:
        return [self.mean, self.variance]


def _draft_estimate(cost: float) -> _Estimate:
    return _Estimate(math.log(cost), _DRAFT_VARIANCE, _DRAFT_DRIFT)


@dataclass(slots=True)
class _DraftCost:
    """One drafter: a drafted token and a token read beforehand, as logs relative to the level."""

    step: _Estimate = field(default_factory=lambda: _draft_estimate(_FIRST_STEP))
    read: _Estimate = field(default_factory=lambda: _draft_estimate(_FIRST_STEP / _READS_A_STEP))
    measured: bool = False


class _Staircase:
    """Log seconds of one target forward: a level, and an offset from `_SHAPE` per row count seen.

    State 0 of the filter is the level; `places` gives each row count its state.
    """

    def __init__(self) -> None:
        self.places: dict[int, int] = {}
        self.mean = np.array([math.log(_FIRST_ROW_SECONDS)])
        self.covariance = np.array([[_LEVEL_VARIANCE]])

    @property
    def level(self) -> float:
        return float(self.mean[0])

    def add(self, rows: int, mean: float, variance: float) -> int:
        """A row count that has not been seen before; returns its place."""
        place = len(self.mean)
        self.places[rows] = place
        self.mean = np.append(self.mean, mean)
        self.covariance = np.pad(self.covariance, (0, 1))
        self.covariance[place, place] = variance
        return place

    def measured(self, rows: int, log_seconds: float) -> None:
        """Correct the level and the offsets, each by its share in the uncertainty."""
        predicted = float(self.log_seconds(np.array([rows]))[0])
        place = self.places.get(rows)
        if place is None:
            shape = math.log(float(np.interp(rows, *_SHAPE)))
            place = self.add(rows, predicted - self.level - shape, _POINT_VARIANCE)
        shares = self.covariance[0] + self.covariance[place]
        total = float(shares[0] + shares[place]) + _NOISE
        self.mean += shares * (_clipped(log_seconds - predicted, total) / total)
        self.covariance -= np.outer(shares, shares) / total
        self.covariance[np.diag_indices_from(self.covariance)] += _POINT_DRIFT
        self.covariance[0, 0] += _LEVEL_DRIFT

    def log_seconds(self, rows: NDArray[np.int64]) -> NDArray[np.float64]:
        """Level, shape, and an offset: measured, between those of its neighbours, or none."""
        log_seconds: NDArray[np.float64] = self.mean[0] + np.log(np.interp(rows, *_SHAPE))
        if self.places:
            known = sorted(self.places)
            offsets = [self.mean[self.places[row]] for row in known]
            log_seconds += np.interp(rows, known, offsets)
        return log_seconds

    def points(self) -> dict[int, tuple[float, float]]:
        """Offset and its variance, if the level were known, by row count."""
        covariance = self.covariance
        own = np.diag(covariance) - covariance[0] ** 2 / covariance[0, 0]
        return {
            rows: (float(self.mean[place]), max(float(own[place]), _POINT_DRIFT))
            for rows, place in self.places.items()
        }


class Costs:
    """Seconds of every part of a round. Model lifetime; state only, no clock."""

    def __init__(self) -> None:
        self._staircase = _Staircase()
        self._drafters: dict[str, _DraftCost] = {}
        self._host_seconds = _FIRST_HOST_SECONDS
        self._table: list[float] | None = None

    # --- what it costs ----------------------------------------------------------------------------

    def target(self, rows: int) -> float:
        """Seconds of one target forward over `rows` >= 1 rows."""
        if self._table is None:
            seconds = np.exp(self._staircase.log_seconds(_TABLE_ROWS))
            # Fewer rows never cost more: a stair that leads down was measured in a bad moment, and
            # would keep itself from being measured again.
            self._table = np.minimum.accumulate(seconds[::-1])[::-1].tolist()
        if rows <= len(self._table):
            return self._table[rows - 1]
        return math.exp(float(self._staircase.log_seconds(np.array([rows]))[0]))

    def draft(self, name: str, pending: int, depth: float) -> float:
        """Seconds to draft `depth` tokens one after another, reading `pending` tokens first.

        The first forward reads a pending token and gives the first drafted one.
        """
        cost = self._drafters.get(name) or _DraftCost()
        units = depth * math.exp(cost.step.mean) + max(pending - 1, 0) * math.exp(cost.read.mean)
        return math.exp(self._staircase.level) * units

    @property
    def host_seconds(self) -> float:
        """Everything of a round that is neither target nor drafter."""
        return self._host_seconds

    def measured_rows(self) -> dict[int, float]:
        """Seconds by row count, of those that have been measured."""
        return {rows: self.target(rows) for rows in sorted(self._staircase.places)}

    @property
    def measured_drafters(self) -> frozenset[str]:
        """Drafters whose cost is no mere guess."""
        return frozenset(name for name, cost in self._drafters.items() if cost.measured)

    def expect_draft(self, name: str, step: float) -> None:
        """What drafting a token may cost, in rows of the target; only until it is measured."""
        if name not in self._drafters:
            read = step / _READS_A_STEP
            self._drafters[name] = _DraftCost(_draft_estimate(step), _draft_estimate(read))

    # --- what was measured ------------------------------------------------------------------------

    def measured(self, rows: int, seconds: float) -> None:
        """One target forward. Robust: a single outlier moves nothing far."""
        if rows < 1 or not 0 < seconds < math.inf:
            return
        self._staircase.measured(rows, math.log(seconds))
        self._table = None

    def measured_draft(self, name: str, pending: int, depth: int, seconds: float) -> None:
        """One drafting of `depth` tokens after reading `pending`; its larger part learns."""
        if depth < 1 or not 0 < seconds < math.inf:
            return
        cost = self._drafters.setdefault(name, _DraftCost())
        cost.measured = True
        stepping = self.draft(name, 1, depth)
        reading = self.draft(name, pending, 0)
        learns, mine, other = (
            (cost.read, reading, stepping) if reading > stepping else (cost.step, stepping, reading)
        )
        observed = max(seconds - other, mine / 10)
        total = learns.variance + _NOISE
        learns.correct(_clipped(math.log(observed / mine), total), total)

    def measured_host(self, seconds: float) -> None:
        """The rest of one round."""
        if 0 <= seconds < math.inf:
            bounded = min(seconds, 4 * self._host_seconds)  # a stolen time slice is not host work
            self._host_seconds += 0.05 * (bounded - self._host_seconds)

    # --- on disk ----------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """Everything learned, as JSON has it."""
        return {
            "level": self._staircase.level,
            "points": {str(rows): point for rows, point in self._staircase.points().items()},
            "drafters": {
                name: {"step": cost.step.as_list(), "read": cost.read.as_list()}
                for name, cost in self._drafters.items()
                if cost.measured
            },
            "host_seconds": self._host_seconds,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Costs:
        """What `to_dict` gave; the level starts uncertain, because machines change overnight.

        Raises:
            ValueError: the data has another shape; measure anew.
        """
        costs = cls()
        try:
            costs._staircase.mean[0] = _finite(data["level"])
            for rows, (mean, variance) in data["points"].items():
                costs._staircase.add(int(rows), _finite(mean), _finite(variance))
            for name, parts in data["drafters"].items():
                step, read = (
                    _Estimate(_finite(parts[key][0]), _finite(parts[key][1]), _DRAFT_DRIFT)
                    for key in ("step", "read")
                )
                costs._drafters[name] = _DraftCost(step, read, measured=True)
            costs._host_seconds = _finite(data["host_seconds"])
        except (KeyError, TypeError, IndexError, AttributeError) as error:
            raise ValueError(f"not a cost profile: {error!r}") from error
        return costs


def _clipped(error: float, variance: float) -> float:
    limit = _CLIP * math.sqrt(variance)
    return max(-limit, min(limit, error))


def _finite(value: Any) -> float:
    number = float(value)
    if not math.isfinite(number):
        raise ValueError(f"not a cost profile: {number} is not a number")
    return number
