"""The number of nodes of each draft to verify: the likeliest, as many as are worth most. Pure.

Rows of padding, and rows on a flat part of the cost staircase, are as good as paid and can be
filled with more nodes. These are seldom accepted; they are there for the target's tokens behind
them, of which lookahead makes n-grams.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from itertools import accumulate, chain
from typing import NamedTuple

from localspec.control.batch_cost import BatchCost

_MOST_FILLED = 15
"""The most nodes of one session in rows that are as good as paid: the width of the window that Fu
et al. (2024) measured to be best for small models. Each node costs host time."""


class Candidate(NamedTuple):
    """A draft by the survival of its nodes.

    At least its first `least` nodes are verified; each looks back on `cells` tokens.
    """

    survival: Sequence[float]
    least: int
    cells: int


def cut(
    candidates: Sequence[Candidate],
    batch_cost: BatchCost,
    rate: float,
    others: Sequence[int],
    margin: float,
) -> list[int]:
    """The number of leading nodes of each to verify, in a decode that has rows of `others` as well.

    Rows go to the likeliest nodes over all drafts, one after another, and the number of rows with
    the most worth is taken: tokens less seconds at `rate`. Where a forward holds equally many rows
    of each session, equal numbers of nodes are tried as well. More nodes than must be verified must
    be worth `margin` tokens more.
    """
    # Never rising, so that the likeliest nodes of a draft are always its first ones.
    chances = [list(accumulate(each.survival, min)) for each in candidates]
    rollback_costs = [batch_cost.rollback_costs(each) for each in chances]
    gains = [list(accumulate(each, initial=0.0)) for each in chances]

    def worth(counts: Sequence[int]) -> float:
        rows: list[int] = []
        gain, back, attended = 0.0, 0.0, 0
        for place, count in enumerate(counts):
            extra = batch_cost.extra_rows(count)
            rows.append(batch_cost.multiple + extra)
            attended += extra * candidates[place].cells
            gain += gains[place][count]
            back += rollback_costs[place][count].seconds
        rows += others
        return gain - rate * (batch_cost.together(rows, attended) + back)

    chosen = [each.least for each in candidates]
    best = worth(chosen) + margin
    ways = [_likeliest(candidates, chances)]
    if not batch_cost.whole:
        ways.append(_alike(candidates))
    for counts in chain.from_iterable(ways):
        if (promised := worth(counts)) > best:
            best, chosen = promised, counts
    return chosen


def _likeliest(
    candidates: Sequence[Candidate], chances: Sequence[Sequence[float]]
) -> Iterator[list[int]]:
    """Yields the numbers of nodes each time that the likeliest remaining one was added."""
    counts = [each.least for each in candidates]
    heap = [
        (-each[n], i) for i, (each, n) in enumerate(zip(chances, counts, strict=True)) if each[n:]
    ]
    heapq.heapify(heap)
    while heap:
        _, index = heapq.heappop(heap)
        counts[index] = count = counts[index] + 1
        if count < len(chances[index]):
            heapq.heappush(heap, (-chances[index][count], index))
        yield list(counts)


def _alike(candidates: Sequence[Candidate]) -> Iterator[list[int]]:
    """Yields equal numbers of nodes for all, 1, 2, 3 ..., as far as each has them."""
    longest = max((len(each.survival) for each in candidates), default=0)
    for most in range(1, longest + 1):
        yield [max(each.least, min(most, len(each.survival))) for each in candidates]


def spare(batch_cost: BatchCost, nodes: Sequence[int]) -> list[int]:
    """The number of nodes that each session may add in rows that are as good as paid."""
    rows = [batch_cost.multiple + batch_cost.extra_rows(count) for count in nodes]
    own = [each - 1 - count for each, count in zip(rows, nodes, strict=True)]
    if not batch_cost.whole:
        return own
    more, first = divmod(batch_cost.paid(sum(rows)) - sum(rows), len(rows))
    return [min(each + more + first * (not place), _MOST_FILLED) for place, each in enumerate(own)]


def added_seconds(batch_cost: BatchCost, nodes: Sequence[int], more: Sequence[int]) -> float:
    """Seconds that `more` nodes of each session add: next to nothing, but not nothing."""
    rows = [batch_cost.multiple + batch_cost.extra_rows(count) for count in nodes]
    filled = [
        batch_cost.multiple + batch_cost.extra_rows(count + added)
        for count, added in zip(nodes, more, strict=True)
    ]
    host = sum(more) * batch_cost.costs.host_row_seconds
    return max(0.0, batch_cost.together(filled, 0.0) - batch_cost.together(rows, 0.0)) + host
