"""The option that one session takes: nothing, a free chain, or a neural draft behind one. Pure.

Each neural source is weighed by its own record in the session. One that has to read a backlog first
must promise more than each that could draft now, and the rest of the session has to repay the
reading.

Where reading a prompt takes longer than an answer may be behind, a draft model waits, perhaps until
the answer ends. Unless the answer is made of its prompt, the draft model mostly needs the last
tokens of the text. So it may read these alone, where they are a large enough share of the text
(docs/internals/measured.md).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter

from localspec.control.acceptance import Acceptance
from localspec.control.batch_cost import CAUTION, BatchCost
from localspec.control.confidence import DEPTH, StoppingTable
from localspec.control.costs import Costs
from localspec.control.regret import REGRET_SHARE
from localspec.control.round import RECURRING_READS, Bet, Neural, SessionStats, View
from localspec.types import READ_ROWS, STEPS, Draft

WINDOW = 32
"""Last tokens of a text that are read instead of all. Fewer than half are not worth a forward."""
_WINDOW_SHARE = 3 / 8
"""The least share of the text that these must be: with less a draft model is wrong too often."""


@dataclass(frozen=True, slots=True)
class Option:
    """One way to spend the round for one session.

    `worth` is in tokens above plain decoding in the same time; `gain` are the accepted nodes to
    expect, `nodes` those verified for them. The source `extend` continues `base` with at most
    `budget` nodes, after it has left out `skip` pending tokens and read at most `read`. `wish`
    would be the option's worth if changes of rows were free.
    """

    base: Draft = field(default_factory=Draft)
    extend: Neural | None = None
    worth: float = 0.0
    gain: float = 0.0
    nodes: int = 0
    budget: int = 0
    read: int = READ_ROWS
    wish: float = -math.inf
    skip: int = 0

    @property
    def cost(self) -> float:
        """Tokens that plain decoding would bring in its time."""
        return self.gain - self.worth

    @property
    def backlogged(self) -> bool:
        """Whether its source has to read more than it does in every round."""
        return self.extend is not None and self.extend.pending > RECURRING_READS

    @property
    def source(self) -> str | None:
        """The source of its first node; None where that is not drafted yet."""
        return self.base.signals[0].source if self.base else None


@dataclass(frozen=True, slots=True)
class Weighing:
    """The choice of one session in one round.

    Args:
        costs: The machine's curves.
        acceptance: What the sources are worth.
        stopping_table: When to stop a draft of a neural source, by its name.
        batch_cost: The cost of this round's batch, which has `rows` so far.
        view: The session, with its `stats`.
        rate: Tokens per second at which time is charged.
        left: Seconds that the session may still lose.
        risk: Seconds that it may lose by one draft.
    """

    costs: Costs
    acceptance: Acceptance
    stopping_table: Callable[[str], StoppingTable]
    batch_cost: BatchCost
    view: View
    stats: SessionStats
    rows: int
    rate: float
    left: float
    risk: float

    def options(
        self, free: Sequence[tuple[Draft, Sequence[float]]]
    ) -> tuple[list[Option], list[Option]]:
        """The options of each free chain, given with its survival, and of each neural source."""
        doubted, kept = self.stats.copies_cost, self.stats.copies.kept
        copies = [self._copy(*each, doubted, kept) for each in free]
        neural = [option for source in self.view.neural for option in self._neural(source, free)]
        return copies, neural

    def chosen(self, copies: Sequence[Option], neural: Sequence[Option]) -> Option:
        """The option of most worth.

        Each must promise more by the recent shortfall of such promises, and a neural one more than
        the best free chain. The rest of the session must repay the reading of a backlog.
        """
        view, doubted = self.view, self.stats.copies_cost
        free = max(copies, key=attrgetter("worth"), default=Option())
        if view.carried:  # a neural draft: the doubt of copies does not count
            survival = self.acceptance.survival(view.carried.signals, self.stats.local)
            carried = self._copy(view.carried, survival, 1.0, 1.0)
            if not copies or carried.worth >= free.worth:
                free, doubted = carried, 1.0
        if free.worth <= 0 and doubted > 1 and not view.always:
            free = Option()  # `cut` knows no doubt and would verify it
        copied = max(0.0, free.gain - free.cost / doubted)
        leads: list[tuple[float, Option]] = []
        for source in view.neural:
            if option := self._affordable(each for each in neural if each.extend is source):
                doubt = self.stats.source(source.name).bias.doubt
                leads.append((option.worth - doubt * option.cost - copied, option))
        ready = max((lead for lead, option in leads if not option.backlogged), default=0.0)
        leads = [
            (lead - max(0.0, ready) if option.backlogged else lead, option)
            for lead, option in leads
        ]
        leads.sort(key=lambda each: (each[1].backlogged, each[0]), reverse=True)
        for lead, option in leads:
            if option.extend is not None:
                source_stats = self.stats.source(option.extend.name)
                source_stats.begin(max(0.0, lead) / (1 + option.gain))
        taken = (self._taken(option, lead, free) for lead, option in leads)
        return next((option for option in taken if option is not None), free)

    def _copy(self, chain: Draft, survival: Sequence[float], doubted: float, kept: float) -> Option:
        """A free chain cut where it is worth most; `base` is all of it that may be risked.

        `wish` is its worth if changes of rows were free, with the share `kept` of its gain. It
        decides whether its source is asked again: a failed draft costs once, asking every round.
        """
        gain, best, most, wish = 0.0, (-math.inf, 0.0, 0), 0, -math.inf
        rate, cells, batch_cost = doubted * self.rate, self.view.cells, self.batch_cost
        rises = batch_cost.rises(self.rows, len(survival), cells)
        steady = batch_cost.steady.rises(self.rows, len(survival), cells)
        rollback_costs = batch_cost.rollback_costs(survival)
        for nodes, alive in enumerate(survival, start=1):
            gain += alive
            back, at_most = rollback_costs[nodes]
            wish = max(wish, kept * gain - rate * (steady[nodes] + back))
            if max(rises[nodes], steady[nodes]) + at_most <= self.risk:
                most = nodes
                worth = gain - rate * (rises[nodes] + back)
                if worth >= best[0]:  # of equals the longest
                    best = worth, gain, nodes
        return Option(chain.head(most), None, *best, wish=wish)

    def _neural(
        self, source: Neural, free: Sequence[tuple[Draft, Sequence[float]]]
    ) -> Iterator[Option]:
        """The options of a neural source: from the root, and behind each free chain.

        Whether they may be risked is not asked here. A source whose continuation was carried into
        this round goes on behind that, because from the root it would draft the same again.
        """
        view, carried = self.view, self.view.carried
        target_confidence = view.expected_target_confidence
        table = self.stopping_table(source.name)
        root = carried if any(each.source == source.name for each in carried.signals) else Draft()
        bases: list[tuple[Draft, Sequence[float]]] = []
        bases += [(root, self.acceptance.survival(root.signals, self.stats.local))]
        bases += [
            (chain.head(nodes), survival[:nodes])
            for chain, survival in free
            for nodes in _handovers(survival, target_confidence)
            if nodes < (STEPS + 1 if source.stepwise else DEPTH)
        ]
        for base, survival in bases:
            unread = 0 if base is carried else len(base)
            seconds = each_round(self.costs, source, unread, view.cells)
            worth, gain = table.ahead(target_confidence, survival)
            nodes = round(gain) + 1
            seconds += self.batch_cost.rollback_cost(nodes, gain).seconds
            yield Option(base, source, worth - self.rate * seconds, gain, nodes)

    def _taken(self, neural: Option, lead: float, free: Option) -> Option | None:
        """The option as it is taken, to draft now or to read a backlog; None if it is not taken."""
        source, view = neural.extend, self.view
        assert source is not None  # noqa: S101 - it is a neural one
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
        if not neural.backlogged:
            view.decision.bet = Bet(source.name, neural.worth, neural.cost, self.rate)
            return neural
        read = min(readable(self.costs, source, view, self.left), READ_ROWS)
        if read >= source.pending:
            return neural
        return replace(free, extend=source, budget=view.budget, read=read) if read else None

    def _affordable(self, options: Iterator[Option]) -> Option | None:
        """The option of most worth that may be risked, with its budget of nodes."""
        for option in sorted(options, key=attrgetter("worth"), reverse=True):
            if budget := self._budget(option, self.risk):
                return replace(option, budget=budget)
        return None

    def _budget(self, option: Option, risk: float) -> int:
        """How many nodes an option may draft behind its base, if all of it may be rejected."""
        source, nodes, cells = option.extend, len(option.base), self.view.cells
        assert source is not None  # noqa: S101 - it is a neural one
        risk -= each_round(self.costs, source, nodes, cells)
        step = self.costs.draft(source.name, 1, 1, cells)
        most = min(self.view.budget, DEPTH) - nodes
        batch_cost, steady = self.batch_cost, self.batch_cost.steady
        for budget in range(most, 0, -1):
            rise = batch_cost.rise(self.rows, nodes + budget, cells)
            rise = max(rise, steady.rise(self.rows, nodes + budget, cells))
            back = batch_cost.rollback_cost(nodes + budget, 0.0).most
            if budget * step + rise + back <= risk:
                return self.view.budget - nodes if budget == most else budget
        return 0

    def _windowed(self, option: Option, saved: float) -> Option | None:
        """The option with only the end of the text read, where that may be risked and pays.

        `saved` are the seconds that its drafts are expected to save.
        """
        source = option.extend
        assert source is not None  # noqa: S101 - it is a neural one
        seconds = self.costs.draft(source.name, WINDOW, 0, self.view.cells)
        if not (skip := gap(source)) or 2 * CAUTION * seconds > saved:
            return None
        budget = self._budget(option, self.risk - seconds)
        return replace(option, budget=budget, skip=skip) if budget else None


def _handovers(survival: Sequence[float], target_confidence: float) -> Iterator[int]:
    """Where a neural source may continue a chain: before its first unsure node, and at its end.

    A node is unsure if its chance is below the target's confidence in the text.
    """
    for nodes in range(1, len(survival)):
        if survival[nodes] < target_confidence * survival[nodes - 1]:
            yield nodes
            break
    if survival:
        yield len(survival)


def lead(name: str, options: Iterable[Option]) -> float:
    """The worth of the source's best option beyond the best option of any other source.

    Options with a backlog are left out. Plain decoding, with worth 0, is always one of the others.
    """
    own, other = 0.0, 0.0
    for option in options:
        worth = max(option.wish, option.worth)
        if option.backlogged:
            continue
        if option.source == name:
            own = max(own, worth)
        else:
            other = max(other, worth)
    return max(0.0, own - other)


def each_round(costs: Costs, source: Neural, nodes: int, cells: int) -> float:
    """Seconds to read the tokens that are pending every round, and the `nodes` of a base."""
    pending = min(source.pending, RECURRING_READS)
    if source.stepwise:
        return costs.draft(source.name, pending, nodes, cells)
    pending += nodes
    changes = (pending != source.before) + (pending > 1) if source.before else 0
    return costs.draft(source.name, pending, 0, cells, changes)


def backlog_seconds(costs: Costs, source: Neural, cells: int) -> float:
    """Seconds to read the pending tokens beyond those that are pending every round."""
    backlog = max(0, source.pending - RECURRING_READS)
    return costs.draft(source.name, backlog + 1, 0, cells)


def wait_seconds(costs: Costs, source: Neural, view: View, missing_seconds: float) -> float:
    """Seconds until an answer may lose `missing_seconds` more; math.inf for never.

    Meanwhile each of its tokens is one more to read.
    """
    if missing_seconds <= 0 or view.always:
        return 0.0
    one = costs.draft(source.name, 2, 0, view.cells)
    income = REGRET_SHARE - one / costs.target(1, view.cells)
    return missing_seconds / income if income > 0 else math.inf


def readable(costs: Costs, source: Neural, view: View, seconds: float) -> int:
    """How many pending tokens can be read in `seconds`; 0 for too few to be worth it."""
    if view.always or backlog_seconds(costs, source, view.cells) <= seconds:
        return READ_ROWS
    least = WINDOW // 2
    count = int(least * seconds / costs.draft(source.name, least + 1, 0, view.cells))
    return count if count >= min(least, source.pending - RECURRING_READS) else 0


def shares(costs: Costs, name: str, cells: int) -> tuple[float, float]:
    """The costs of one more token in a source's forward, and of changing its rows and back.

    Both are shares of a forward that drafts one token.
    """
    step = costs.draft(name, 1, 1, cells)
    read = costs.draft(name, 2, 1, cells) - step
    changes = costs.draft(name, 1, 1, cells, changes=2) - step
    return read / step, changes / step


def gap(source: Neural) -> int:
    """How many of its oldest pending tokens a source should leave out; 0 if it should not."""
    if source.skipped is None or source.pending <= WINDOW:
        return 0
    text = source.pending + source.skipped
    return source.pending - WINDOW if _WINDOW_SHARE * text <= WINDOW else 0
