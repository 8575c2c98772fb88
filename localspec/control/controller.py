"""The decision of every round: which source drafts, and how many nodes are verified.

A round is worth its expected committed tokens, less what its seconds bring at the session's rate
(Dinkelbach, 1967: who maximises that every round maximises tokens per second over many). `plan`
takes the argmax over plain decoding, each free chain, a neural chain, and a free chain continued by
neural tokens; `cut` decides how much of the drafts shares the decode; `observe` learns. No clock,
no I/O, no model: what it knows came through `observe`, and the same history gives the same
decisions.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import takewhile
from operator import attrgetter
from typing import Any

from localspec.control import reading
from localspec.control.acceptance import Acceptance
from localspec.control.asking import lead
from localspec.control.costs import Costs
from localspec.control.cutting import Candidate, cut
from localspec.control.forwards import Layout
from localspec.control.ledger import Ledger
from localspec.control.option import NONE, Option, handovers
from localspec.control.outlook import DEPTH, Prospect, news, solve
from localspec.control.round import (
    RECURRING_READS,
    Drafted,
    Judged,
    Memory,
    Neural,
    Plan,
    Round,
    View,
)
from localspec.control.scheduler import MIN_CHUNK_ROWS, chunk_rows
from localspec.control.split import of_round
from localspec.control.tariff import Hope, Tariff
from localspec.control.window import REPAID, WINDOW, gap
from localspec.types import READ_ROWS, Draft, Signal

__all__ = ["Controller", "Drafted", "Judged", "Memory", "Neural", "Plan", "Round", "View"]

ADVANTAGE = 1.1
"""A draft must promise this much over plain decoding: the best of noisy promises is an optimist."""
_REPAID = 1.6
"""How many times over what a source must read first has to be repaid: both sides are guesses."""
_GUESS_LEAST = 0.25
"""A less likely guess is not read along: a few rows more may cost a forward much more than reading
a prompt tells."""
_GUESS_COST = 0.15
"""Nor is a source asked for one that takes longer, as a share of the forward that reads it."""
_GRAIN = 0.1
"""Prospects are solved for rates this far apart (as logarithms), and kept for some rounds."""
_KEPT_ROUNDS = 64
_CELLS_GRAIN = 256
"""And for texts that differ in length by less than this."""

_LIKELY = 1 / 64
"""Nobody pays for verifying a node that survives less often, wherever rows cost anything."""


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
        self.ledger = Ledger(costs, acceptance, multiple)
        self._multiple = multiple
        self._layout: Layout = layout
        self._tariff = self._steady = Tariff(costs, multiple, multiple=multiple)
        self._prospects: dict[tuple[Any, ...], Prospect] = {}
        self._rounds = 0
        self._plain = False

    def arrange(self, multiple: int, layout: Layout) -> None:
        """Rows are put into forwards in another way from now on. Between rounds."""
        self._multiple = self.ledger.multiple = multiple
        self._layout = layout
        self._tariff = self._steady = Tariff(self.costs, multiple, multiple=multiple)
        self._prospects.clear()

    def open_session(self) -> Memory:
        """A memory for one request; put it into each of its views."""
        return Memory.after(self.ledger.copies, self.ledger.brings)

    # --- before drafting --------------------------------------------------------------------------

    def asks(self, name: str, memory: Memory | None, beside: str | None = None) -> bool:
        """Whether that is worth its while; always where nothing is remembered.

        A guess spares the source beside it a forward at most, and not often.
        """
        takes = self.ledger.takes(name)
        if beside is not None:
            return takes < _GUESS_COST * self.costs.draft(beside, 1, 1)
        if memory is None or not takes:
            return True
        return not self.ledger.plain_due and self.ledger.asking(name, memory).due(takes)

    def likely(self, memory: Memory | None) -> Callable[[Sequence[Signal]], bool]:
        """Whether a free chain may be worth another node: while all of it may well survive."""
        local = memory.local if memory is not None else None
        alive = 1.0

        def goes_on(signals: Sequence[Signal]) -> bool:
            nonlocal alive
            if signals:
                alive *= self.acceptance.estimate(signals[-1], local)
            return alive > _LIKELY

        return goes_on

    def plan(self, views: Sequence[View], other_rows: int = 0, before: int = 0) -> list[Plan]:
        """Who drafts for each session. Call once a round: it is remembered what was promised.

        `other_rows` of prefill share the decode, and the target's latest forward had `before`.
        Sessions are planned in order, each with the rows that those before it are expected to take.
        """
        needs = [self._multiple] * len(views) + [other_rows] * (other_rows > 0)
        hopes = [
            Hope(view.memory.brings, view.remaining / 2)
            for view in views
            if view.memory is not None
        ]
        self._tariff = tariff = of_round(
            self.costs, needs, before, hopes, self._multiple, self._layout
        )
        self._steady = tariff.steady
        forced = any(view.always for view in views)
        self._plain = self.ledger.plain_due and not other_rows and not forced
        if self._plain:
            return [_PLAIN] * len(views)
        rate = self._rate(views)
        plans = []
        for place, view in enumerate(views):
            self._tariff = tariff.seen_by(place, needs)
            self._steady = self._tariff.steady
            rows = sum(needs)
            option = self._choose(view, view.memory or Memory(), rows, rate)
            plans.append(self._as_plan(view, option, rows, rate, others=len(views) - 1))
            needs[place] += tariff.extra_rows(option.nodes)
        self._tariff, self._steady = tariff, tariff.steady
        return plans

    def wants(self, views: Sequence[View], other_rows: int = 0, before: int = 0) -> bool:
        """Whether `plan` would have anybody draft. Nothing is promised by that."""
        plans = self.plan(views, other_rows, before)
        for view in views:
            if view.memory is not None:
                view.memory.staked = None
        return any(plan.base or plan.extend for plan in plans)

    def _rate(self, views: Sequence[View]) -> float:
        """Tokens per second at which time is charged: the sessions' present pace, or plain's."""
        looks = self._multiple * sum(view.cells for view in views)
        plain = len(views) / (self._tariff.plain(len(views), looks) + self.costs.host_seconds)
        paces = [view.memory.pace if view.memory is not None else 0.0 for view in views]
        pace = sum(paces) / self.costs.target(1) if paces and min(paces) > 0 else 0.0
        return max(plain, pace)

    def _left(self, view: View, memory: Memory) -> float:
        """Seconds that this session may still lose, by its own clock."""
        return memory.stake.left(view.elapsed_seconds)

    def _risk(self, view: View, memory: Memory, rate: float) -> float:
        """Seconds that this session may lose by one draft."""
        if view.always:
            return math.inf
        return min(self._left(view, memory), self.ledger.left / rate)

    def _choose(self, view: View, memory: Memory, rows: int, rate: float) -> Option:
        """The option of most worth.

        All have to promise more by what such promises have lately been false by, and a neural one
        more than the best free chain; the rest of the session must repay what it has to read first.
        """
        chains = [
            (chain, self.acceptance.survival(chain.signals, memory.local)) for chain in view.free
        ]
        left, risk = self._left(view, memory), self._risk(view, memory, rate)
        doubted = memory.copies_cost
        if not self._tariff.free and memory.asking.keys() <= view.asked.keys():
            self.ledger.hope(memory, [survival for _, survival in chains], rate)
        copies = [
            self._copy(chain, survival, rows, doubted * rate, view.cells, risk, memory.copies.kept)
            for chain, survival in chains
        ]
        free = max(copies, key=attrgetter("worth"), default=Option())
        if free.worth <= 0 and doubted > 1 and not view.always:
            free = Option()  # `cut` believes what is promised
        promises = [*self._neural(view, chains, rows, rate)]
        if view.asked:
            self._weigh(view, memory, copies, promises, rate)
        neural = self._affordable(promises, view, rows, risk)
        if neural is None or neural.extend is None:
            return free
        cost = neural.gain - neural.worth
        copied = free.gain - (free.gain - free.worth) / doubted
        lead = neural.worth - memory.neural.doubt * cost - max(copied, 0.0)
        memory.begin(max(0.0, lead) / (1 + neural.gain))
        source = neural.extend
        backlog = reading.backlog_seconds(self.costs, source, view.cells)
        lasts = view.remaining / rate
        reads = lasts - reading.wait_seconds(self.costs, source, view, backlog - left)
        pays = lead > 0 and reads > 0 and _REPAID * backlog <= memory.saving * reads
        if not pays and not view.always:
            saved = memory.saving * lasts if lead > 0 and backlog > left else 0.0
            return self._windowed(neural, view, rows, risk, saved) or free
        if not pays and free.base.tokens:
            return free
        if source.pending <= RECURRING_READS:
            memory.bet(neural.worth, cost, rate)
            return neural
        read = min(reading.readable(self.costs, source, view, left), READ_ROWS)
        if read >= source.pending:
            return neural
        return replace(free, extend=source, budget=view.budget, read=read) if read else free

    def _weigh(
        self,
        view: View,
        memory: Memory,
        copies: Sequence[Option],
        promises: Sequence[Option],
        rate: float,
    ) -> None:
        """What sources brought for which somebody waited: by this they are asked again."""
        options: list[tuple[str | None, float]] = [
            (chain.signals[0].source, max(copy.wish, copy.worth))
            for chain, copy in zip(view.free, copies, strict=True)
        ]
        options += [
            (each.base.signals[0].source if each.base else None, each.worth)
            for each in promises
            if each.extend and each.extend.pending <= RECURRING_READS
        ]
        for name, seconds in view.asked.items():
            self.ledger.asked(name, memory, seconds, lead(name, options) / rate)

    def _copy(  # noqa: PLR0913, PLR0917 — a chain, and what it is weighed by
        self,
        chain: Draft,
        survival: Sequence[float],
        rows: int,
        rate: float,
        cells: int,
        risk: float,
        kept: float,
    ) -> Option:
        """A free chain cut where it is worth most; `base` is all of it that may be risked.

        What it would be worth at home decides whether its source is asked again, by what is `kept`
        of such promises: a failed draft is over, but asking costs in every round.
        """
        gain, best, most, wish = 0.0, (-math.inf, 0.0, 0), 0, -math.inf
        rises, steady = self._rises(rows, len(survival), cells)
        undoing = self._tariff.undoing(survival)
        for nodes, alive in enumerate(survival, start=1):
            gain += alive
            back = undoing[nodes]
            rise = rises[nodes] + back.seconds
            wish = max(wish, kept * gain - rate * (steady[nodes] + back.seconds))
            if max(rises[nodes], steady[nodes]) + back.most <= risk:
                best, most = max(best, (gain - rate * rise, gain, nodes)), nodes
        return Option(chain.head(most), None, *best, wish=wish)

    def _rises(self, rows: int, nodes: int, cells: float) -> tuple[list[float], list[float]]:
        """Seconds by nodes to verify, with changes of rows and as if these were free."""
        rises = self._tariff.rises(rows, nodes, cells)
        return rises, rises if self._tariff.free else self._steady.rises(rows, nodes, cells)

    def _neural(
        self, view: View, chains: Sequence[tuple[Draft, list[float]]], rows: int, rate: float
    ) -> Iterator[Option]:
        """Each neural source from the root, and after each free chain, whatever that may risk."""
        for source in view.neural:
            ease = view.expected_ease
            prospect = self._prospect(source.name, rows, rate, view.cells)
            bases: list[tuple[Draft, list[float]]] = [(NONE, [])]
            bases += [
                (chain.head(nodes), survival[:nodes])
                for chain, survival in chains
                for nodes in handovers(survival, ease)
                if nodes < DEPTH
            ]
            for base, survival in bases:
                seconds, stride = reading.each_round(self.costs, source, len(base), view.cells)
                worth, gain = prospect.ahead(ease, survival)
                nodes = round(gain) + 1
                yield Option(base, source, worth - rate * seconds, gain, nodes, stride=stride)

    def _affordable(
        self, options: Iterable[Option], view: View, rows: int, risk: float
    ) -> Option | None:
        """The most promising one that may be risked, with the nodes that may be drafted for it."""
        for option in sorted(options, key=attrgetter("worth"), reverse=True):
            if budget := self._budget(option, view, rows, risk):
                return replace(option, budget=budget)
        return None

    def _budget(self, option: Option, view: View, rows: int, risk: float) -> int:
        """How many nodes an option may draft behind its base, if all of it may turn out wrong."""
        source, nodes = option.extend, len(option.base)
        assert source is not None  # noqa: S101 — it is a neural one
        risk -= reading.each_round(self.costs, source, nodes, view.cells)[0]
        step = self.costs.draft(source.name, 1, 1, view.cells)
        most = min(view.budget, DEPTH) - nodes
        for budget in range(most, 0, -1):
            rises = (
                tariff.rise(rows, nodes + budget, view.cells)
                for tariff in (self._tariff, self._steady)
            )
            if budget * step + max(rises) <= risk:
                return view.budget - nodes if budget == most else budget
        return 0

    def _windowed(
        self, option: Option, view: View, rows: int, risk: float, saved: float
    ) -> Option | None:
        """A neural option that reads the end of the text alone, where that may be risked and pays.

        `saved` are the seconds that drafts are going to save.
        """
        source = option.extend
        assert source is not None  # noqa: S101 — it is a neural one
        seconds = self.costs.draft(source.name, WINDOW, 0, view.cells)
        if not (skip := gap(source)) or REPAID * seconds > saved:
            return None
        budget = self._budget(option, view, rows, risk - seconds)
        return replace(option, budget=budget, skip=skip) if budget else None

    def _prospect(self, name: str, rows: int, rate: float, cells: int) -> Prospect:
        """The solved stopping problem of a source, for this decode and about this rate."""
        grain, span = round(math.log(rate) / _GRAIN), round(cells / _CELLS_GRAIN)
        tariff = self._tariff
        seen = tariff.home, tariff.before, tariff.repays, tariff.beside
        key = name, rows, grain, span, *seen
        found = self._prospects.get(key)
        if found is None:
            about, cells = math.exp(grain * _GRAIN), span * _CELLS_GRAIN
            prices = [about * rise for rise in tariff.rises(rows, DEPTH, cells)]
            step = about * self.costs.draft(name, 1, 1, cells)
            found = solve(self.acceptance.outlook(name), prices, step)
            self._prospects[key] = found
        return found

    def _as_plan(self, view: View, option: Option, rows: int, rate: float, *, others: int) -> Plan:
        local = view.local
        if option.extend is None:
            return Plan(option.base, None, 0, _never)
        name = option.extend.name
        prospect = self._prospect(name, rows, rate, view.cells)
        based = self.acceptance.survival(option.base.signals, local)

        def worth(signals: Sequence[Signal]) -> bool:
            if not signals:
                return True
            survival = list(based)
            alive = based[-1] if based else 1.0
            ease = view.expected_ease
            for signal in signals:
                chance = self.acceptance.estimate(signal, local)
                alive *= chance
                survival.append(alive)
                ease = news(ease, chance)
            return prospect.goes_on(survival, ease)

        share, change = reading.shares(self.costs, name, view.cells)
        least = max(_GUESS_LEAST, share)

        def along(guess: Draft) -> int:
            survival = self.acceptance.survival(guess.signals, local)
            count = sum(1 for _ in takewhile(lambda alive: alive > least, survival))
            return count if sum(survival[:count]) - count * share > change else 0

        stride, read = option.stride, option.read
        if others:  # and each of them may read as much, in the same forward
            row = (1 + others) * self.costs.draft(name, READ_ROWS + 1, 0, view.cells) / READ_ROWS
            most = chunk_rows(row, alone=False, most=READ_ROWS)
            stride, read = READ_ROWS, min(read, max(most, MIN_CHUNK_ROWS))
        return Plan(option.base, name, option.budget, worth, along, read, stride, skip=option.skip)

    # --- after drafting ---------------------------------------------------------------------------

    def cut(self, views: Sequence[View], drafts: Sequence[Draft], other_rows: int = 0) -> list[int]:
        """How many leading nodes of each draft to verify.

        What drafting cost is spent: it changes nothing any more. What was drawn from a law is
        verified (`Draft.drawn`); whether to draw it was the choice.
        """
        for view, draft in zip(views, drafts, strict=True):
            if view.memory is not None:
                view.memory.proposed = draft
        if not any(drafts):
            return [0] * len(drafts)
        candidates = []
        for view, draft in zip(views, drafts, strict=True):
            survival = self.acceptance.survival(draft.signals, view.local)
            least = max(draft.drawn, int(view.always and len(draft) > 0))
            candidates.append(Candidate(survival, least, view.cells))
        others = [other_rows] if other_rows else []
        margin = (ADVANTAGE - 1) * len(views)
        return cut(candidates, self._tariff, self._rate(views), others, margin)

    def even(self, rows: Sequence[int]) -> bool:
        """Whether all sessions should have as many rows as the one with the most of these."""
        return self._tariff.even(rows)

    def padded(self, rows: int) -> int:
        """How many rows to decode at least, in a round that needs `rows`, after `cut`."""
        return rows if self._plain else self._tariff.padded(rows)

    # --- afterwards -------------------------------------------------------------------------------

    def observe(self, round_: Round) -> None:
        """Learn from one round; nothing in it may belong to a decode that also prefilled."""
        self.ledger.observe(round_, self._tariff)
        self._rounds += 1
        if self._rounds % _KEPT_ROUNDS == 0:
            self._prospects.clear()


def _never(_signals: Sequence[Signal]) -> bool:
    return False


_PLAIN = Plan(NONE, None, 0, _never)
