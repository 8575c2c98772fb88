"""What a round teaches: it is booked against plain decoding, and all that it showed is learned."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, takewhile

from localspec.control.acceptance import Acceptance
from localspec.control.asking import BENEFIT, Asking
from localspec.control.costs import STEADY, Costs
from localspec.control.guard import Account, Pace
from localspec.control.option import NONE
from localspec.control.promises import Promises
from localspec.control.round import (
    LEVELS,
    NOTHING,
    RECURRING_READS,
    Drafted,
    Judged,
    Memory,
    Round,
    View,
    blended,
)
from localspec.control.tariff import Tariff
from localspec.types import Draft, Token

_BRINGS_SHARE = 0.02
"""Of what a round shows, in what a new answer begins with."""
_ASKED_SHARE = 0.02
"""Of what asking took and brought, in what that is taken to be."""
_HELD_UP = 6.0
"""No token that is read or drafted is dearer than one of plain decoding. A round that takes so many
tokens more was held up by something else, a stopped process or a neighbour."""


class Ledger:
    """Costs, chances and what bets have brought, after every round. Its controller's own.

    Args:
        costs: The machine's curves; learns from every round.
        acceptance: What the sources are worth; learns from every round.
        multiple: Every session's rows are padded to a multiple of this.
    """

    def __init__(self, costs: Costs, acceptance: Acceptance, multiple: int) -> None:
        self.pace = Pace()
        self.account = Account()
        self.copies = Promises()
        self.brings = NOTHING
        self._takes: dict[str, float] = {}
        self._brings: dict[str, float] = {}
        self._costs = costs
        self._acceptance = acceptance
        self.multiple = multiple

    @property
    def left(self) -> float:
        """Tokens of plain decoding that bets may still lose."""
        return self.account.left

    @property
    def plain_due(self) -> bool:
        """Whether nobody may bet: plain decoding is to be measured, or too much was lost."""
        return self.pace.due or self.left <= 0.0

    def takes(self, name: str) -> float:
        """Seconds that asking a source takes; 0 while that is not known."""
        return self._takes.get(name, 0.0)

    def asking(self, name: str, memory: Memory) -> Asking:
        """What that brings in this session."""
        if name not in memory.asking:
            memory.asking[name] = Asking(self._brings.get(name, BENEFIT * self.takes(name)))
        return memory.asking[name]

    def asked(self, name: str, memory: Memory, took: float, brought: float) -> None:
        """A source was asked, and that is what came of it, in seconds."""
        self.asking(name, memory).brought(brought)
        self._takes.setdefault(name, took)
        self._brings.setdefault(name, BENEFIT * took)
        for known, seconds in ((self._takes, took), (self._brings, brought)):
            known[name] += _ASKED_SHARE * (seconds - known[name])

    def hope(self, memory: Memory, chains: Sequence[Sequence[float]], rate: float) -> None:
        """What this round's free chains would bring if rows were there, by how likely they survive.

        In time at `rate`, and as much of it as such promises are kept.
        """
        sums = [[*accumulate(survival, initial=0.0)] for survival in chains]
        seconds = [
            memory.copies.kept / rate * max((each[: nodes + 1][-1] for each in sums), default=0.0)
            for nodes in LEVELS
        ]
        memory.hoped(seconds)
        self.brings = blended(self.brings, seconds, _BRINGS_SHARE)

    def observe(self, round_: Round, tariff: Tariff) -> None:
        """Learn from one round, which was decided by `tariff`."""
        looks = sum(
            (self.multiple + tariff.extra_rows(len(judged.draft))) * view.cells
            for view, judged in zip(round_.views, round_.judged, strict=True)
        )
        seconds = round_.target_seconds + round_.host_seconds + round_.copy_seconds
        seconds += sum(drafted.seconds for drafted in round_.drafted) + round_.asked_seconds
        self._book(round_, seconds, tariff)
        if round_.regular:
            self._costs.measured(round_.rows, round_.target_seconds, looks, round_.alike)
        if round_.copies:
            self._costs.measured_copy(round_.copy_seconds / round_.copies)
        more = sum(tariff.extra_rows(len(judged.draft)) for judged in round_.judged)
        self._costs.measured_host(round_.host_seconds, more)
        for drafted in round_.drafted:
            self._costs.measured_draft(
                drafted.name,
                drafted.pending + drafted.guessed,
                drafted.depth,
                drafted.seconds,
                drafted.cells,
                drafted.changes,
            )
        memories = [view.memory for view in round_.views if view.memory is not None]
        together = sum(memory.staked is not None for memory in memories)
        for view, judged, committed in zip(
            round_.views, round_.judged, round_.committed, strict=True
        ):
            if view.memory is not None:
                view.memory.advance(len(committed), seconds / self._costs.target(1))
            self._settle(round_, view, judged, tariff, together)
            self._settle_copy(view, judged, tariff)
            self._learn_acceptance(view, judged, committed)

    def _book(self, round_: Round, seconds: float, tariff: Tariff) -> None:
        """Gain or loss against plain decoding, as that was last measured."""
        plain_rows = self._plain_rows(round_.views, tariff)
        kept = [len(tokens) for tokens in round_.committed]
        plain = not round_.drafted and not any(judged.draft for judged in round_.judged)
        plain = plain and round_.rows == len(kept) * self.multiple
        steady = plain and round_.alike >= STEADY  # whatever is believed of changes
        if steady:
            self.pace.measured(seconds - round_.asked_seconds, plain_rows)
        elif not plain:
            self.pace.passed()
        one_seconds = plain_rows / len(kept) * self._row_seconds()
        seconds = min(seconds, (_HELD_UP + _tokens(round_)) * one_seconds)
        if not plain or round_.asked_seconds:
            expected = len(kept) + sum(
                sum(self._acceptance.survival(judged.draft.signals, view.local))
                for view, judged in zip(round_.views, round_.judged, strict=True)
            )
            spent = seconds - sum(map(self._backlog_seconds, round_.drafted))
            self.account.book(expected, spent / one_seconds)
        self.account.earn(sum(kept))
        plain_seconds = plain_rows * self._row_seconds()
        if steady:
            plain_seconds = seconds - min(round_.asked_seconds, seconds)
        for view, tokens in zip(round_.views, kept, strict=True):
            if view.memory is not None:
                view.memory.stake.advance(seconds, tokens * plain_seconds)

    def _settle(
        self, round_: Round, view: View, judged: Judged, tariff: Tariff, together: int
    ) -> None:
        """What a session's neural draft proposed and really gave, for what it cost.

        Sessions that drafted `together` share its forwards evenly. What the source had to catch up
        with is no cost of this draft: it was weighed against the rest of the session before.
        """
        if view.memory is None:
            return
        proposed, view.memory.proposed = view.memory.proposed, NONE
        names = {neural.name for neural in view.neural}
        drafted = [signal for signal in proposed.signals if signal.source in names]
        if drafted:
            local = view.memory.local
            chances = [self._acceptance.estimate(signal, local) for signal in drafted]
            self._acceptance.outlook(drafted[0].source).observe(chances, view.expected_ease)
        seconds = sum(
            self._costs.draft(
                each.name,
                min(each.pending, RECURRING_READS) + each.guessed,
                max(each.depth, 1),  # who was asked and has nothing to say took a forward too
                each.cells,
            )
            for each in round_.drafted
            if each.name in names
        )
        nodes = len(judged.draft)
        rise = tariff.price(tariff.home, nodes, 1.0, view.cells)
        view.memory.settle(judged.accepted, seconds / max(together, 1) + rise)

    def _settle_copy(self, view: View, judged: Judged, tariff: Tariff) -> None:
        """What the free part of a draft gave of what it promised."""
        if view.memory is None:
            return
        view.memory.forgive_copies()
        neural = {source.name for source in view.neural} if judged.draft else ()
        signals = [*takewhile(lambda signal: signal.source not in neural, judged.draft.signals)]
        if not signals:
            return
        promised = sum(self._acceptance.survival(signals, view.local))
        missing = promised - min(judged.accepted, len(signals))
        cost = tariff.price(tariff.home, len(signals), 1 / self._row_seconds(), view.cells)
        for copies in (view.memory.copies, self.copies):
            copies.settle(missing, cost, promised)

    def _learn_acceptance(self, view: View, judged: Judged, committed: Sequence[Token]) -> None:
        """Every free chain against the text, then what only the verified draft shows."""
        local = view.local
        shown = 0
        for chain in view.free:
            for token, signal, truth in zip(chain.tokens, chain.signals, committed, strict=False):
                self._acceptance.observe(signal, token == truth, local)
                if token != truth:
                    break
            shown = max(shown, _common(chain, judged.draft))
        for node in range(shown, min(judged.accepted + 1, len(judged.draft))):
            self._acceptance.observe(judged.draft.signals[node], node < judged.accepted, local)

    def _plain_rows(self, views: Sequence[View], tariff: Tariff) -> float:
        """What a plain round of these sessions takes, in forwards of one row and nothing else."""
        looks = self.multiple * sum(view.cells for view in views)
        seconds = tariff.plain(len(views), looks)
        return (seconds + self._costs.host_seconds) / self._costs.target(1)

    def _backlog_seconds(self, drafted: Drafted) -> float:
        """What the source had to catch up with: weighed before against the rest of the session."""
        backlog = max(0, drafted.pending - RECURRING_READS)
        reading = self._costs.draft(drafted.name, backlog + 1, 0, drafted.cells)
        return min(drafted.seconds, reading) if backlog else 0.0

    def _row_seconds(self) -> float:
        return self.pace.seconds(self._costs.target(1))


def _tokens(round_: Round) -> int:
    """All that was read and drafted in a round, and how often somebody was asked or copied."""
    drafted = sum(each.pending + each.guessed + each.depth for each in round_.drafted)
    asked = sum(len(view.asked) for view in round_.views)
    return round_.rows + drafted + asked + round_.copies


def _common(chain: Draft, draft: Draft) -> int:
    """How many leading nodes the draft took over from the chain."""
    count = 0
    for mine, theirs in zip(
        zip(chain.tokens, chain.signals, strict=True),
        zip(draft.tokens, draft.signals, strict=True),
        strict=False,
    ):
        if mine != theirs:
            break
        count += 1
    return count
