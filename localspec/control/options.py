"""What each way to spend a round promises: expected committed tokens, and the seconds they take."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from localspec.control.acceptance import Acceptance, Yield
from localspec.control.costs import Costs
from localspec.control.round import Memory, Neural, View
from localspec.types import Draft

LOOK_AHEAD = 15
"""Nodes that may be needed to reach the end of a stair that one node alone does not repay."""

MODEL_MEMORY, SESSION_MEMORY = 0.98, 0.95
"""Forgetting per round of what drafts gave: the last 50 of the model, the last 20 of a session."""
_GUESSED_AGREEMENT, _GUESSED_ROUNDS = 0.96, 4.0
"""A source never tried is taken for a good one for a few rounds, or it would never be tried."""
_MODEL_ROUNDS = 4.0
"""What the model has seen counts for this many rounds of a session."""
_EASE_EDGES = (0.5, 0.6, 0.7, 0.78, 0.84, 0.89, 0.93, 0.96)
"""Texts told apart by how sure the target is of them: where it is, a draft model mostly agrees."""

RECURRING_READS = 3
"""Tokens a source reads every round anyway; more is a backlog, paid once and used to the end."""


@dataclass(frozen=True, slots=True)
class Decode:
    """The decode as planned so far: its rows, its expected tokens, the seconds around it.

    `pace` is what the sessions have lately made together, in tokens per second; 0 is not known yet.
    """

    rows: int
    expected: float
    seconds: float
    pace: float = 0.0

    def score(self, tokens: float, seconds: float) -> float:
        """What `tokens` in `seconds` are worth, for comparison: tokens per second above the pace.

        Below it, the tokens lost. A token saves the time that it would have taken otherwise, and in
        a text that is mostly copied that is little: a draft that beats plain decoding there may
        still be slower than waiting for the next copy. Charging seconds at the present pace is
        Dinkelbach's rule, which maximises tokens per second over many rounds.
        """
        rate = tokens / seconds
        return rate if rate >= self.pace else tokens - self.pace * seconds


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

    def worth(self, rate: float) -> float:
        """Tokens won against spending the same seconds at `rate`."""
        return self.tokens - rate * self.seconds


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
        gain = best_gain = 0.0
        best_score = -math.inf
        best_nodes = 0
        for nodes, alive in enumerate(survival, start=1):
            gain += alive
            seconds = self.target(decode, nodes) + decode.seconds
            score = decode.score(decode.expected + gain, seconds)
            if score > best_score:
                best_score, best_gain, best_nodes = score, gain, nodes
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
            given = self.expected_yield(view, memory, neural, decode)
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

    def expected_yield(self, view: View, memory: Memory, neural: Neural, decode: Decode) -> Yield:
        """What a draft of this source gives.

        A guess, then what the model has seen in texts as easy as this, then what the session has:
        each counts for a few rounds of the next.
        """
        guess = self._steady(neural, _GUESSED_AGREEMENT, decode)
        model = self.acceptance.yields.get(yield_key(neural, view), Yield(MODEL_MEMORY))
        own = memory.yields.get(neural.name, Yield(SESSION_MEMORY))
        return own.plus(model.plus(guess, _GUESSED_ROUNDS), _MODEL_ROUNDS)

    def _extended(
        self, base: Option, neural: Neural, given: Yield, budget: int, decode: Decode
    ) -> Option:
        """`base` continued by what the source gives on average, `budget` nodes in all."""
        prefix = int(base.nodes)
        room = budget - prefix
        drafted = given.drafted / given.rounds
        gain = base.gain + base.alive * min(1.0, room / drafted) * given.gain / given.rounds
        backlog = max(0, neural.pending - RECURRING_READS)
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
        best_depth, best_gain, best_score = 1, agreement, -math.inf
        gain, alive = 0.0, 1.0
        step = self.costs.draft(neural.name, 1, 1)
        for depth in range(1, LOOK_AHEAD + 1):
            alive *= agreement
            gain += alive
            seconds = self.target(decode, depth) + decode.seconds + depth * step
            score = decode.score(decode.expected + gain, seconds)
            if score > best_score:
                best_depth, best_gain, best_score = depth, gain, score
        verified = {best_depth: 1.0}
        return Yield(1.0, 1.0, best_gain, best_depth, agreement * best_depth, verified)


def yield_key(neural: Neural, view: View) -> str:
    """Under what the model remembers this source's drafts in such text."""
    if view.ease is None:
        return neural.name
    return f"{neural.name} ease {bisect_right(_EASE_EDGES, view.ease)}"


def _joints(survival: Sequence[float], agreement: float) -> Iterator[int]:
    """Lengths at which a chain may be handed over: its end, and where it is less sure than that."""
    for nodes in range(1, len(survival)):
        if survival[nodes] < agreement * survival[nodes - 1]:
            yield nodes
            break
    if survival:
        yield len(survival)
