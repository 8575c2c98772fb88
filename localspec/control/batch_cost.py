"""The cost of one round's batch by its rows, given the row count of the forward before. Pure.

A forward with another row count than the one before may cost more. A round without drafts has its
`plain_rows`. Behind a round with more rows, a round without drafts either changes back to these or
carries rows that it does not need. Recent rounds show how much time drafts save. Where that is more
than the added rows cost, a change of rows is an investment that is repaid in all rounds for which
drafting may go on. Where changes are free, none of this matters.

Slots with memories of their own share a forward only with equally many rows of each (`forwards`).
The cost of one session's draft then depends on the drafts of the others (`SplitCost`).
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal, NamedTuple

from localspec.control.costs import Costs
from localspec.control.forwards import Layout, forwards
from localspec.control.round import LEVELS

CAUTION = 1.6  # doubled 1.00 (0.96), halved 0.97 (0.90)
"""The factor by which expected savings must exceed a cost paid at once, which is certain."""
_CHANGES_MATTER, _GRAINS = 0.06, 4
"""The share of a one-row forward below which changes of rows count as free, and the grains of a
change to which `repays` is rounded, so that rounds that differ by little have the same prices."""
_MOST_ROUNDS = 16  # doubled 1.00 (0.99), halved 1.00 (1.00)
"""The most rounds for which a text is expected to go on as it does now."""


class ExpectedSaving(NamedTuple):
    """Seconds that drafts save a session in a round, by their most nodes (`LEVELS`).

    `rounds` is the number of rounds for which that may go on.
    """

    seconds: Sequence[float]
    rounds: float


class RollbackCost(NamedTuple):
    """Seconds that a draft may add to its forward to restore a state: expected, and at most."""

    seconds: float = 0.0
    most: float = 0.0


@dataclass(frozen=True)
class BatchCost:
    """The cost of one round's batch by its rows.

    Args:
        costs: The machine's curves.
        plain_rows: Rows of the decode without any drafts.
        before: Rows of the forward before; 0 if there was none.
        repays: Seconds that drafts in rows for so many nodes (`LEVELS`) save over the rounds to
            come, less the cost of these rows. It may be negative; either way it is at most the cost
            of a change. Empty where nothing is known of drafts.
        multiple: Every session's rows are padded to a multiple of this.
        most: Rows that a decode may have.
        free: Whether changes of rows count as free.
    """

    costs: Costs
    plain_rows: int
    before: int = 0
    repays: tuple[float, ...] = ()
    multiple: int = 1
    most: int = 128
    free: bool = False

    _known: dict[int, tuple[float, int]] = field(default_factory=dict, compare=False, repr=False)

    @property
    def whole(self) -> bool:
        """Whether a decode is one forward, whichever sessions its rows belong to."""
        return True

    @property
    def beside(self) -> tuple[int, ...]:
        """Rows of each other session, where the cost of one session depends on them."""
        return ()

    @cached_property
    def steady(self) -> BatchCost:
        """The same costs as if changes of rows were free."""
        return self if self.free else replace(self, free=True, _known={})

    def seen_by(self, place: int, rows: Sequence[int]) -> BatchCost:
        """The costs for the session at `place`, where the sessions have these `rows` so far."""
        del place, rows
        return self

    def together(self, rows: Sequence[int], attended: float) -> float:
        """Seconds of a decode in which each session needs these rows, with the host's work."""
        return self.seconds_with_host(max(sum(rows), 1), attended)

    def even(self, rows: Sequence[int]) -> bool:
        """Whether it is cheaper to give all sessions as many rows as the one with the most."""
        del rows
        return False

    def plain(self, sessions: int, attended: float) -> float:
        """Seconds of a decode without drafts."""
        return self.costs.target(max(1, self.multiple * sessions), attended)

    def extra_rows(self, nodes: int) -> int:
        """Rows that a draft of `nodes` adds to a session's own, padding included."""
        return -(-(1 + nodes) // self.multiple) * self.multiple - self.multiple

    def padded(self, rows: int) -> int:
        """The number of rows to decode where `rows` are needed: sometimes more are cheaper."""
        return self._cheapest(rows)[1]

    def paid(self, rows: int) -> int:
        """The most rows to decode for next to nothing more, where `rows` are needed."""
        most = self.padded(rows)
        steady = self.free and self.multiple == 1
        return max(most, min(self.costs.flat(most), self.most)) if steady else most

    def seconds(self, rows: int, attended: float = 0.0) -> float:
        """Seconds of a decode that needs `rows`, with the later costs of its change of rows."""
        return self._cheapest(rows)[0] + attended * self.costs.attended_seconds

    def seconds_with_host(self, rows: int, attended: float) -> float:
        """The same with the host's work on these rows."""
        return self.seconds(rows, attended) + rows * self.costs.host_row_seconds

    def _cheapest(self, rows: int) -> tuple[float, int]:
        """Seconds of the cheapest forward that holds `rows`, and its rows."""
        found = self._known.get(rows)
        if found is None:
            found = self._known[rows] = self._found(rows)
        return found

    def _found(self, rows: int) -> tuple[float, int]:
        if self.multiple > 1:  # all rows of a forward belong to its class: none are added
            return self.costs.target(rows) + self.changing(rows), rows
        wider = min(self.costs.plateau(rows), max(self.most, rows))
        if self.free:
            return self.costs.target(wider), wider
        usual = (count for count in (self.plain_rows, self.before) if rows <= count <= self.most)
        return min(
            (self.costs.target(count) + self.changing(count), count)
            for count in {rows, wider, *usual}
        )

    def changing(self, rows: int) -> float:
        """Seconds that changes of rows add to a forward of `rows`, less what they repay."""
        if self.free:
            return 0.0
        change = self.costs.change_seconds
        going = change if self.before and rows != self.before else 0.0
        if rows == self.plain_rows:
            return going
        level = bisect_right(LEVELS, rows - self.plain_rows)
        if self.repays and level:
            return CAUTION * (going - self.repays[level - 1])
        carried = _MOST_ROUNDS * _carried(self.costs, self.plain_rows, rows)
        return CAUTION * (going + min(change, carried))

    def rise(self, rows: int, nodes: int, cells: float) -> float:
        """Seconds that verifying `nodes` more takes, in a decode with `rows`."""
        extra = self.extra_rows(nodes)
        row = cells * self.costs.attended_seconds + self.costs.host_row_seconds
        return self._cheapest(rows + extra)[0] - self._cheapest(rows)[0] + extra * row

    def rises(self, rows: int, most: int, cells: float) -> list[float]:
        """The same for 0, 1 ... `most` nodes."""
        cheapest, now = self._cheapest, self._cheapest(rows)[0]
        row = cells * self.costs.attended_seconds + self.costs.host_row_seconds
        counts = range(most + 1)
        more = counts if self.multiple == 1 else map(self.extra_rows, counts)
        return [cheapest(rows + extra)[0] - now + extra * row for extra in more]

    def rollback_costs(self, survival: Sequence[float]) -> list[RollbackCost]:
        """Costs of verifying 0, 1 ... of these nodes, beyond the forward.

        They are 0 where cells can be trimmed. A state is copied before the forward if the draft is
        longer than snapshots reach. If the first rejected node is farther back than they reach, the
        copy is restored, and the nodes before it are read again in the next forward, with the
        committed token before them.
        """
        copy, reach = self.costs.copy_seconds, self.costs.snapshots
        if copy is None:
            return [RollbackCost()] * (len(survival) + 1)
        found, alive, expected = [RollbackCost()], 1.0, 0.0
        for nodes, chance in enumerate((*[1.0] * reach, *survival)[: len(survival)], start=1):
            apart = self._beside(nodes)[1]
            if nodes <= reach:
                found.append(RollbackCost(apart, apart))
                continue
            again = self._beside(nodes - reach)[0]
            expected += (alive - chance) * (copy + again)
            alive = chance
            found.append(RollbackCost(copy + apart + expected, copy + apart + copy + again))
        return found

    def rollback_cost(self, nodes: int, kept: float) -> RollbackCost:
        """The same for `nodes` nodes of equal chance, of which `kept` are expected to be kept."""
        if self.costs.copy_seconds is None or not nodes:
            return RollbackCost()
        alive = kept / (1 + kept)
        return self.rollback_costs([alive**place for place in range(1, nodes + 1)])[nodes]

    def _beside(self, rows: int) -> tuple[float, float]:
        """Seconds of `rows` more rows in one session, and by how much `rises` is less than that.

        Beside other sessions they are a forward of their own (`control/forwards.py`).
        """
        rise = self.costs.target(self.plain_rows + rows) - self.costs.target(self.plain_rows)
        own = self.costs.target(rows) if self.plain_rows > 1 else rise
        return own, max(0.0, own - rise)


def _carried(costs: Costs, plain_rows: int, rows: int) -> float:
    """Seconds by which a forward of `rows` takes longer than one of `plain_rows`."""
    return max(0.0, costs.target(rows) - costs.target(plain_rows))


def _saved(savings: Sequence[ExpectedSaving], nodes: int) -> float:
    """Seconds that drafts of `nodes` nodes in all save, if all sessions have equally many."""
    if not savings:
        return 0.0
    each = nodes / len(savings)
    level = max(0, bisect_right(LEVELS, each) - 1)
    return min(1.0, each) * sum(saving.seconds[level] for saving in savings)


@dataclass(frozen=True, kw_only=True)
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
        """The costs for the session at `place`, where the sessions have these `rows` so far."""
        return replace(self, beside=(*rows[:place], *rows[place + 1 :]), _known={})

    def together(self, rows: Sequence[int], attended: float) -> float:
        """Seconds of a decode in which each session needs these rows, with the host's work."""
        own = attended * self.costs.attended_seconds + sum(rows) * self.costs.host_row_seconds
        return self._cheaper(rows) + own

    def even(self, rows: Sequence[int]) -> bool:
        """Whether it is cheaper to give all sessions as many rows as the one with the most."""
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
        """Seconds of the forwards in which each session has its own number of rows."""
        made = forwards(dict(enumerate(rows)), self.layout, self.costs.snapshots)
        changes = sum(made[place] != made[place - 1] for place in range(len(made)))
        return sum(map(self.costs.target, made)) + changes * change_of_rows(self.costs)

    def _even(self, rows: Sequence[int]) -> float:
        """Seconds of the one forward in which all sessions are padded to the most rows."""
        whole = len(rows) * max(rows)
        if self.layout != "streams" or self.costs.copy_seconds is not None or whole > self.most:
            return math.inf  # a state would have read the padding
        return self.costs.target(whole) + change_of_rows(self.costs) * (whole != self.plain_rows)

    def _beside(self, rows: int) -> tuple[float, float]:
        """Seconds of `rows` more rows in one session: a forward of their own, as in `rises`."""
        return self.costs.target(rows), 0.0


def change_of_rows(costs: Costs) -> float:
    """Seconds of a change of rows; 0 where that is next to nothing."""
    change = costs.change_seconds
    return change if change >= _CHANGES_MATTER * costs.target(1) else 0.0


def with_savings(
    costs: Costs, plain_rows: int, before: int, savings: Sequence[ExpectedSaving], multiple: int
) -> BatchCost:
    """The batch cost where changes of rows matter, given the savings of all sessions."""
    change = costs.change_seconds
    grain = change / _GRAINS
    rounds = min(_MOST_ROUNDS, max((saving.rounds for saving in savings), default=0.0))
    each_round = [
        _saved(savings, nodes) - _carried(costs, plain_rows, plain_rows + nodes) for nodes in LEVELS
    ]
    repays = [each * (rounds if each > 0 else _MOST_ROUNDS) for each in each_round]
    return BatchCost(
        costs,
        plain_rows,
        before,
        repays=tuple(
            grain * math.floor(max(-change, min(change, seconds)) / grain) for seconds in repays
        ),
        multiple=multiple,
    )


def batch_cost_of(  # noqa: PLR0913, PLR0917 - what a round begins with
    costs: Costs,
    rows: Sequence[int],
    before: int,
    savings: Sequence[ExpectedSaving],
    multiple: int,
    layout: Layout = "shared",
) -> BatchCost:
    """The batch cost of a round with these `rows` without drafts, after a forward of `before` rows.

    `savings` are those of each session. Where changes of rows cost next to nothing, neither
    `before` nor `savings` matters.
    """
    plain_rows = sum(rows)
    if layout != "shared" and len(rows) > 1:
        return SplitCost(costs, plain_rows, multiple=multiple, layout=layout).seen_by(0, rows)
    if not change_of_rows(costs):
        return BatchCost(costs, plain_rows, multiple=multiple, free=True)
    return with_savings(costs, plain_rows, before, savings, multiple)
