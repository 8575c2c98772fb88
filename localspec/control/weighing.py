"""Which neural source drafts, of several that promise something, and whether any pays. Pure.

Each is weighed by its own record in the session. One that has to read a backlog first must promise
more than each that could draft now, and the rest of the session has to repay the reading.

Where reading a prompt takes longer than an answer may be behind, a draft model waits, and may wait
to the end. What it needs of a text is mostly near, unless the answer is made of its prompt: then it
reads the end alone, by the share of the text that this holds (docs/internals/measured.md).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter

from localspec.control.batch_cost import CAUTION, BatchCost
from localspec.control.confidence import DEPTH
from localspec.control.costs import Costs
from localspec.control.regret import REGRET_SHARE
from localspec.control.round import RECURRING_READS, Bet, Neural, SessionStats, View
from localspec.types import READ_ROWS, Draft

NONE = Draft()
LEAST = 16
"""Reading fewer tokens in a round than these is not worth a forward."""
WINDOW = 32
"""Tokens that are read instead of a whole text."""
REPAID = 3.0
"""How many times over reading that has to be repaid: less is known of it than of a whole text."""
_WINDOW_SHARE = 3 / 8
"""With less of the text a draft model is wrong too often."""


@dataclass(frozen=True, slots=True)
class Option:
    """One way to spend the round for one session.

    `worth` is in tokens above plain decoding in the same time; `gain` are the accepted tokens to
    expect, `nodes` those verified for them. `base` ends where `extend` goes on with `budget` nodes
    at most, after it has skipped `skip` pending tokens and read at most `read`, `stride` of them in
    a forward. `wish` would be its worth if changes of rows were free.
    """

    base: Draft = NONE
    extend: Neural | None = None
    worth: float = 0.0
    gain: float = 0.0
    nodes: int = 0
    budget: int = 0
    read: int = READ_ROWS
    stride: int = READ_ROWS
    wish: float = 0.0
    skip: int = 0


def handovers(survival: Sequence[float], target_confidence: float) -> Iterator[int]:
    """Where a chain may be handed over: at its end, and where it is less sure than the text."""
    for nodes in range(1, len(survival)):
        if survival[nodes] < target_confidence * survival[nodes - 1]:
            yield nodes
            break
    if survival:
        yield len(survival)


def backlogged(option: Option) -> bool:
    """Whether its source has to read more than it does in every round."""
    return option.extend is not None and option.extend.pending > RECURRING_READS


@dataclass(frozen=True, slots=True)
class Weighing:
    """The choice of one session's neural source in one round.

    Args:
        costs: The machine's curves.
        batch_cost: The cost of this round's batch, which has `rows` so far.
        steady: The same as if changes of rows were free.
        view: The session, with its `stats`.
        rate: Tokens per second at which time is charged.
        left: Seconds that the session may still lose.
        risk: Seconds that it may lose by one draft.
    """

    costs: Costs
    batch_cost: BatchCost
    steady: BatchCost
    view: View
    stats: SessionStats
    rows: int
    rate: float
    left: float
    risk: float

    def chosen(self, promises: Sequence[Option], free: Option, copied: float) -> Option | None:
        """The source that promises most beyond a free chain of `copied` tokens, if any pays."""
        leads: list[tuple[float, Option]] = []
        for source in self.view.neural:
            own = [option for option in promises if option.extend is source]
            if option := self._affordable(own):
                cost = option.gain - option.worth
                doubt = self.stats.source(source.name).bias.doubt
                leads.append((option.worth - doubt * cost - copied, option))
        ready = max((lead for lead, option in leads if not backlogged(option)), default=0.0)
        leads = [
            (lead - max(0.0, ready) if backlogged(option) else lead, option)
            for lead, option in leads
        ]
        leads.sort(key=lambda each: (backlogged(each[1]), each[0]), reverse=True)
        for lead, option in leads:
            if option.extend is not None:
                source_stats = self.stats.source(option.extend.name)
                source_stats.begin(max(0.0, lead) / (1 + option.gain))
        taken = (self._taken(option, lead, free) for lead, option in leads)
        return next((option for option in taken if option is not None), None)

    def _taken(self, neural: Option, lead: float, free: Option) -> Option | None:
        """A neural option as it is taken: to draft now, or to read for that; None if it is not."""
        source, view = neural.extend, self.view
        assert source is not None  # noqa: S101 — it is a neural one
        saving = self.stats.source(source.name).saving
        backlog = backlog_seconds(self.costs, source, view.cells)
        lasts = view.remaining / self.rate
        reads = lasts - wait_seconds(self.costs, source, view, backlog - self.left)
        pays = lead > 0 and reads > 0 and CAUTION * backlog <= saving * reads
        if not pays and not view.always:
            saved = saving * lasts if lead > 0 and backlog > self.left else 0.0
            return self._windowed(neural, saved)
        if not pays and free.base.tokens:
            return None
        if not backlogged(neural):
            cost = neural.gain - neural.worth
            self.stats.pending_bet = Bet(source.name, neural.worth, cost, self.rate)
            return neural
        read = min(readable(self.costs, source, view, self.left), READ_ROWS)
        if read >= source.pending:
            return neural
        return replace(free, extend=source, budget=view.budget, read=read) if read else None

    def _affordable(self, options: Iterable[Option]) -> Option | None:
        """The most promising one that may be risked, with the nodes that may be drafted for it."""
        for option in sorted(options, key=attrgetter("worth"), reverse=True):
            if budget := self._budget(option, self.risk):
                return replace(option, budget=budget)
        return None

    def _budget(self, option: Option, risk: float) -> int:
        """How many nodes an option may draft behind its base, if all of it may turn out wrong."""
        source, nodes, cells = option.extend, len(option.base), self.view.cells
        assert source is not None  # noqa: S101 — it is a neural one
        risk -= each_round(self.costs, source, nodes, cells)[0]
        step = self.costs.draft(source.name, 1, 1, cells)
        most = min(self.view.budget, DEPTH) - nodes
        batch_cost, steady = self.batch_cost, self.steady
        for budget in range(most, 0, -1):
            rise = batch_cost.rise(self.rows, nodes + budget, cells)
            if not batch_cost.free:
                rise = max(rise, steady.rise(self.rows, nodes + budget, cells))
            back = batch_cost.rollback_cost(nodes + budget, 0.0).most
            if budget * step + rise + back <= risk:
                return self.view.budget - nodes if budget == most else budget
        return 0

    def _windowed(self, option: Option, saved: float) -> Option | None:
        """A neural option that reads the end of the text alone, where that may be risked and pays.

        `saved` are the seconds that drafts are going to save.
        """
        source = option.extend
        assert source is not None  # noqa: S101 — it is a neural one
        seconds = self.costs.draft(source.name, WINDOW, 0, self.view.cells)
        if not (skip := gap(source)) or REPAID * seconds > saved:
            return None
        budget = self._budget(option, self.risk - seconds)
        return replace(option, budget=budget, skip=skip) if budget else None


def each_round(costs: Costs, source: Neural, nodes: int, cells: int) -> tuple[float, int]:
    """Seconds to read what is pending every round and `nodes` more, and rows of a forward.

    At once, or one by one as it drafts: where changes of the row count cost more than forwards.
    """
    if source.stepwise:
        read = min(source.pending, RECURRING_READS)
        return costs.draft(source.name, read, nodes, cells), READ_ROWS
    pending = min(source.pending, RECURRING_READS) + nodes
    changes = (pending != source.before) + (pending > 1)
    if not source.before:
        changes = 0
    at_once = costs.draft(source.name, pending, 0, cells, changes)
    if source.pending > RECURRING_READS:
        return at_once, READ_ROWS
    one_by_one = costs.draft(source.name, 1, pending - 1, cells, int(source.before > 1))
    return (one_by_one, 1) if one_by_one < at_once else (at_once, READ_ROWS)


def backlog_seconds(costs: Costs, source: Neural, cells: int) -> float:
    """Seconds to read what is pending beyond what every round reads."""
    backlog = max(0, source.pending - RECURRING_READS)
    return costs.draft(source.name, backlog + 1, 0, cells)


def wait_seconds(costs: Costs, source: Neural, view: View, missing_seconds: float) -> float:
    """How long it takes until an answer may lose so much more; math.inf for ever.

    Each token of it is one more to read meanwhile.
    """
    if missing_seconds <= 0 or view.always:
        return 0.0
    one = costs.draft(source.name, 2, 0, view.cells)
    income = REGRET_SHARE - one / costs.target(1, view.cells)
    return missing_seconds / income if income > 0 else math.inf


def readable(costs: Costs, source: Neural, view: View, seconds: float) -> int:
    """How many pending tokens may be read in so many seconds; 0 if that is next to nothing."""
    if view.always or backlog_seconds(costs, source, view.cells) <= seconds:
        return READ_ROWS
    some = costs.draft(source.name, LEAST + 1, 0, view.cells)
    count = int(LEAST * seconds / some)
    return count if count >= min(LEAST, source.pending - RECURRING_READS) else 0


def shares(costs: Costs, name: str, cells: int) -> tuple[float, float]:
    """Costs of one more token in a source's forward, and of rows that come and go again.

    Both as shares of a forward of its own.
    """
    step = costs.draft(name, 1, 1, cells)
    read = costs.draft(name, 2, 1, cells) - step
    changes = costs.draft(name, 1, 1, cells, changes=2) - step
    return read / step, changes / step


def gap(source: Neural) -> int:
    """How many of its oldest pending tokens a source should do without; 0 if it should not."""
    if source.skipped is None or source.pending <= WINDOW:
        return 0
    text = source.pending + source.skipped
    return source.pending - WINDOW if _WINDOW_SHARE * text <= WINDOW else 0
