"""Which neural source drafts, of several that promise something, and whether any pays. Pure.

Each is weighed by its own record in the session. One that has to read a backlog first must promise
more than each that could draft now, and the rest of the session has to repay the reading.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter

from localspec.control import reading
from localspec.control.batch_cost import BatchCost
from localspec.control.confidence import DEPTH
from localspec.control.costs import Costs
from localspec.control.option import Option
from localspec.control.round import RECURRING_READS, Bet, SessionStats, View
from localspec.control.window import REPAID, WINDOW, gap
from localspec.types import READ_ROWS

_REPAID = 1.6
"""How many times over what a source must read first has to be repaid: both sides are guesses."""


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
        backlog = reading.backlog_seconds(self.costs, source, view.cells)
        lasts = view.remaining / self.rate
        reads = lasts - reading.wait_seconds(self.costs, source, view, backlog - self.left)
        pays = lead > 0 and reads > 0 and _REPAID * backlog <= saving * reads
        if not pays and not view.always:
            saved = saving * lasts if lead > 0 and backlog > self.left else 0.0
            return self._windowed(neural, saved)
        if not pays and free.base.tokens:
            return None
        if not backlogged(neural):
            cost = neural.gain - neural.worth
            self.stats.pending_bet = Bet(source.name, neural.worth, cost, self.rate)
            return neural
        read = min(reading.readable(self.costs, source, view, self.left), READ_ROWS)
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
        risk -= reading.each_round(self.costs, source, nodes, cells)[0]
        step = self.costs.draft(source.name, 1, 1, cells)
        most = min(self.view.budget, DEPTH) - nodes
        for budget in range(most, 0, -1):
            rises = (
                batch_cost.rise(self.rows, nodes + budget, cells)
                for batch_cost in (self.batch_cost, self.steady)
            )
            back = self.batch_cost.rollback_cost(nodes + budget, 0.0).most
            if budget * step + max(rises) + back <= risk:
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
