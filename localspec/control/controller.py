"""The decision of every round: which source drafts, and how many nodes are verified.

A round is worth its expected committed tokens, less its seconds times a rate in tokens per second.
Maximising this in every round maximises tokens per second over many rounds (Dinkelbach, 1967).
`plan` takes the argmax over plain decoding, each free chain, a neural chain, and a free chain
continued by neural tokens; `cut` decides how many nodes of the drafts are verified; `observe`
learns. No clock, no I/O, no model: what it knows came through `observe`, and the same history gives
the same decisions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import takewhile
from typing import Any

from localspec.control.acceptance import LEAST_CHANCE, Acceptance
from localspec.control.batch_cost import BatchCost, ExpectedSaving, batch_cost_of
from localspec.control.confidence import DEPTH, StoppingTable, news, solve
from localspec.control.costs import Costs
from localspec.control.cutting import Candidate, added_seconds, cut, spare
from localspec.control.feedback import DRAFTERS, PolicyFeedback
from localspec.control.forwards import Layout
from localspec.control.round import STALL_SECONDS, DraftPlan, Round, SessionStats, View
from localspec.control.weighing import WINDOW, Option, Weighing, lead, shares
from localspec.types import READ_ROWS, Draft, Signal

ADVANTAGE = 0.1  # doubled 0.98 (0.93), halved 1.00 (0.98)
"""Tokens by which drafts must promise more than plain decoding: the highest of noisy estimates is
too high."""
_GUESS_LEAST = 0.25
"""The least chance of a guess that is read along: a few rows more may cost a forward much more than
reading a prompt suggests."""
_GUESS_COST = 0.15
"""The most time that asking for a guess may take, as a share of the forward that reads it."""
_GRAIN = 0.1
"""Stopping tables are solved for rates this far apart (as logarithms)."""
_KEPT_ROUNDS = 64
"""Rounds for which stopping tables are kept. At 256 worlds are as fast, but where a machine changes
in the middle the worst thousand tokens fall from .98 to .956 of plain; solving one takes a
millisecond."""
_SIBLING = 0.1
"""About how often a second choice is the target's token: siblings are asked for where a row costs
less than so many tokens."""


class Controller:
    """Decides for all sessions of one model. Owned by the engine's thread.

    Args:
        costs: The machine's curves; learns from every round.
        acceptance: What the sources are worth; learns from every round.
        multiple: Every session's rows are padded to a multiple of this.
        layout: Which rows one forward can hold.
    """

    def __init__(
        self,
        costs: Costs,
        acceptance: Acceptance,
        *,
        multiple: int = 1,
        layout: Layout = "shared",
    ) -> None:
        self.costs = costs
        self.acceptance = acceptance
        self.feedback = PolicyFeedback(costs, acceptance, multiple)
        self._multiple = multiple
        self._layout: Layout = layout
        self._batch_cost = BatchCost(costs, multiple, multiple=multiple)
        self._stopping_tables: dict[tuple[Any, ...], StoppingTable] = {}
        self._rounds = 0
        self._plain = False

    def arrange(self, multiple: int, layout: Layout) -> None:
        """Put rows into forwards in another way from now on. Called between rounds."""
        self._multiple = self.feedback.multiple = multiple
        self._layout = layout
        self._batch_cost = BatchCost(self.costs, multiple, multiple=multiple)
        self._stopping_tables.clear()

    def open_session(self) -> SessionStats:
        """A memory for one request; put it into each of its views."""
        return SessionStats.after(self.feedback.copies, self.feedback.expected_saving)

    # --- before drafting --------------------------------------------------------------------------

    def wants_slow_source(
        self, name: str, stats: SessionStats | None, beside: str | None = None
    ) -> bool:
        """Whether a slow free source is asked; always where nothing is known of it.

        A guess saves the source `beside` it at most a forward, and seldom, so it must be cheap.
        """
        takes = self.feedback.takes(name)
        if beside is not None:
            return takes < _GUESS_COST * self.costs.draft(beside, 1, 1)
        if stats is None or not takes:
            return True
        return not self.feedback.plain_due and self.feedback.asking(name, stats).due(takes)

    def asks(self, stats: SessionStats | None) -> bool:
        """Whether asking drafters before a forward has lately repaid itself, and may be of use."""
        takes = self.feedback.takes(DRAFTERS)
        if self.feedback.plain_due or stats is None or not takes:
            return not self.feedback.plain_due
        return self.feedback.asking(DRAFTERS, stats).due(takes)

    def likely(self, stats: SessionStats | None) -> Callable[[Sequence[Signal]], bool]:
        """A rule for one free chain: draft on while its survival is above `LEAST_CHANCE`."""
        return self.acceptance.likely(stats.local if stats is not None else None)

    def plan(self, views: Sequence[View], other_rows: int = 0, before: int = 0) -> list[DraftPlan]:
        """Choose the source of each session. Call once a round: expectations are remembered.

        `other_rows` of prefill share the decode; the target's latest forward had `before` rows.
        Sessions are planned in order, each with the rows that those before it are expected to take.
        """
        needs = [self._multiple] * len(views) + [other_rows] * (other_rows > 0)
        savings = [
            ExpectedSaving(view.stats.expected_saving, view.remaining / 2)
            for view in views
            if view.stats is not None
        ]
        self._batch_cost = batch_cost = batch_cost_of(
            self.costs, needs, before, savings, self._multiple, self._layout
        )
        forced = any(view.always for view in views)
        self._plain = self.feedback.plain_due and not other_rows and not forced
        if self._plain:
            return [DraftPlan(Draft(), None, 0, _never)] * len(views)
        rate = self._rate(views)
        plans = []
        for place, view in enumerate(views):
            self._batch_cost = batch_cost.seen_by(place, needs)
            rows = sum(needs)
            option = self._choose(view, view.stats or SessionStats(), rows, rate)
            plans.append(self._as_plan(view, option, rows, rate, others=len(views) - 1))
            needs[place] += batch_cost.extra_rows(option.nodes)
        self._batch_cost = batch_cost
        return plans

    def _rate(self, views: Sequence[View]) -> float:
        """Tokens per second at which time is charged: the higher of plain's and the recent pace."""
        attended = self._multiple * sum(view.cells for view in views)
        plain = len(views) / (
            self._batch_cost.plain(len(views), attended) + self.costs.host_seconds
        )
        speeds = [view.stats.speed if view.stats is not None else 0.0 for view in views]
        pace = sum(speeds) / self.costs.target(1) if speeds and min(speeds) > 0 else 0.0
        return max(plain, pace)

    def _choose(self, view: View, stats: SessionStats, rows: int, rate: float) -> Option:
        """The option of most worth for one session. Also learns what free chains could save."""
        left = stats.regret_budget.left(view.elapsed_seconds)
        weighing = Weighing(
            costs=self.costs,
            acceptance=self.acceptance,
            stopping_table=lambda name: self._stopping_table(name, rows, rate, view.cells),
            batch_cost=self._batch_cost,
            view=view,
            stats=stats,
            rows=rows,
            rate=rate,
            left=left,
            risk=math.inf if view.always else min(left, self.feedback.left / rate),
        )
        free = [(each, self.acceptance.survival(each.signals, stats.local)) for each in view.free]
        copies, neural = weighing.options(free)
        if not self._batch_cost.free and stats.asking.keys() <= {DRAFTERS, *view.asked}:
            self.feedback.expect_saving(stats, [survival for _, survival in free], rate)
        for name, seconds in view.asked.items():
            self.feedback.asked(name, stats, seconds, lead(name, [*copies, *neural]) / rate)
        return weighing.chosen(copies, neural)

    def _stopping_table(self, name: str, rows: int, rate: float, cells: int) -> StoppingTable:
        """The solved stopping problem of a source, for this decode and about this rate."""
        grain, span = round(math.log(rate) / _GRAIN), round(cells / READ_ROWS)
        batch_cost = self._batch_cost
        seen = batch_cost.plain_rows, batch_cost.before, batch_cost.repays, batch_cost.beside
        key = name, rows, grain, span, *seen
        found = self._stopping_tables.get(key)
        if found is None:
            about, cells = math.exp(grain * _GRAIN), span * READ_ROWS
            prices = [about * rise for rise in batch_cost.rises(rows, DEPTH, cells)]
            step = about * self.costs.draft(name, 1, 1, cells)
            found = solve(self.acceptance.confidence(name), prices, step)
            self._stopping_tables[key] = found
        return found

    def _as_plan(
        self, view: View, option: Option, rows: int, rate: float, *, others: int
    ) -> DraftPlan:
        local = view.local
        if option.extend is None:
            return DraftPlan(option.base, None, 0, _never)
        name = option.extend.name
        stopping_table = self._stopping_table(name, rows, rate, view.cells)
        based = self.acceptance.survival(option.base.signals, local)

        def worth(signals: Sequence[Signal]) -> bool:
            if not signals:
                return True
            survival = list(based)
            alive = based[-1] if based else 1.0
            target_confidence = view.expected_target_confidence
            for signal in signals:
                chance = self.acceptance.estimate(signal, local)
                alive *= chance
                survival.append(alive)
                target_confidence = news(target_confidence, chance)
            return stopping_table.goes_on(survival, target_confidence)

        share, change = shares(self.costs, name, view.cells)
        least = max(_GUESS_LEAST, share)

        def along(guess: Draft) -> int:
            survival = self.acceptance.survival(guess.signals, local)
            count = sum(1 for _ in takewhile(lambda alive: alive > least, survival))
            return count if sum(survival[:count]) - count * share > change else 0

        read = option.read
        if others:  # each of them may read as much in the same forward
            row = (1 + others) * self.costs.draft(name, READ_ROWS + 1, 0, view.cells) / READ_ROWS
            read = min(read, max(int(STALL_SECONDS / row), WINDOW // 2))
        rises = self._batch_cost.rises(rows, option.nodes + 1, view.cells)
        siblings = view.trees and rate * (rises[-1] - rises[-2]) < _SIBLING
        return DraftPlan(
            option.base, name, option.budget, worth, along, read, option.skip, siblings
        )

    # --- after drafting ---------------------------------------------------------------------------

    def trees(self, views: Sequence[View], drafts: Sequence[Draft]) -> list[Draft]:
        """Each draft with the other free chains grafted in, the likeliest nodes first."""
        grown = [
            self.acceptance.tree(draft, view.free, view.local) if view.trees else draft.trunk()
            for view, draft in zip(views, drafts, strict=True)
        ]
        return [draft.head(view.budget) for view, draft in zip(views, grown, strict=True)]

    def cut(self, views: Sequence[View], drafts: Sequence[Draft], other_rows: int = 0) -> list[int]:
        """How many leading nodes of each draft to verify.

        The cost of drafting is spent and plays no part. Nodes that were drawn from a law are always
        verified (`Draft.drawn`): the choice was whether to draw them.
        """
        for view, draft in zip(views, drafts, strict=True):
            view.decision.proposed = draft.trunk()
        if not any(drafts):
            return [0] * len(drafts)
        candidates = []
        for view, draft in zip(views, drafts, strict=True):
            survival = self.acceptance.survival_of(draft, view.local)
            least = max(draft.drawn, int(view.always and len(draft) > 0))
            candidates.append(Candidate(survival, least, view.cells))
        others = [other_rows] if other_rows else []
        margin = ADVANTAGE * len(views)
        return cut(candidates, self._batch_cost, self._rate(views), others, margin)

    def even(self, rows: Sequence[int]) -> bool:
        """Whether all sessions should have as many rows as the one with the most of these."""
        return self._batch_cost.even(rows)

    def paid(self, views: Sequence[View], nodes: Sequence[int], other_rows: int = 0) -> list[int]:
        """How many nodes can be added to each draft for next to nothing, while such nodes pay."""
        stats = [view.stats for view in views]
        if self._plain or other_rows or self.costs.copy_seconds is not None:
            return [0] * len(views)
        more = [
            count if each is not None and each.filling.left > 0 else 0
            for each, count in zip(stats, spare(self._batch_cost, nodes), strict=True)
        ]
        if any(more):
            seconds = added_seconds(self._batch_cost, nodes, more)
            cost = max(self._rate(views) * seconds / sum(more), LEAST_CHANCE)
            for each, count in zip(stats, more, strict=True):
                if each is not None:
                    each.filling.book(-cost * count)
        return more

    def padded(self, rows: int) -> int:
        """How many rows to decode at least, in a round that needs `rows`, after `cut`."""
        return rows if self._plain else self._batch_cost.padded(rows)

    # --- afterwards -------------------------------------------------------------------------------

    def observe(self, round_: Round) -> None:
        """Learn from one round, whose decode must not have read a prompt as well."""
        self.feedback.observe(round_, self._batch_cost)
        self._rounds += 1
        if self._rounds % _KEPT_ROUNDS == 0:
            self._stopping_tables.clear()


def _never(_signals: Sequence[Signal]) -> bool:
    return False
