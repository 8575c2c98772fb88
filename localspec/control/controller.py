"""The decision of every round: which source drafts, and how many nodes are verified.

It is the argmax of expected committed tokens per second over plain decoding, each free chain, a
neural chain, and a free chain continued by neural tokens. `plan` decides who drafts, `cut` how much
of the drafts shares the decode, `observe` learns. No clock, no I/O, no model: what it knows came
through `observe`, and the same history gives the same decisions.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from operator import attrgetter

from localspec.control.acceptance import Acceptance, Local, Yield
from localspec.control.costs import Costs
from localspec.control.options import (
    LOOK_AHEAD,
    MODEL_MEMORY,
    SESSION_MEMORY,
    Decode,
    Option,
    Options,
)
from localspec.control.round import Drafted, Judged, Memory, Neural, Plan, Round, View
from localspec.types import Draft, Signal, Token

__all__ = ["Controller", "Drafted", "Judged", "Memory", "Neural", "Plan", "Round", "View"]

ADVANTAGE = 1.03
"""A plan must promise this much over plain decoding: the best of noisy promises is an optimist."""

_BEARABLE = 0.1
"""A neural draft may run at this loss for a while; one that loses more is only probed."""


_rate = attrgetter("rate")


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
        self._options = Options(costs, acceptance, multiple)

    def open_session(self) -> Memory:
        """A memory for one request; put it into each of its views."""
        return Memory()

    # --- before drafting --------------------------------------------------------------------------

    def plan(self, views: Sequence[View], other_rows: int = 0) -> list[Plan]:
        """Who drafts for each session. Call once a round: it counts the rounds between probes.

        `other_rows` of prefill share the decode. Sessions are planned in order, each with the rows
        that those before it are expected to take.
        """
        rows = len(views) * self._options.multiple + other_rows
        decode = Decode(rows, len(views), self.costs.host_seconds)
        plans = []
        for view in views:
            memory = view.memory or Memory()
            option, rate = self._choose(view, memory, decode)
            plans.append(self._as_plan(view, memory, option, decode, rate))
            decode = Decode(
                decode.rows + self._options.extra_rows(round(option.nodes)),
                decode.expected + option.gain,
                decode.seconds + option.drafting,
            )
        return plans

    def _choose(self, view: View, memory: Memory, decode: Decode) -> tuple[Option, float]:
        """The option to take, and the best rate that any option promised.

        1. The best neural option, if it beats the best free one and plain decoding, and the rest
           of the session will repay what the source has to read first.
        2. The same at a loss, if the session can afford to keep it going or to probe it.
        3. The best free chain; how much of it, and whether any, is `cut`'s to say.
        """
        chains = [
            (chain, self.acceptance.survival(chain.signals, memory.local)) for chain in view.free
        ]
        plain = self._options.plain(decode)
        copies = (self._options.copy(chain, survival, decode) for chain, survival in chains)
        free = max(copies, key=_rate, default=plain)
        bar = max(free.rate, plain.rate)
        neural = max(self._options.neural(view, memory, chains, decode), key=_rate, default=None)
        if neural is None:
            return free, bar
        to_beat = max(free.rate, ADVANTAGE * plain.rate)
        lasts = view.remaining / bar
        memory.begin(lasts, saving=max(0.0, 1 - to_beat / neural.rate))
        loss = neural.loss(bar)
        wins = neural.rate > to_beat and neural.backlog <= memory.saving * lasts
        if wins or (view.always and not free.base.tokens):
            memory.earn(-loss)
            return neural, max(neural.rate, bar)
        if memory.affords(loss, _BEARABLE * neural.seconds):
            return neural, bar
        return free, bar

    def _as_plan(
        self, view: View, memory: Memory, option: Option, decode: Decode, rate: float
    ) -> Plan:
        neural = option.extend
        if neural is None:
            return Plan(option.base, None, 0, _never)
        prefix = len(option.base)
        budget = view.budget - prefix
        agreement = self._options.expected_yield(memory, neural, decode).agreement
        step = self.costs.draft(neural.name, 1, 1)

        def worth(signals: Sequence[Signal]) -> bool:
            """The marginal rule P(v) > R dT, for some number of further nodes together."""
            if not signals:
                return True
            alive = option.alive
            for signal in signals:
                alive *= self.acceptance.estimate(signal, memory.local)
            nodes = prefix + len(signals)
            before = self._options.target(decode, nodes)
            gain = 0.0
            for further in range(1, min(LOOK_AHEAD, budget - len(signals)) + 1):
                alive *= agreement
                gain += alive
                rise = self._options.target(decode, nodes + further) - before
                if gain > rate * (further * step + rise):
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
        counts = [int(view.always and len(s) > 0) for view, s in zip(views, survivals, strict=True)]
        extra = self._options.extra_rows
        rows = other_rows + sum(self._options.multiple + extra(count) for count in counts)
        expected = float(len(views))
        expected += sum(sum(s[:count]) for s, count in zip(survivals, counts, strict=True))
        spent = self.costs.host_seconds
        spent += sum(map(self._options.sunk, views, drafts))
        best = ADVANTAGE * expected / (self.costs.target(rows) + spent) if views else 0.0
        chosen = list(counts)
        heap = [(-s[n], i) for i, (s, n) in enumerate(zip(survivals, counts, strict=True)) if s[n:]]
        heapq.heapify(heap)
        while heap:
            falling, index = heapq.heappop(heap)
            count = counts[index]
            expected -= falling
            rows += extra(count + 1) - extra(count)
            counts[index] = count + 1
            if count + 1 < len(survivals[index]):
                heapq.heappush(heap, (-survivals[index][count + 1], index))
            rate = expected / (self.costs.target(rows) + spent)
            if rate > best:
                best, chosen = rate, list(counts)
        for view, draft in zip(views, drafts, strict=True):
            if view.memory is not None:
                view.memory.proposed = draft
        return chosen

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
                (memory.yields, SESSION_MEMORY),
                (self.acceptance.yields, MODEL_MEMORY),
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


def _local(view: View) -> Local | None:
    return view.memory.local if view.memory is not None else None


def _never(_signals: Sequence[Signal]) -> bool:
    return False


def _falling(survival: Sequence[float]) -> list[float]:
    """Never rising, so that the likeliest nodes of a draft are always its first ones."""
    falling: list[float] = []
    for alive in survival:
        falling.append(min(alive, falling[-1]) if falling else alive)
    return falling


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
