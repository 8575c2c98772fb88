"""What row counts cost in the round at hand, seen from the forward before it. Pure.

A forward of another row count than the last one may cost more, and so will the way back. Without
drafts a round has its `home` rows. Whoever is not there next time has then either to go back or to
carry rows that nobody needs, unless there is a draft again, for which nobody has to leave home.
What drafts bring the latest rounds tell. Where it is more than rows are carried for, going is an
investment, which is repaid in all rounds for which that may go on. Where changes are free none of
this matters.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from localspec.control.costs import Costs
from localspec.control.round import LEVELS

_CAUTION = 1.6
"""By what a change is taken to be dearer than it is: it is paid at once, and by much, for a
promise."""
_CHANGES_MATTER, _GRAINS = 0.06, 4
"""Changes of rows that cost less than this share of a row are free; what repays one is kept in
grains of it, so that rounds that differ by little have the same prices."""
_MOST_ROUNDS = 16
"""No further is a text taken to go on as it does."""


class Hope(NamedTuple):
    """What drafts of at most `LEVELS` nodes bring a session in a round, in seconds.

    And for how many rounds that may go on.
    """

    brings: Sequence[float]
    rounds: float


class Undoing(NamedTuple):
    """What a draft costs more where only a copy brings a memory back: expected, and at most."""

    seconds: float = 0.0
    most: float = 0.0


_FREE = Undoing()


@dataclass(frozen=True, slots=True)
class Tariff:
    """Prices of one round.

    Args:
        costs: The machine's curves.
        home: Rows of the decode without any drafts.
        before: Rows of the forward before; 0 if there was none.
        repays: Seconds that rows for so many nodes (`LEVELS`) bring until the end beyond what they
            are carried for, or less than nothing; either way at most those of a change. Empty where
            nothing is known of drafts.
        multiple: Every session's rows are padded to a multiple of this.
        most: Rows that a decode may have.
        free: As if changes cost nothing.
    """

    costs: Costs
    home: int
    before: int = 0
    repays: tuple[float, ...] = ()
    multiple: int = 1
    most: int = 128
    free: bool = False

    _known: dict[int, tuple[float, int]] = field(default_factory=dict, compare=False, repr=False)

    @property
    def whole(self) -> bool:
        """Whether a decode is one forward, whosever rows it has."""
        return True

    @property
    def beside(self) -> tuple[int, ...]:
        """Rows of each other session, as one of them sees it, where that makes a difference."""
        return ()

    @property
    def steady(self) -> Tariff:
        """As if changes were free."""
        return self if self.free else replace(self, free=True, _known={})

    def seen_by(self, place: int, rows: Sequence[int]) -> Tariff:
        """By one of the sessions that have so many rows so far."""
        del place, rows
        return self

    def together(self, rows: Sequence[int], looks: float) -> float:
        """A decode in which each session needs so many rows, and the host's work with them."""
        return self.judged(max(sum(rows), 1), looks)

    def even(self, rows: Sequence[int]) -> bool:
        """Whether it is cheaper that all have as many rows as the one with the most."""
        del rows
        return False

    def plain(self, sessions: int, looks: float) -> float:
        """Seconds of a decode without drafts."""
        return self.costs.target(max(1, self.multiple * sessions), looks)

    def extra_rows(self, nodes: int) -> int:
        """Rows that a draft of `nodes` adds to a session's own, padding included."""
        return -(-(1 + nodes) // self.multiple) * self.multiple - self.multiple

    def padded(self, rows: int) -> int:
        """How many rows to decode where `rows` are needed: sometimes more are cheaper."""
        return self._cheapest(rows)[1]

    def seconds(self, rows: int, looks: float = 0.0) -> float:
        """A decode in which `rows` are needed, and what it leaves to be paid later."""
        return self._cheapest(rows)[0] + looks * self.costs.look_seconds

    def judged(self, rows: int, looks: float) -> float:
        """The same, and the host's work with these rows."""
        return self.seconds(rows, looks) + rows * self.costs.host_row_seconds

    def _cheapest(self, rows: int) -> tuple[float, int]:
        """Seconds of the cheapest forward that holds `rows`, and its rows."""
        found = self._known.get(rows)
        if found is None:
            found = self._known[rows] = self._found(rows)
        return found

    def _found(self, rows: int) -> tuple[float, int]:
        if self.multiple > 1:  # whatever shares a forward belongs to its class
            return self.costs.target(rows) + self.changing(rows), rows
        wider = min(self.costs.plateau(rows), max(self.most, rows))
        if self.free:
            return self.costs.target(wider), wider
        homes = (count for count in (self.home, self.before) if rows <= count <= self.most)
        return min(
            (self.costs.target(count) + self.changing(count), count)
            for count in {rows, wider, *homes}
        )

    def changing(self, rows: int) -> float:
        """The part of it that is there because row counts change."""
        if self.free:
            return 0.0
        change = self.costs.change_seconds
        going = change if self.before and rows != self.before else 0.0
        if rows == self.home:
            return going
        level = bisect_right(LEVELS, rows - self.home)
        if self.repays and level:
            return _CAUTION * (going - self.repays[level - 1])
        carried = _MOST_ROUNDS * _carried(self.costs, self.home, rows)
        return _CAUTION * (going + min(change, carried))

    def rise(self, rows: int, nodes: int, cells: float) -> float:
        """Seconds that verifying `nodes` more takes, in a decode with `rows`."""
        (rise,) = self._rises(rows, (nodes,), cells)
        return rise

    def rises(self, rows: int, most: int, cells: float) -> list[float]:
        """The same for 0, 1 ... `most` nodes."""
        return self._rises(rows, range(most + 1), cells)

    def _rises(self, rows: int, counts: Iterable[int], cells: float) -> list[float]:
        now = self._cheapest(rows)[0]
        row = cells * self.costs.look_seconds + self.costs.host_row_seconds
        more = map(self.extra_rows, counts)
        return [self._cheapest(rows + extra)[0] - now + extra * row for extra in more]

    def undoing(self, survival: Sequence[float]) -> list[Undoing]:
        """What verifying 0, 1 ... of these nodes costs beyond its forward.

        Nothing where cells can be forgotten. Elsewhere a copy is made before, and where a node is
        rejected the copy is brought back, and the nodes before it are read again in the next
        forward, with the token that came before them.
        """
        copy = self.costs.copy_seconds
        if copy is None:
            return [_FREE] * (len(survival) + 1)
        found, alive, expected = [_FREE], 1.0, 0.0
        for nodes, chance in enumerate(survival, start=1):
            again, apart = self._beside(nodes)
            expected += (alive - chance) * (copy + again)
            alive = chance
            found.append(Undoing(copy + apart + expected, copy + apart + copy + again))
        return found

    def _beside(self, rows: int) -> tuple[float, float]:
        """Seconds of so many rows more in one session, and how far that is beyond `rises`.

        Beside other sessions they are a forward of their own (`control/forwards.py`).
        """
        rise = self.costs.target(self.home + rows) - self.costs.target(self.home)
        own = self.costs.target(rows) if self.home > 1 else rise
        return own, max(0.0, own - rise)

    def price(self, rows: int, nodes: int, rate: float, cells: float) -> float:
        """What verifying `nodes` more costs in tokens, in a decode that has `rows` without them."""
        return rate * self.rise(rows, nodes, cells)


def _carried(costs: Costs, home: int, rows: int) -> float:
    """Seconds that so many rows take more than those at home."""
    return max(0.0, costs.target(rows) - costs.target(home))


def _brought(hopes: Sequence[Hope], nodes: int) -> float:
    """Seconds that drafts of so many nodes bring, if all sessions have as many of them."""
    if not hopes:
        return 0.0
    each = nodes / len(hopes)
    level = max(0, bisect_right(LEVELS, each) - 1)
    return min(1.0, each) * sum(hope.brings[level] for hope in hopes)


def change_of_rows(costs: Costs) -> float:
    """Seconds of a change of rows; none where that is next to nothing."""
    change = costs.change_seconds
    return change if change >= _CHANGES_MATTER * costs.target(1) else 0.0


def with_hopes(
    costs: Costs, home: int, before: int, hopes: Sequence[Hope], multiple: int
) -> Tariff:
    """Prices where changes of rows matter; the hopes of all sessions, in grains."""
    change = costs.change_seconds
    grain = change / _GRAINS
    rounds = min(_MOST_ROUNDS, max((hope.rounds for hope in hopes), default=0.0))
    each_round = [_brought(hopes, nodes) - _carried(costs, home, home + nodes) for nodes in LEVELS]
    repays = [each * (rounds if each > 0 else _MOST_ROUNDS) for each in each_round]
    return Tariff(
        costs,
        home,
        before,
        repays=tuple(
            grain * math.floor(max(-change, min(change, seconds)) / grain) for seconds in repays
        ),
        multiple=multiple,
    )
