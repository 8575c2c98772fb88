"""The cost of a batch that may be several forwards, and the choice of a round's cost. Pure.

Slots with memories of their own share a forward only with as many rows of each (`forwards`). What a
draft costs then depends on what the others draft beside it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from localspec.control.batch_cost import BatchCost, ExpectedSaving, change_of_rows, with_savings
from localspec.control.costs import Costs
from localspec.control.forwards import Layout, forwards


@dataclass(frozen=True, slots=True, kw_only=True)
class SplitCost(BatchCost):
    """The cost of one round of several sessions that cannot share every forward.

    Args:
        layout: Which rows one forward can hold.
        beside: Rows of each other session, as seen by one of them.
    """

    layout: Literal["streams", "apart"]
    beside: tuple[int, ...] = ()
    free: bool = field(default=True, init=False)

    @property
    def whole(self) -> bool:
        """False: a decode may be several forwards."""
        return False

    def seen_by(self, place: int, rows: Sequence[int]) -> SplitCost:
        """By one of the sessions that have so many rows so far."""
        return replace(self, beside=(*rows[:place], *rows[place + 1 :]), _known={})

    def together(self, rows: Sequence[int], attended: float) -> float:
        """A decode in which each session needs so many rows, and the host's work with them."""
        own = attended * self.costs.attended_seconds + sum(rows) * self.costs.host_row_seconds
        return self._cheaper(rows) + own

    def even(self, rows: Sequence[int]) -> bool:
        """Whether it is cheaper that all have as many rows as the one with the most."""
        return self._even(rows) < self._apart(rows)

    def plain(self, sessions: int, attended: float) -> float:
        """Seconds of a decode without drafts."""
        rows = dict.fromkeys(range(sessions), self.multiple)
        made = sum(map(self.costs.target, forwards(rows, self.layout, self.costs.snapshots)))
        return made + attended * self.costs.attended_seconds

    def _found(self, rows: int) -> tuple[float, int]:
        return self._cheaper((rows - sum(self.beside), *self.beside)), rows

    def _cheaper(self, rows: Sequence[int]) -> float:
        return min(self._apart(rows), self._even(rows))

    def _apart(self, rows: Sequence[int]) -> float:
        """Seconds of the forwards that are made of neighbours with so many rows each."""
        made = forwards(dict(enumerate(rows)), self.layout, self.costs.snapshots)
        changes = sum(made[place] != made[place - 1] for place in range(len(made)))
        return sum(map(self.costs.target, made)) + changes * change_of_rows(self.costs)

    def _even(self, rows: Sequence[int]) -> float:
        """Seconds of the one forward that there is where all have as many."""
        whole = len(rows) * max(rows)
        if self.layout != "streams" or self.costs.copy_seconds is not None or whole > self.most:
            return math.inf  # a state would have read the padding
        return self.costs.target(whole) + change_of_rows(self.costs) * (whole != self.plain_rows)

    def _beside(self, rows: int) -> tuple[float, float]:
        """Seconds of so many rows more in one session: a forward of their own, in every price."""
        return self.costs.target(rows), 0.0


def batch_cost_of(  # noqa: PLR0913, PLR0917 — what a round begins with
    costs: Costs,
    rows: Sequence[int],
    before: int,
    savings: Sequence[ExpectedSaving],
    multiple: int,
    layout: Layout = "shared",
) -> BatchCost:
    """The cost of a round that has these `rows` without drafts, after a forward of `before`.

    `savings` are those of each session. Where changes cost next to nothing, all rounds have the
    same costs.
    """
    plain_rows = sum(rows)
    if layout != "shared" and len(rows) > 1:
        return SplitCost(costs, plain_rows, multiple=multiple, layout=layout).seen_by(0, rows)
    if not change_of_rows(costs):
        return BatchCost(costs, plain_rows, multiple=multiple, free=True)
    return with_savings(costs, plain_rows, before, savings, multiple)
