"""What each way to spend a round promises: expected committed tokens, and the seconds they take."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from localspec.control.acceptance import Acceptance, Yield
from localspec.control.costs import Costs
from localspec.control.round import Memory, Neural, View
from localspec.types import Draft

LOOK_AHEAD = 8
"""Nodes that may be needed to reach the end of a stair that one node alone does not repay."""

MODEL_MEMORY, SESSION_MEMORY = 0.98, 0.95
"""Forgetting per round of what drafts gave: the last 50 of the model, the last 20 of a session."""
_GUESSED_AGREEMENT, _GUESSED_ROUNDS = 0.85, 4.0
_MODEL_ROUNDS = 4.0
"""A source never tried is taken for a middling one for a few rounds, a session for its model."""

_RECURRING_READS = 3
"""Tokens a source reads every round anyway; more is a backlog, paid once and used to the end."""


@dataclass(frozen=True, slots=True)
class Decode:
    """The decode as planned so far: its rows, its expected tokens, the seconds around it."""

    rows: int
    expected: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Option:
    """One way to spend the round for one session.

    `tokens` and `seconds` are those of the whole decode; this session's draft adds `nodes` rows,
    `gain` tokens and `drafting` seconds to it. `base` ends where `extend` goes on, and survives
    with probability `alive`. A source that has much to read first takes `backlog` seconds more,
    once: they are no cost of this round, but a price for all that are to come.
    """

    base: Draft
    tokens: float
    seconds: float
    alive: float = 1.0
    extend: Neural | None = None
    nodes: float = 0.0
    gain: float = 0.0
    drafting: float = 0.0
    backlog: float = 0.0

    @property
    def rate(self) -> float:
        """Tokens per second."""
        return self.tokens / self.seconds

    def loss(self, rate: float) -> float:
        """Seconds lost against making the same tokens at `rate`, the backlog paid at once."""
        return self.seconds + self.backlog - self.tokens / rate


class Options:
    """Appraises options with the present costs and acceptance. No state of its own.

    Args:
        costs: The machine's curves.
        acceptance: What the sources are worth.
        multiple: Every session's rows are padded to a multiple of this.
    """

    def __init__(self, costs: Costs, acceptance: Acceptance, multiple: int) -> None:
        self.costs = costs
        self.acceptance = acceptance
        self.multiple = multiple

    def extra_rows(self, nodes: int) -> int:
        """Rows that a draft of `nodes` adds to a session's own, padding included."""
        return -(-(1 + nodes) // self.multiple) * self.multiple - self.multiple

    def target(self, decode: Decode, nodes: int) -> float:
        """Seconds of the target forward with `nodes` of one more session's draft in it."""
        return self.costs.target(decode.rows + self.extra_rows(nodes))

    def plain(self, decode: Decode) -> Option:
        """The decode as it is."""
        return Option(Draft(), decode.expected, self.target(decode, 0) + decode.seconds)

    def copy(self, chain: Draft, survival: Sequence[float], decode: Decode) -> Option:
        """A free chain cut where it promises most, at least one node; `base` is all of it."""
        gain = best_gain = best_rate = 0.0
        best_nodes = 0
        for nodes, alive in enumerate(survival, start=1):
            gain += alive
            rate = (decode.expected + gain) / (self.target(decode, nodes) + decode.seconds)
            if rate > best_rate:
                best_rate, best_gain, best_nodes = rate, gain, nodes
        seconds = self.target(decode, best_nodes) + decode.seconds
        return Option(chain, decode.expected + best_gain, seconds, nodes=best_nodes, gain=best_gain)

    def neural(
        self,
        view: View,
        memory: Memory,
        chains: Sequence[tuple[Draft, list[float]]],
        decode: Decode,
    ) -> Iterator[Option]:
        """Each neural source from the root, and after each free chain.

        A source that has lately stopped early looks poorer than it is, so it is also appraised at a
        fixed depth.
        """
        if view.budget < 1:
            return
        for neural in view.neural:
            given = self.expected_yield(memory, neural, decode)
            steady = self._steady(neural, given.agreement, decode)
            root = Option(Draft(), decode.expected, 0.0)
            for expected in (given, steady):
                yield self._extended(root, neural, expected, view.budget, decode)
            for chain, survival in chains:
                for nodes in _joints(survival, given.agreement):
                    if nodes < view.budget:
                        base = replace(
                            root,
                            base=chain.head(nodes),
                            alive=survival[nodes - 1],
                            nodes=nodes,
                            gain=sum(survival[:nodes]),
                        )
                        yield self._extended(base, neural, given, view.budget, decode)

    def expected_yield(self, memory: Memory, neural: Neural, decode: Decode) -> Yield:
        """What a draft of this source gives: guessed, then the model's average, then its own."""
        guess = self._steady(neural, _GUESSED_AGREEMENT, decode)
        model = self.acceptance.yields.get(neural.name, Yield(MODEL_MEMORY))
        own = memory.yields.get(neural.name, Yield(SESSION_MEMORY))
        return own.plus(model.plus(guess, _GUESSED_ROUNDS), _MODEL_ROUNDS)

    def sunk(self, view: View, draft: Draft) -> float:
        """Seconds that this draft has cost its neural sources."""
        seconds = 0.0
        for neural in view.neural:
            depth = sum(signal.source == neural.name for signal in draft.signals)
            if depth:
                reads = min(neural.pending, _RECURRING_READS)
                seconds += self.costs.draft(neural.name, reads, depth)
        return seconds

    def _extended(
        self, base: Option, neural: Neural, given: Yield, budget: int, decode: Decode
    ) -> Option:
        """`base` continued by what the source gives on average, `budget` nodes in all."""
        prefix = int(base.nodes)
        room = budget - prefix
        drafted = given.drafted / given.rounds
        gain = base.gain + base.alive * min(1.0, room / drafted) * given.gain / given.rounds
        backlog = max(0, neural.pending - _RECURRING_READS)
        reads = neural.pending - backlog + prefix
        drafting = self.costs.draft(neural.name, reads, min(drafted, room))
        target = verified = 0.0
        for count, rounds in given.verified.items():
            nodes = prefix + min(count, room)
            verified += rounds * nodes
            target += rounds * self.target(decode, nodes)
        return Option(
            base.base,
            decode.expected + gain,
            target / given.rounds + decode.seconds + drafting,
            base.alive,
            neural,
            verified / given.rounds,
            gain,
            drafting,
            self.costs.draft(neural.name, backlog + 1, 0),
        )

    def _steady(self, neural: Neural, agreement: float, decode: Decode) -> Yield:
        """One round of the best fixed depth, were every drafted token as good as `agreement`."""
        best_depth, best_gain, best_rate = 1, agreement, 0.0
        gain, alive = 0.0, 1.0
        step = self.costs.draft(neural.name, 1, 1)
        for depth in range(1, LOOK_AHEAD + 1):
            alive *= agreement
            gain += alive
            seconds = self.target(decode, depth) + decode.seconds + depth * step
            rate = (decode.expected + gain) / seconds
            if rate > best_rate:
                best_depth, best_gain, best_rate = depth, gain, rate
        verified = {best_depth: 1.0}
        return Yield(1.0, 1.0, best_gain, best_depth, agreement * best_depth, verified)


def _joints(survival: Sequence[float], agreement: float) -> Iterator[int]:
    """Lengths at which a chain may be handed over: its end, and where it is less sure than that."""
    for nodes in range(1, len(survival)):
        if survival[nodes] < agreement * survival[nodes - 1]:
            yield nodes
            break
    if survival:
        yield len(survival)
