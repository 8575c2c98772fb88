"""Prices where a decode may be several forwards, and which prices a round has. Pure.

Slots with memories of their own share a forward only with as many rows of each (`forwards`). What a
draft costs then depends on what the others draft beside it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from localspec.control.costs import Costs
from localspec.control.forwards import Layout, forwards
from localspec.control.tariff import Hope, Tariff, change_of_rows, with_hopes


@dataclass(frozen=True, slots=True, kw_only=True)
class Split(Tariff):
    """Prices of one round of several sessions that cannot share every forward.

    Args:
        layout: Which rows one forward can hold.
        beside: Rows of each other session, as seen by one of them.
    """

    layout: Literal["streams", "apart"]
    beside: tuple[int, ...] = ()
    free: bool = field(default=True, init=False)

    @property
    def whole(self) -> bool:
        """Never for sure."""
        return False

    def seen_by(self, place: int, rows: Sequence[int]) -> Split:
        """By one of the sessions that have so many rows so far."""
        return replace(self, beside=(*rows[:place], *rows[place + 1 :]), _known={})

    def together(self, rows: Sequence[int], looks: float) -> float:
        """A decode in which each session needs so many rows, and the host's work with them."""
        own = looks * self.costs.look_seconds + sum(rows) * self.costs.host_row_seconds
        return self._cheaper(rows) + own

    def even(self, rows: Sequence[int]) -> bool:
        """Whether it is cheaper that all have as many rows as the one with the most."""
        return self._even(rows) < self._apart(rows)

    def plain(self, sessions: int, looks: float) -> float:
        """Seconds of a decode without drafts."""
        rows = dict.fromkeys(range(sessions), self.multiple)
        made = sum(map(self.costs.target, forwards(rows, self.layout)))
        return made + looks * self.costs.look_seconds

    def _found(self, rows: int) -> tuple[float, int]:
        return self._cheaper((rows - sum(self.beside), *self.beside)), rows

    def _cheaper(self, rows: Sequence[int]) -> float:
        return min(self._apart(rows), self._even(rows))

    def _apart(self, rows: Sequence[int]) -> float:
        """Seconds of the forwards that are made of neighbours with so many rows each."""
        made = forwards(dict(enumerate(rows)), self.layout)
        changes = sum(made[place] != made[place - 1] for place in range(len(made)))
        return sum(map(self.costs.target, made)) + changes * change_of_rows(self.costs)

    def _even(self, rows: Sequence[int]) -> float:
        """Seconds of the one forward that there is where all have as many."""
        whole = len(rows) * max(rows)
        if self.layout != "streams" or self.costs.copy_seconds is not None or whole > self.most:
            return math.inf  # a state would have read the padding
        return self.costs.target(whole) + change_of_rows(self.costs) * (whole != self.home)

    def _beside(self, rows: int) -> tuple[float, float]:
        """Seconds of so many rows more in one session: a forward of their own, in every price."""
        return self.costs.target(rows), 0.0


def of_round(  # noqa: PLR0913, PLR0917 — what a round begins with
    costs: Costs,
    rows: Sequence[int],
    before: int,
    hopes: Sequence[Hope],
    multiple: int,
    layout: Layout = "shared",
) -> Tariff:
    """The prices of a round that has these `rows` without drafts, after a forward of `before`.

    `hopes` are those of each session. Where changes cost next to nothing, all rounds have the same
    prices.
    """
    home = sum(rows)
    if layout != "shared" and len(rows) > 1:
        return Split(costs, home, multiple=multiple, layout=layout).seen_by(0, rows)
    if not change_of_rows(costs):
        return Tariff(costs, home, multiple=multiple, free=True)
    return with_hopes(costs, home, before, hopes, multiple)
