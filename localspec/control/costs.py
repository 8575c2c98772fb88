"""The costs of a round on this machine: measured curves, learned and kept.

The target's forwards have a staircase of their own (`staircase`); the costs of drafting are
relative to the same level, so that a machine that gets busy makes all of them dearer at once.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from localspec.control.kalman import Beliefs, Slope
from localspec.control.memory import RECENT, moved
from localspec.control.staircase import (
    CHANGE,
    FIRST_ATTENDED,
    FIRST_CHANGE,
    PART,
    POINTS,
    STEADY,
    Staircase,
    belief,
    finite,
)

__all__ = ["POINTS", "STEADY", "Costs"]

_FIRST_STEP, _READS_A_STEP = 0.35, 5.0
"""Priors: the cost of drafting a token, in one-row forwards of the target, and the number of tokens
that are read for as much."""
_FIRST_HOST_SECONDS = 0.0005


class _DraftCost:
    """The costs of one drafter, relative to the level of the target, as logarithms.

    They are the costs of drafting a token, of reading one beforehand, of each token that either of
    these looks back on, and of a change of rows from one forward to the next.
    """

    def __init__(self, step: float = _FIRST_STEP) -> None:
        self.beliefs = Beliefs()
        self.measured_once = False
        self._costs: list[float] | None = None
        for cost, beliefs in (
            (step, PART),
            (step / _READS_A_STEP, PART),
            (FIRST_ATTENDED, PART),
            (FIRST_ATTENDED, PART),
            (FIRST_CHANGE, CHANGE),
        ):
            self.beliefs.add(math.log(cost), *beliefs)

    def expect_change(self, rows: float) -> None:
        """Set the measured cost of a change of rows, in one-row forwards of the target."""
        self.beliefs.means[-1] = math.log(max(rows, FIRST_CHANGE))
        self._costs = None

    def parts(self, pending: int, depth: float, cells: float, changes: int) -> list[float]:
        """The parts of `Costs.draft`, in one-row forwards of the target.

        Steps, reading, the attention of steps and of reading, changes of rows.
        """
        read = max(pending - 1, 0)
        if self._costs is None:
            self._costs = np.exp(self.beliefs.means).tolist()
        step, token, look, look_reading, change = self._costs
        return [
            depth * step,
            read * token,
            depth * cells * look,
            read * max(cells - read / 2, 0.0) * look_reading,
            changes * change,
        ]

    def measured(
        self, pending: int, depth: int, cells: float, changes: int, log_cost: float
    ) -> None:
        """Correct each part by its share of the expected cost."""
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
        for kept, (_, drift) in zip(data, (PART, PART, PART, PART, CHANGE), strict=True):
            cost.beliefs.add(*belief(kept), drift)
        cost.measured_once = True
        return cost


class Costs:
    """Seconds of every part of a round. Model lifetime; state only, no clock.

    `attended` are the tokens that the rows of a forward look back on, all rows together; `cells`
    are the tokens before the drafts of the drafting sessions.
    """

    def __init__(self) -> None:
        self._staircase = Staircase()
        self._drafters: dict[str, _DraftCost] = {}
        self._unknown = _DraftCost()
        self._host_seconds = _FIRST_HOST_SECONDS
        self._host_rows = Slope(RECENT)
        self.copy_seconds: float | None = None
        """Seconds to copy a state, or to restore it; None where memory is cells."""
        self.snapshots = 0
        """Tokens that the target can take back without a copy of its state. Not kept on disk."""
        self.furthest = 0.0
        """The most tokens that a measured row looked back on."""
        self._row_seconds = self._attended_seconds = self._change_seconds = 0.0
        self._refresh()

    # --- what it costs ----------------------------------------------------------------------------

    def target(self, rows: int, attended: float = 0.0) -> float:
        """Seconds of one target forward over `rows` >= 1 rows, behind forwards of as many rows."""
        return self._row_seconds * self._staircase.stair(rows) + attended * self._attended_seconds

    def _refresh(self) -> None:
        """Recompute the values derived from beliefs about the target, which have changed."""
        staircase = self._staircase
        self._row_seconds = math.exp(staircase.level)
        self._attended_seconds = math.exp(staircase.level + staircase.look)
        self._change_seconds = self._row_seconds * sum(map(staircase.change, range(STEADY)))

    @property
    def change_seconds(self) -> float:
        """Seconds that a change of rows adds, over all forwards until they are steady again."""
        return self._change_seconds

    def plateau(self, rows: int) -> int:
        """The cheapest row count of at least `rows`."""
        return self._staircase.plateau(rows)

    def flat(self, rows: int) -> int:
        """The most rows that cost next to nothing more than `rows`."""
        return self._staircase.flat(rows)

    @property
    def attended_seconds(self) -> float:
        """Seconds that each token looked back on adds to one row of the target."""
        return self._attended_seconds

    def draft(
        self, name: str, pending: int, depth: float, cells: float = 0.0, changes: int = 0
    ) -> float:
        """Seconds to draft `depth` tokens one after another, reading `pending` tokens first.

        The forward that reads the last pending token gives the first drafted one. `changes` of the
        forwards have another row count than the one before.
        """
        cost = self._drafters.get(name, self._unknown)
        return self._row_seconds * sum(cost.parts(pending, depth, cells, changes))

    @property
    def host_seconds(self) -> float:
        """Seconds of the host's work in a round without drafts."""
        return self._host_seconds

    @property
    def host_row_seconds(self) -> float:
        """Seconds of the host's work that each row of a draft adds, for deciding and verifying.

        It is the slope of that work over the rows of rounds with drafts. The cost of having any
        draft at all is no part of it, because more rows do not raise that cost.
        """
        return self._host_rows.value

    def measured_rows(self, cells: int = 0) -> dict[int, float]:
        """Seconds of a forward by row count, of measured row counts, behind `cells` tokens."""
        return {rows: self.target(rows, rows * cells) for rows in sorted(self._staircase.places)}

    @property
    def measured_drafters(self) -> frozenset[str]:
        """Drafters whose cost was measured at least once."""
        return frozenset(name for name, cost in self._drafters.items() if cost.measured_once)

    def expect_draft(self, name: str, step: float) -> None:
        """Set a prior cost of drafting a token, in one-row forwards, until it is measured."""
        if name not in self._drafters:
            self._drafters[name] = _DraftCost(step)

    def expect_change(self, alike: int, seconds: float) -> None:
        """Set the measured seconds added to a forward right behind `alike` ones of as many rows."""
        self._staircase.expect_change(alike, seconds / self._row_seconds)
        self._refresh()

    def expect_draft_change(self, name: str, seconds: float) -> None:
        """Set the measured seconds of a change of rows for a drafter."""
        if name in self._drafters:
            self._drafters[name].expect_change(seconds / self._row_seconds)

    # --- what was measured ------------------------------------------------------------------------

    def measured(
        self, rows: int, seconds: float, attended: float = 0.0, alike: int = STEADY
    ) -> float:
        """Learn from one target forward; returns the log of measured over expected seconds.

        `alike` forwards right before it had as many rows. Robust: a single outlier moves
        nothing far.
        """
        if rows < 1 or attended < 0 or alike < 0 or not 0 < seconds < math.inf:
            return 0.0
        surprise = self._staircase.measured(rows, attended, alike, math.log(seconds))
        self.furthest = max(self.furthest, attended / rows)
        self._refresh()
        return surprise

    def measured_draft(  # noqa: PLR0913, PLR0917 - what a draft is made of
        self,
        name: str,
        pending: int,
        depth: int,
        seconds: float,
        cells: float = 0.0,
        changes: int = 0,
    ) -> None:
        """Learn from drafting `depth` tokens after reading `pending`; depth 0 is only reading."""
        something = depth > 0 or pending > 1
        if not something or depth < 0 or cells < 0 or not 0 < seconds < math.inf:
            return
        if name not in self._drafters:
            self._drafters[name] = _DraftCost()
        cost = self._drafters[name]
        cost.measured(pending, depth, cells, changes, math.log(seconds) - self._staircase.level)

    def measured_host(self, seconds: float, more_rows: int = 0) -> None:
        """Learn the host's time of one round, in which drafts added `more_rows` rows."""
        if not 0 <= seconds < math.inf:
            return
        bounded = 4 * self._host_seconds  # a stolen time slice is not host work
        if not more_rows:
            self._host_seconds = moved(self._host_seconds, min(seconds, bounded), RECENT)
            return
        bounded += 2 * more_rows * self.host_row_seconds
        self._host_rows.measured(more_rows, min(seconds, bounded))

    def measured_copy(self, seconds: float) -> None:
        """Learn the time of copying a state, or of restoring it."""
        if 0 <= seconds < math.inf:
            known = seconds if self.copy_seconds is None else self.copy_seconds
            self.copy_seconds = moved(known, min(seconds, 4 * known), RECENT)

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
            "host_drafts": self._host_rows.to_list(),
            "copy_seconds": self.copy_seconds,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Costs:
        """Costs from the mapping that `to_dict` gave.

        Raises:
            ValueError: the data has another shape; measure anew.
        """
        costs = cls()
        try:
            costs._staircase = Staircase.from_dict(data["staircase"])
            costs._refresh()
            costs.furthest = finite(data["furthest"])
            costs._drafters = {
                name: _DraftCost.from_list(cost) for name, cost in data["drafters"].items()
            }
            costs._host_seconds = finite(data["host_seconds"])
            rows = list(map(finite, data["host_drafts"]))
            costs._host_rows = Slope.from_list(RECENT, rows)
            if data["copy_seconds"] is not None:
                costs.copy_seconds = finite(data["copy_seconds"])
        except (KeyError, TypeError, IndexError, AttributeError, OverflowError) as error:
            raise ValueError(f"not a cost profile: {error!r}") from error
        return costs
