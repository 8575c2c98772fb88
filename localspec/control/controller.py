"""The decision of every round: which source drafts, and how many nodes are verified.

It is the argmax of expected committed tokens per second over plain decoding, each free chain, a
neural chain, and a free chain continued by neural tokens. `plan` decides who drafts, `cut` how much
of the drafts shares the decode, `observe` learns. No clock, no I/O, no model: what it knows came
through `observe`, and the same history gives the same decisions.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from localspec.control.acceptance import Acceptance, Local, Yield
from localspec.control.costs import Costs
from localspec.control.round import (
    Drafted,
    Judged,
    Memory,
    Neural,
    Plan,
    Round,
    View,
)
from localspec.types import Draft, Signal, Token

__all__ = ["Controller", "Drafted", "Judged", "Memory", "Neural", "Plan", "Round", "View"]

ADVANTAGE = 1.02
"""A plan must promise this much over plain decoding: the best of noisy promises is an optimist."""

_LOOK_AHEAD = 8
"""Nodes that may be needed to reach the end of a stair that one node alone does not repay."""

_GUESSED_AGREEMENT, _GUESSED_ROUNDS = 0.85, 4.0
_MODEL_ROUNDS = 4.0
"""A source never tried is taken for a middling one for a few rounds, a session for its model."""
_MODEL_MEMORY, _SESSION_MEMORY = 0.98, 0.95
"""Forgetting per round of what drafts gave: the last 50 of the model, the last 20 of a session."""

_RECURRING_READS = 3
"""Tokens a source reads every round anyway; more is a backlog, paid once and used to the end."""

_BEARABLE = 0.1
"""A neural draft may run at this loss for a while; one that loses more is only probed."""


@dataclass(frozen=True, slots=True)
class _Decode:
    """The decode as planned so far: its rows, its expected tokens, the seconds around it."""

    rows: int
    expected: float
    seconds: float


@dataclass(frozen=True, slots=True)
class _Option:
    """One way to spend the round for one session: what it gives and costs beyond plain decoding.

    `seconds` are what drafting adds; `spent` is the whole round, with the backlog of reading that
    `rate` spreads over the rest of the session.
    """

    rate: float
    base: Draft
    alive: float = 1.0
    extend: Neural | None = None
    nodes: float = 0.0
    gain: float = 0.0
    seconds: float = 0.0
    spent: float = 0.0


class Controller:
    """Decides for all sessions of one model. Owned by the engine's thread.

    Args:
        costs: The machine's curves; learns from every round.
        acceptance: What the sources are worth; learns from every round.
        multiple: Every session's rows are padded to a multiple of this.
    """

    def __init__(self, costs: Costs, acceptance: Acceptance, *, multiple: int = 1) -> None:
        self.costs = costs
        self.acceptance = acceptance
        self._multiple = multiple

    def open_session(self) -> Memory:
        """A memory for one request; put it into each of its views."""
        return Memory()

    # --- before drafting --------------------------------------------------------------------------

    def plan(self, views: Sequence[View], other_rows: int = 0) -> list[Plan]:
        """Who drafts for each session. Call once a round: it counts the rounds between probes.

        `other_rows` of prefill share the decode. Sessions are planned in order, each with the rows
        that those before it are expected to take.
        """
        decode = _Decode(
            len(views) * self._multiple + other_rows, len(views), self.costs.host_seconds
        )
        plans = []
        for view in views:
            memory = view.memory or Memory()
            option, rate = self._choose(view, memory, decode)
            plans.append(self._as_plan(view, memory, option, decode, rate))
            decode = _Decode(
                decode.rows + self._extra(round(option.nodes)),
                decode.expected + option.gain,
                decode.seconds + option.seconds,
            )
        return plans

    def _choose(self, view: View, memory: Memory, decode: _Decode) -> tuple[_Option, float]:
        """The option to take, and the best rate that any option promised.

        1. The best neural option, if it beats the best free one and plain decoding.
        2. The same at a loss, if the session can afford to keep it going or to probe it.
        3. The best free chain; how much of it, and whether any, is `cut`'s to say.
        """
        plain = _Option(self._rate(decode), Draft())
        chains = [
            (chain, self.acceptance.survival(chain.signals, memory.local)) for chain in view.free
        ]
        free = max(
            (self._free(chain, survival, decode) for chain, survival in chains),
            key=_rate_of,
            default=plain,
        )
        neural = max(self._neural(view, memory, chains, decode), key=_rate_of, default=None)
        bar = max(free.rate, plain.rate)
        if neural is None:
            return free, bar
        memory.begin(view.remaining / bar)
        loss = self._loss(neural, decode, bar)
        wins = neural.rate > max(free.rate, plain.rate * ADVANTAGE)
        if wins or (view.always and not free.base.tokens):
            memory.earn(-loss)
            return neural, max(neural.rate, bar)
        if memory.affords(loss, _BEARABLE * neural.spent):
            return neural, bar
        return free, bar

    def _free(self, chain: Draft, survival: Sequence[float], decode: _Decode) -> _Option:
        """The chain cut where it promises most, at least one node; its base is the whole chain."""
        best = _Option(0.0, chain)
        gain = 0.0
        for count, alive in enumerate(survival, start=1):
            gain += alive
            rate = self._rate(decode, self._extra(count), gain)
            if rate > best.rate:
                best = replace(best, rate=rate, nodes=count, gain=gain)
        return best

    def _neural(
        self,
        view: View,
        memory: Memory,
        chains: Sequence[tuple[Draft, list[float]]],
        decode: _Decode,
    ) -> Iterator[_Option]:
        """Each neural source from the root, and after every prefix of every free chain."""
        for neural in view.neural:
            if view.budget < 1:
                return
            given = self._yield(memory, neural, decode)
            yield self._extended(view, neural, given, decode)
            yield self._extended(
                view, neural, self._steady(neural, given.agreement, decode), decode
            )
            for chain, survival in chains:
                gain = 0.0
                for count, alive in enumerate(survival[: view.budget - 1], start=1):
                    gain += alive
                    base = _Option(0.0, chain, alive, nodes=count, gain=gain)
                    yield self._extended(view, neural, given, decode, base)

    def _extended(
        self,
        view: View,
        neural: Neural,
        given: Yield,
        decode: _Decode,
        base: _Option = _Option(0.0, Draft()),  # noqa: B008 — frozen
    ) -> _Option:
        """`base` continued by what the source gives on average."""
        prefix = int(base.nodes)
        room = view.budget - prefix
        drafted = given.drafted / given.rounds
        fits = min(1.0, room / drafted)
        gain = base.gain + base.alive * fits * given.gain / given.rounds
        backlog = max(0, neural.pending - _RECURRING_READS)
        seconds = self.costs.draft(
            neural.name, neural.pending - backlog + prefix, min(drafted, room)
        )
        backlog_seconds = self.costs.draft(neural.name, backlog + 1, 0)
        amortised = backlog_seconds * min(1.0, (1 + gain) / max(view.remaining, 1.0))
        target = verified = 0.0
        for count, rounds in given.verified.items():
            count = min(count, room)  # noqa: PLW2901 — what fits of it
            share = rounds / given.rounds
            verified += share * count
            target += share * self.costs.target(decode.rows + self._extra(prefix + count))
        spent = target + decode.seconds + seconds
        return _Option(
            (decode.expected + gain) / (spent + amortised),
            base.base.head(prefix),
            base.alive,
            neural,
            prefix + verified,
            gain,
            seconds,
            spent + backlog_seconds,
        )

    def _loss(self, option: _Option, decode: _Decode, rate: float) -> float:
        """Seconds that the option loses against making its tokens at `rate`."""
        return option.spent - (decode.expected + option.gain) / rate

    def _yield(self, memory: Memory, neural: Neural, decode: _Decode) -> Yield:
        """What a draft of this source gives: guessed, then the model's average, then its own."""
        guess = self._steady(neural, _GUESSED_AGREEMENT, decode)
        model = self.acceptance.yields.get(neural.name, Yield(_MODEL_MEMORY))
        own = memory.yields.get(neural.name, Yield(_SESSION_MEMORY))
        return own.plus(model.plus(guess, _GUESSED_ROUNDS), _MODEL_ROUNDS)

    def _steady(self, neural: Neural, agreement: float, decode: _Decode) -> Yield:
        """One round of the best fixed depth, were every drafted token as good as `agreement`."""
        best, best_rate = 1, 0.0
        gain = 0.0
        gains = [0.0]
        for depth in range(1, _LOOK_AHEAD + 1):
            gain += agreement**depth
            gains.append(gain)
            seconds = self.costs.draft(neural.name, 1, depth)
            rate = self._rate(decode, self._extra(depth), gain, seconds)
            if rate > best_rate:
                best, best_rate = depth, rate
        return Yield(1.0, 1.0, gains[best], best, agreement * best, {best: 1.0})

    def _as_plan(
        self, view: View, memory: Memory, option: _Option, decode: _Decode, rate: float
    ) -> Plan:
        neural = option.extend
        if neural is None:
            return Plan(option.base, None, 0, _never)
        prefix, budget = len(option.base), view.budget - len(option.base)
        agreement = self._yield(memory, neural, decode).agreement
        step = self.costs.draft(neural.name, 1, 1)

        def worth(signals: Sequence[Signal]) -> bool:
            """The marginal rule P(v) > R dT, for some number of further nodes together."""
            if not signals:
                return True
            alive = option.alive
            for signal in signals:
                alive *= self.acceptance.estimate(signal, memory.local)
            nodes = prefix + len(signals)
            before = self.costs.target(decode.rows + self._extra(nodes))
            gain = 0.0
            for further in range(1, min(_LOOK_AHEAD, budget - len(signals)) + 1):
                alive *= agreement
                gain += alive
                after = self.costs.target(decode.rows + self._extra(nodes + further))
                if gain > rate * (further * step + after - before):
                    return True
            return False

        return Plan(option.base, neural.name, budget, worth)

    # --- after drafting ---------------------------------------------------------------------------

    def cut(self, views: Sequence[View], drafts: Sequence[Draft], other_rows: int = 0) -> list[int]:
        """How many leading nodes of each draft to verify.

        Rows go to the likeliest nodes over all sessions; their number is the one with the most
        expected tokens per second. What drafting cost is spent, so it is in every alternative.
        """
        survivals = [
            _falling(self.acceptance.survival(draft.signals, _local(view)))
            for view, draft in zip(views, drafts, strict=True)
        ]
        counts = [
            int(view.always and bool(draft)) for view, draft in zip(views, drafts, strict=True)
        ]
        rows = other_rows + sum(self._multiple + self._extra(count) for count in counts)
        expected = float(len(views))
        expected += sum(sum(s[:count]) for s, count in zip(survivals, counts, strict=True))
        sunk = self.costs.host_seconds + self._sunk(views, drafts)
        best = ADVANTAGE * expected / (self.costs.target(max(rows, 1)) + sunk)
        chosen = list(counts)
        heap = [(-s[count], i) for i, (s, count) in _indexed(survivals, counts) if count < len(s)]
        heapq.heapify(heap)
        while heap:
            falling, index = heapq.heappop(heap)
            expected -= falling
            rows += self._extra(counts[index] + 1) - self._extra(counts[index])
            counts[index] += 1
            if counts[index] < len(survivals[index]):
                heapq.heappush(heap, (-survivals[index][counts[index]], index))
            rate = expected / (self.costs.target(rows) + sunk)
            if rate > best:
                best, chosen = rate, list(counts)
        for view, draft in zip(views, drafts, strict=True):
            if view.memory is not None:
                view.memory.proposed = draft
        return chosen

    def _sunk(self, views: Sequence[View], drafts: Sequence[Draft]) -> float:
        seconds = 0.0
        for view, draft in zip(views, drafts, strict=True):
            for neural in view.neural:
                depth = sum(signal.source == neural.name for signal in draft.signals)
                if depth:
                    seconds += self.costs.draft(
                        neural.name, min(neural.pending, _RECURRING_READS), depth
                    )
        return seconds

    # --- afterwards -------------------------------------------------------------------------------

    def observe(self, round_: Round) -> None:
        """Learn from one round; nothing in it may belong to a decode that also prefilled."""
        self.costs.measured(round_.rows, round_.target_seconds)
        self.costs.measured_host(round_.host_seconds)
        for drafted in round_.drafted:
            self.costs.measured_draft(drafted.name, drafted.pending, drafted.depth, drafted.seconds)
        for view, judged, committed in zip(
            round_.views, round_.judged, round_.committed, strict=True
        ):
            self._learn_yields(view, judged)
            self._learn_acceptance(view, judged, committed)

    def _learn_yields(self, view: View, judged: Judged) -> None:
        memory = view.memory
        if memory is None:
            return
        proposed, memory.proposed = memory.proposed, Draft()
        for neural in view.neural:
            signals = [signal for signal in proposed.signals if signal.source == neural.name]
            if not signals:
                continue
            survival = self.acceptance.survival(signals, memory.local)
            verified = sum(signal.source == neural.name for signal in judged.draft.signals)
            for yields, forgetting in (
                (memory.yields, _SESSION_MEMORY),
                (self.acceptance.yields, _MODEL_MEMORY),
            ):
                yields.setdefault(neural.name, Yield(forgetting)).add(survival, verified)

    def _learn_acceptance(self, view: View, judged: Judged, committed: Sequence[Token]) -> None:
        """Every free chain against the text, then what only the verified draft shows."""
        local = _local(view)
        shown = 0
        for chain in view.free:
            for token, signal, truth in zip(chain.tokens, chain.signals, committed, strict=False):
                self.acceptance.observe(signal, token == truth, local)
                if token != truth:
                    break
            shown = max(shown, _common(chain, judged.draft))
        for node in range(shown, min(judged.accepted + 1, len(judged.draft))):
            self.acceptance.observe(judged.draft.signals[node], node < judged.accepted, local)
        for signal, accepted in judged.evidence:
            self.acceptance.observe(signal, accepted, local)

    # --- arithmetic -------------------------------------------------------------------------------

    def _extra(self, nodes: int) -> int:
        """Rows that a draft of `nodes` adds to a session's own, padding included."""
        return -(-(1 + nodes) // self._multiple) * self._multiple - self._multiple

    def _rate(
        self, decode: _Decode, extra_rows: int = 0, gain: float = 0.0, seconds: float = 0.0
    ) -> float:
        """Expected tokens per second of the decode with this added."""
        target = self.costs.target(decode.rows + extra_rows)
        return (decode.expected + gain) / (target + decode.seconds + seconds)


def _local(view: View) -> Local | None:
    return view.memory.local if view.memory is not None else None


def _rate_of(option: _Option) -> float:
    return option.rate


def _never(_signals: Sequence[Signal]) -> bool:
    return False


def _falling(survival: Sequence[float]) -> list[float]:
    """Never rising, so that the likeliest nodes of a draft are always its first ones."""
    falling: list[float] = []
    for alive in survival:
        falling.append(min(alive, falling[-1]) if falling else alive)
    return falling


def _indexed(
    survivals: Sequence[list[float]], counts: Sequence[int]
) -> Iterator[tuple[int, tuple[list[float], int]]]:
    return enumerate(zip(survivals, counts, strict=True))


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
