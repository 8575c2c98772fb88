"""The decision of every round: which source drafts, and how many nodes are verified.

It is the argmax of expected committed tokens per second over plain decoding, each free chain, a
neural chain, and a free chain continued by neural tokens. `plan` decides who drafts, `cut` how much
of the drafts shares the decode, `observe` learns. No clock, no I/O, no model: what it knows came
through `observe`, and the same history gives the same decisions.
"""

from __future__ import annotations

import heapq
from collections.abc import Sequence

from localspec.control.acceptance import Acceptance, Local, Yield
from localspec.control.costs import Costs
from localspec.control.options import (
    LOOK_AHEAD,
    MODEL_MEMORY,
    RECURRING_READS,
    SESSION_MEMORY,
    Decode,
    Option,
    Options,
    yield_key,
)
from localspec.control.round import Drafted, Judged, Memory, Neural, Plan, Round, View
from localspec.types import Draft, Signal, Token

__all__ = ["Controller", "Drafted", "Judged", "Memory", "Neural", "Plan", "Round", "View"]

ADVANTAGE = 1.03
"""A plan must promise this much over plain decoding: the best of noisy promises is an optimist."""

_BEARABLE = 0.1
"""A neural draft may run at this loss for a while; one that loses more is only probed."""


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
        for drafts in self.acceptance.yields.values():
            drafts.fade()
        return Memory()

    # --- before drafting --------------------------------------------------------------------------

    def plan(self, views: Sequence[View], other_rows: int = 0) -> list[Plan]:
        """Who drafts for each session. Call once a round: it counts the rounds between probes.

        `other_rows` of prefill share the decode. Sessions are planned in order, each with the rows
        that those before it are expected to take.
        """
        rows = len(views) * self._options.multiple + other_rows
        decode = Decode(rows, len(views), self.costs.host_seconds, self._pace(views))
        plans = []
        for view in views:
            memory = view.memory or Memory()
            option, rate = self._choose(view, memory, decode)
            plans.append(self._as_plan(view, memory, option, decode, rate))
            decode = Decode(
                decode.rows + self._options.extra_rows(round(option.nodes)),
                decode.expected + option.gain,
                decode.seconds + option.drafting,
                decode.pace,
            )
        return plans

    def _choose(self, view: View, memory: Memory, decode: Decode) -> tuple[Option, float]:
        """The option to take, and the tokens per second at which time is charged.

        1. The best neural option, if it beats the best free one and plain decoding, the rest of the
           session will repay what the source has to read first, and such promises were kept so far.
        2. The same at a loss, if the session can afford to keep it going or to probe it.
        3. The best free chain; how much of it, and whether any, is `cut`'s to say.
        """
        chains = [
            (chain, self.acceptance.survival(chain.signals, memory.local)) for chain in view.free
        ]

        def score(option: Option) -> float:
            return decode.score(option.tokens, option.seconds)

        plain = self._options.plain(decode)
        copies = (self._options.copy(chain, survival, decode) for chain, survival in chains)
        free = max(copies, key=score, default=plain)
        neural = max(self._options.neural(view, memory, chains, decode), key=score, default=None)
        rate = max(decode.pace, plain.rate, free.rate, neural.rate if neural else 0.0)
        if neural is None:
            return free, rate
        alone = max(free.worth(rate), plain.worth(rate))
        margin = (ADVANTAGE - 1) * plain.tokens
        leads = neural.worth(rate) > max(free.worth(rate), plain.worth(rate) + margin)
        to_beat = max(free.rate, plain.rate)
        lasts = view.remaining / rate
        memory.begin(lasts, saving=max(0.0, 1 - to_beat / neural.rate) if leads else 0.0)
        wins = leads and neural.backlog <= memory.saving * lasts
        loss = (alone - neural.worth(rate)) / rate + neural.backlog
        if (
            (wins and memory.trusts())
            or (view.always and not free.base.tokens)
            or memory.affords(0.0 if wins else loss, _BEARABLE * neural.seconds)
        ):
            memory.stake(to_beat)
            return neural, rate
        return free, rate

    def _pace(self, views: Sequence[View]) -> float:
        """Tokens per second that these sessions have lately made together; 0 if one is new."""
        paces = [view.memory.pace if view.memory is not None else 0.0 for view in views]
        return sum(paces) / self.costs.target(1) if paces and min(paces) > 0 else 0.0

    def _as_plan(
        self, view: View, memory: Memory, option: Option, decode: Decode, rate: float
    ) -> Plan:
        neural = option.extend
        if neural is None:
            return Plan(option.base, None, 0, _never)
        prefix = len(option.base)
        budget = view.budget - prefix
        agreement = self._options.expected_yield(view, memory, neural, decode).agreement
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

        Rows go to the likeliest nodes over all sessions, and their number is the one of most worth.
        What drafting cost is spent: it changes nothing any more.
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
        host = self.costs.host_seconds
        pace = self._pace(views)
        steps = [(expected, self.costs.target(max(rows, 1)) + host, list(counts))]
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
            steps.append((expected, self.costs.target(rows) + host, list(counts)))
        rate = max(pace, *(tokens / seconds for tokens, seconds, _ in steps))
        margin = (ADVANTAGE - 1) * steps[0][0]
        worths = [tokens - rate * seconds for tokens, seconds, _ in steps]
        worths[0] += margin
        chosen = steps[worths.index(max(worths))][2]
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
        seconds = round_.target_seconds + round_.host_seconds
        seconds += sum(drafted.seconds for drafted in round_.drafted)
        for view, judged, committed in zip(
            round_.views, round_.judged, round_.committed, strict=True
        ):
            if view.memory is not None:
                view.memory.advance(len(committed), seconds / self.costs.target(1))
            self._settle(round_, view, judged)
            self._learn_yields(view, judged)
            self._learn_acceptance(view, judged, committed)

    def _settle(self, round_: Round, view: View, judged: Judged) -> None:
        """Charge a session that staked on a neural draft with what that draft cost.

        Sessions that drafted together share its forwards evenly. What the source had to catch up
        with is no cost of this draft: it was weighed against the rest of the session before.
        """
        if view.memory is None:
            return
        names = {neural.name for neural in view.neural}
        mine = [signal.source in names for signal in judged.draft.signals]
        memories = [other.memory for other in round_.views if other.memory is not None]
        together = sum(memory.staked is not None for memory in memories)
        seconds = sum(
            self.costs.draft(each.name, min(each.pending, RECURRING_READS), each.depth)
            for each in round_.drafted
            if each.name in names
        )
        rows = max(1, round_.rows - sum(mine))
        rise = self.costs.target(round_.rows) - self.costs.target(rows)
        view.memory.settle(sum(mine[: judged.accepted]), seconds / max(together, 1) + rise)

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
            own = memory.yields.setdefault(neural.name, Yield(SESSION_MEMORY))
            own.add(survival, verified)
            key = yield_key(neural, view)
            model = self.acceptance.yields.setdefault(key, Yield(MODEL_MEMORY))
            model.add(survival, verified)

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
