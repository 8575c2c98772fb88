"""Learns from a round: books it against plain decoding, then corrects costs and chances."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import accumulate, takewhile
from typing import NamedTuple

from localspec.control.acceptance import Acceptance, AcceptanceBias
from localspec.control.batch_cost import CAUTION, BatchCost
from localspec.control.costs import STEADY, Costs
from localspec.control.memory import RECENT, SESSION, blended, moved
from localspec.control.regret import INCOME, Outliers, PlainBaseline, PolicyRegret, usual
from localspec.control.round import (
    LEVELS,
    RECURRING_READS,
    Drafted,
    Round,
    SessionStats,
    SlowSource,
    VerifiedDraft,
    View,
)
from localspec.control.trees import depths, path
from localspec.types import LOOKAHEAD, Draft, Token

DRAFTERS = "drafters"
"""The name of all drafters together, as one source that takes the host some time to ask."""
_LONGEST_ASKING, _MOST_BROUGHT = 4.0, 10.0
"""Bounds of one observation of asking: its time as a multiple of the usual one, its saving as a
multiple of its time. Even so, after one long copy drafters are asked in vain for some fifty rounds.
"""
_HELD_UP = 6.0
"""A token read or drafted costs at most one of plain decoding. A round that takes the time of this
many tokens more was held up by something else, a stopped process or another program."""


class _Part(NamedTuple):
    """A forward of a round: its kind, its seconds, those believed, and whether it was a first."""

    kind: str
    seconds: float
    believed: float
    first: bool


class PolicyFeedback:
    """Learns costs, acceptance and savings after every round. Owned by one controller.

    Args:
        costs: The machine's curves; learns from every round.
        acceptance: What the sources are worth; learns from every round.
        multiple: Every session's rows are padded to a multiple of this.
    """

    def __init__(self, costs: Costs, acceptance: Acceptance, multiple: int) -> None:
        self.baseline = PlainBaseline()
        self.regret = PolicyRegret()
        self.outliers = Outliers()
        self.copies = AcceptanceBias()
        self.expected_saving: tuple[float, ...] = (0.0,) * len(LEVELS)
        self._slow: dict[str, tuple[float, float]] = {}
        self._costs = costs
        self._acceptance = acceptance
        self.multiple = multiple

    @property
    def left(self) -> float:
        """Tokens of plain decoding that drafts may still lose."""
        return self.regret.left

    @property
    def plain_due(self) -> bool:
        """Whether no session may draft: plain decoding is to be measured, or too much was lost."""
        return self.baseline.due or self.left <= 0.0

    def takes(self, name: str) -> float:
        """Seconds that asking a source takes; 0 while that is not known."""
        return self._slow.get(name, (0.0, 0.0))[0]

    def asking(self, name: str, stats: SessionStats) -> SlowSource:
        """The savings of that source in this session: at first no more than asking takes.

        If a session began with the savings of other answers, the real pair on a simulated H200
        would have .94 of plain decoding for translation instead of .99, and 1.39 for all slices
        instead of 1.46.
        """
        return stats.asking.setdefault(name, SlowSource(min(self._slow.get(name, (0.0, 0.0)))))

    def asked(self, name: str, stats: SessionStats, took: float, brought: float) -> None:
        """Learn the time and the saving of one call of a slow source, in seconds."""
        self.asking(name, stats).brought(brought)
        known = self._slow.get(name, (took, CAUTION * took))
        self._slow[name] = moved(known[0], took, SESSION), moved(known[1], brought, SESSION)

    def expect_saving(
        self, stats: SessionStats, chains: Sequence[Sequence[float]], rate: float
    ) -> None:
        """Learn what this round's free chains would save if changes of rows were free.

        The saving follows from their survival, in seconds at `rate`, times the share of such
        promises that was kept lately.
        """
        sums = [[*accumulate(survival, initial=0.0)] for survival in chains]
        seconds = [
            stats.copies.kept / rate * max((each[: nodes + 1][-1] for each in sums), default=0.0)
            for nodes in LEVELS
        ]
        stats.expected_saving = blended(stats.expected_saving, seconds, RECENT)
        self.expected_saving = blended(self.expected_saving, seconds, SESSION)

    def observe(self, round_: Round, batch_cost: BatchCost) -> None:
        """Learn from one round, which was decided by `batch_cost`."""
        attended = sum(
            (self.multiple + batch_cost.extra_rows(len(judged.draft))) * view.cells
            for view, judged in zip(round_.views, round_.judged, strict=True)
        )
        more = sum(batch_cost.extra_rows(len(judged.draft)) for judged in round_.judged)
        parts = self._parts(round_, attended, more)
        seconds = round_.target_seconds + round_.host_seconds + round_.copy_seconds
        seconds += sum(drafted.seconds for drafted in round_.drafted) + round_.asked_seconds
        self._book(round_, parts, seconds, batch_cost)
        self._learn_costs(round_, attended, more)
        bets = [view.decision.bet for view in round_.views]
        together = Counter(bet.source for bet in bets if bet is not None)
        for view, judged, committed in zip(
            round_.views, round_.judged, round_.committed, strict=True
        ):
            if view.stats is not None:
                view.stats.advance(len(committed), seconds / self._costs.target(1))
            self._observe_neural(round_, view, judged, batch_cost, together)
            self._observe_copy(view, judged.draft.trunk(), committed, batch_cost)
            self._learn_acceptance(view, judged, committed)
            if view.stats is not None:
                view.stats.filling.book(_by(LOOKAHEAD, judged.draft, committed))

    def _learn_costs(self, round_: Round, attended: float, more: int) -> None:
        """Learn the times of a round's parts; of a first forward no more than is usual."""
        costs = self._costs
        if round_.regular:
            seconds = round_.target_seconds
            if round_.first:
                seconds = usual(seconds, costs.target(round_.rows, attended))
            costs.measured(round_.rows, seconds, attended, round_.alike)
        if round_.copies:
            costs.measured_copy(round_.copy_seconds / round_.copies)
        costs.measured_host(round_.host_seconds - round_.planning_seconds, more)
        for each in round_.drafted:
            seconds = each.seconds
            if each.first:
                seconds = usual(seconds, self._draft_seconds(each))
            pending = each.pending + each.guessed
            costs.measured_draft(each.name, pending, each.depth, seconds, each.cells, each.changes)

    def _parts(self, round_: Round, attended: float, more: int) -> list[_Part]:
        """A round's forwards: the seconds and believed seconds of each, and whether it was a first.

        The host's work, with `more` rows for drafts, is part of the target's forward.
        """
        costs = self._costs
        changing = costs.change_seconds * (round_.alike == 0)
        host = costs.host_seconds + more * costs.host_row_seconds
        believed = costs.target(round_.rows, attended) + changing + host
        seconds = round_.target_seconds + round_.host_seconds
        return [
            _Part(str(round_.rows), seconds, believed, round_.first),
            *(
                _Part(each.name, each.seconds, self._draft_seconds(each), each.first)
                for each in round_.drafted
            ),
        ]

    def _draft_seconds(self, each: Drafted) -> float:
        pending = each.pending + each.guessed
        return self._costs.draft(each.name, pending, each.depth, each.cells, each.changes)

    def _book(
        self, round_: Round, parts: Sequence[_Part], seconds: float, batch_cost: BatchCost
    ) -> None:
        """Book the gain or loss against plain decoding, as that was last measured."""
        plain_forwards = self._plain_forwards(round_.views, batch_cost)
        kept = [len(tokens) for tokens in round_.committed]
        plain = not round_.drafted and not any(judged.draft for judged in round_.judged)
        plain = plain and round_.rows == len(kept) * self.multiple
        steady = plain and round_.alike >= STEADY  # so it holds no cost of a change of rows
        asking_seconds = round_.asked_seconds + round_.planning_seconds
        if steady:
            self.baseline.measured(seconds - asking_seconds, plain_forwards)
        elif not plain:
            self.baseline.passed()
        one_seconds = plain_forwards / len(kept) * self._row_seconds()
        most = _HELD_UP + _tokens(round_)
        if plain:
            self.outliers.plain(seconds / one_seconds)
        else:
            rest = seconds - sum(part.seconds for part in parts)
            seconds = rest + sum(self._charged(part, most, one_seconds) for part in parts)
        seconds = min(seconds, max(most, self.outliers.repeats) * one_seconds)
        if not plain or round_.asked_seconds:
            expected = len(kept) + sum(
                sum(self._acceptance.survival_of(judged.draft, view.local))
                for view, judged in zip(round_.views, round_.judged, strict=True)
            )
            spent = seconds - sum(map(self._backlog_seconds, round_.drafted))
            self.regret.book(expected, spent / one_seconds)
        self.regret.earn(sum(kept))
        self.outliers.earn(INCOME / 2 * sum(kept))
        plain_seconds = plain_forwards * self._row_seconds()
        if steady:
            plain_seconds = seconds - min(asking_seconds, seconds)
        for view, tokens in zip(round_.views, kept, strict=True):
            if view.stats is not None:
                view.stats.regret_budget.advance(seconds, tokens * plain_seconds)
                self._weigh_asking(round_, view.stats, tokens * plain_seconds - seconds)

    def _weigh_asking(self, round_: Round, stats: SessionStats, saved: float) -> None:
        """Learn whether asking drafters before a forward repays itself in a session.

        The round `saved` so many seconds against plain decoding, with asking as a part of its time.
        """
        if round_.planning_seconds <= 0:
            return
        took = round_.planning_seconds + sum(sum(view.asked.values()) for view in round_.views)
        took = min(took, _LONGEST_ASKING * (self.takes(DRAFTERS) or took))
        brought = min(saved + took, _MOST_BROUGHT * took)
        self._slow.setdefault(DRAFTERS, (took, took))
        self.asked(DRAFTERS, stats, took, max(0.0, brought))

    def _charged(self, part: _Part, most: float, one_seconds: float) -> float:
        """The charged seconds of a part, from which an outlier's excess is forgiven."""
        spent, believed = part.seconds / one_seconds, part.believed / one_seconds
        charged = self.outliers.charged(part.kind, spent, believed, most, first=part.first)
        return charged * one_seconds

    def _observe_neural(
        self,
        round_: Round,
        view: View,
        judged: VerifiedDraft,
        batch_cost: BatchCost,
        together: Mapping[str, int],
    ) -> None:
        """Learn from a session's neural draft: its confidence, its outcome and its cost.

        `together` counts the sessions that drafted by each source: they share its forwards evenly.
        Reading a backlog is no cost of this draft: it was weighed against the rest of the session
        before.
        """
        if view.stats is None:
            return
        names = {neural.name for neural in view.neural}
        drafted = [signal for signal in view.decision.proposed.signals if signal.source in names]
        if drafted:
            local = view.stats.local
            chances = [self._acceptance.estimate(signal, local) for signal in drafted]
            self._acceptance.confidence(drafted[0].source).observe(
                chances, view.expected_target_confidence
            )
        if (bet := view.decision.bet) is None:
            return
        seconds = sum(
            self._costs.draft(
                each.name,
                min(each.pending, RECURRING_READS) + each.guessed,
                max(each.depth, 1),  # a source that was asked in vain took a forward too
                each.cells,
            )
            for each in round_.drafted
            if each.name == bet.source
        )
        nodes = len(judged.draft)
        rise = batch_cost.rise(batch_cost.plain_rows, nodes, view.cells)
        view.stats.observe_draft(bet, judged.accepted, seconds / together[bet.source] + rise)

    def _observe_copy(
        self, view: View, draft: Draft, committed: Sequence[Token], batch_cost: BatchCost
    ) -> None:
        """Learn how far the free part of a draft fell short of its expectation."""
        if view.stats is None:
            return
        view.stats.forgive_copies()
        neural = {source.name for source in view.neural} if draft else ()
        signals = [*takewhile(lambda signal: signal.source not in neural, draft.signals)]
        if not signals:
            return
        promised = sum(self._acceptance.survival(signals, view.local))
        missing = promised - min(len(path(draft, committed)), len(signals))
        rise = batch_cost.rise(batch_cost.plain_rows, len(signals), view.cells)
        for copies in (view.stats.copies, self.copies):
            copies.observe(missing, rise / self._row_seconds(), promised)

    def _learn_acceptance(
        self, view: View, judged: VerifiedDraft, committed: Sequence[Token]
    ) -> None:
        """Learn from every free chain by the text, then from nodes of the verified draft alone."""
        local, draft = view.local, judged.draft
        shown = {
            node
            for chain in view.free
            for node in zip(range(len(chain)), chain.tokens, chain.signals, strict=True)
        }
        for chain in view.free:
            for token, signal, truth in zip(chain.tokens, chain.signals, committed, strict=False):
                self._acceptance.observe(signal, token == truth, local)
                if token != truth:
                    break
        kept = {-1, *path(draft, committed)}
        nodes = zip(depths(draft.parents), draft.tokens, draft.signals, strict=True)
        for node, told in enumerate(nodes):
            if told not in shown and draft.parents[node] in kept and told[0] < len(committed):
                self._acceptance.observe(told[2], node in kept, local)

    def _plain_forwards(self, views: Sequence[View], batch_cost: BatchCost) -> float:
        """The time of a plain round of these sessions, in forwards of one row."""
        attended = self.multiple * sum(view.cells for view in views)
        seconds = batch_cost.plain(len(views), attended)
        return (seconds + self._costs.host_seconds) / self._costs.target(1)

    def _backlog_seconds(self, drafted: Drafted) -> float:
        """Seconds of reading the source's backlog, weighed against the rest of the session."""
        backlog = max(0, drafted.pending - RECURRING_READS)
        reading = self._costs.draft(drafted.name, backlog + 1, 0, drafted.cells)
        return min(drafted.seconds, reading) if backlog else 0.0

    def _row_seconds(self) -> float:
        return self.baseline.seconds(self._costs.target(1))


def _by(source: str, draft: Draft, committed: Sequence[Token]) -> int:
    """The number of committed tokens that one source proposed."""
    return sum(draft.signals[node].source == source for node in path(draft, committed))


def _tokens(round_: Round) -> int:
    """The number of tokens read and drafted in a round, calls of slow sources and copies."""
    drafted = sum(each.pending + each.guessed + each.depth for each in round_.drafted)
    asked = sum(len(view.asked) for view in round_.views)
    return round_.rows + drafted + asked + round_.copies
