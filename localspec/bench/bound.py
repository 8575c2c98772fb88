"""What decoding a text would take if every decision were right, or the same one. Pure.

Given how many drafted tokens survive at each position of a text, and what rows, drafted tokens and
a round's host work cost, dynamic programming finds the rounds that take the least time. Drafters
read for free here, and nothing is ever drafted in vain: no controller can be faster. `fixed_ms` is
what a setting reaches that drafts as deep in every round, as other servers are told to.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Self

from localspec.bench.results import draft_ms, staircase


@dataclass(frozen=True, slots=True)
class Prices:
    """What the parts of a round cost, in milliseconds.

    Args:
        stairs: (rows, ms) of the target's forward, ascending in rows, at least one of them.
        draft_ms: One drafted token of each source that is not free.
        host_ms: Everything of a round that is neither target nor drafter.
        row_multiple: Rows are padded to a multiple of this.
    """

    stairs: Sequence[tuple[int, float]]
    draft_ms: Mapping[str, float]
    host_ms: float = 0.0
    row_multiple: int = 1

    @classmethod
    def of(cls, model: Mapping[str, Any], cells: float = 0) -> Self | None:
        """Those in a model's status behind so many tokens; None where it has no staircase."""
        stairs = staircase(model, cells)
        if not stairs:
            return None
        return cls(
            stairs,
            draft_ms(model, cells),
            model.get("host_ms") or 0.0,
            model.get("row_multiple") or 1,
        )

    def rounds_ms(self, most_nodes: int) -> list[float]:
        """Milliseconds of a round that verifies 0, 1 ... `most_nodes` drafted tokens."""
        return [self._round_ms(1 + nodes) for nodes in range(most_nodes + 1)]

    def _round_ms(self, rows: int) -> float:
        rows += -rows % self.row_multiple
        counts = [count for count, _ in self.stairs]
        # Fewer rows never cost more, as the daemon too takes it.
        costs = list(accumulate((ms for _, ms in reversed(self.stairs)), min))[::-1]
        place = bisect_left(counts, rows)
        if place == len(counts):
            return self.host_ms + costs[-1] * rows / counts[-1]
        if counts[place] == rows or place == 0:
            return self.host_ms + costs[place]
        below, above = counts[place - 1], counts[place]
        share = (rows - below) / (above - below)
        return self.host_ms + costs[place - 1] + share * (costs[place] - costs[place - 1])


def plain_ms(tokens: int, prices: Prices) -> float:
    """Milliseconds of decoding so many tokens one by one."""
    return tokens * prices.rounds_ms(0)[0]


def best_ms(
    free: Sequence[int],
    neural: Mapping[str, Sequence[int]],
    prices: Prices,
    most_nodes: int,
) -> float:
    """The least milliseconds in which n tokens can be decoded.

    A round may verify part of what survives of a free chain, or of a source that drafts for money,
    or of the first continued by the second.

    Args:
        free: (n,) how many tokens drafted for free survive at each position.
        neural: The same by name for sources that cost `prices.draft_ms` a token; others of them
            are left out.
        prices: What everything costs.
        most_nodes: Most drafted tokens in a round.
    """
    rounds = prices.rounds_ms(most_nodes)
    paid = [(neural[name], ms) for name, ms in prices.draft_ms.items() if name in neural]
    best = [0.0] * (len(free) + 1)
    for position in reversed(range(len(free))):
        most = min(most_nodes, len(free) - position - 1)
        best[position] = min(
            rounds[nodes] + drafting + best[position + 1 + nodes]
            for nodes, drafting in _drafts(position, most, free, paid)
        )
    return best[0]


@dataclass(frozen=True, slots=True)
class Habit:
    """One source that drafts `depth` tokens whenever it has something to say, right or wrong.

    `survives` is how many of them would survive at each position, None where it has nothing; one
    of them takes `token_ms`.
    """

    survives: Sequence[int | None]
    depth: int
    token_ms: float = 0.0


def fixed_ms(habits: Sequence[Habit], tokens: int, rounds: Sequence[float]) -> float:
    """Milliseconds of a text of so many tokens if each round the first habit drafts that can.

    `rounds` are milliseconds by verified nodes, as `Prices.rounds_ms` gives them.
    """
    position, spent = 0, 0.0
    while position < tokens:
        room = tokens - position - 1
        drafting = (habit for habit in habits if habit.survives[position] is not None)
        habit = next(drafting, None)
        nodes = min(habit.depth, room) if habit else 0
        kept = min(nodes, habit.survives[position] or 0) if habit else 0
        spent += rounds[nodes] + (nodes * habit.token_ms if habit else 0.0)
        position += 1 + kept
    return spent


def _drafts(
    position: int,
    most: int,
    free: Sequence[int],
    paid: Sequence[tuple[Sequence[int], float]],
) -> Iterable[tuple[int, float]]:
    """(drafted tokens, milliseconds of drafting) of every draft that would survive here."""
    for copied in range(min(free[position], most) + 1):
        yield copied, 0.0
        for survives, ms in paid:
            for drafted in range(1, min(survives[position + copied], most - copied) + 1):
                yield copied + drafted, drafted * ms
