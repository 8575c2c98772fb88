"""How many nodes of each draft share the decode: the likeliest, as many as are worth most. Pure."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

from localspec.control.tariff import Tariff


class Candidate(NamedTuple):
    """A draft by the chance that each of its nodes survives.

    At least its first `least` nodes are verified, and each looks back on `cells` tokens.
    """

    survival: Sequence[float]
    least: int
    cells: int


def cut(
    candidates: Sequence[Candidate], tariff: Tariff, rate: float, rows: int, margin: float
) -> list[int]:
    """How many leading nodes of each to verify, in a decode that has `rows` without them.

    Rows go to the likeliest nodes over all drafts, and their number is the one of most worth:
    tokens less seconds at `rate`. More than what is verified anyway must promise `margin` tokens.
    """
    # Never rising, so that the likeliest nodes of a draft are always its first ones.
    chances = [list(accumulate(each.survival, min)) for each in candidates]
    counts = [each.least for each in candidates]
    extra = tariff.extra_rows
    rows += sum(map(extra, counts))
    looks = sum(extra(each.least) * each.cells for each in candidates)
    gain = sum(sum(each[:count]) for each, count in zip(chances, counts, strict=True))
    undoing = [tariff.undoing(each) for each in chances]
    back = sum(each[count].seconds for each, count in zip(undoing, counts, strict=True))
    best = gain - rate * (tariff.judged(max(rows, 1), looks) + back) + margin
    chosen = list(counts)
    heap = [
        (-each[n], i) for i, (each, n) in enumerate(zip(chances, counts, strict=True)) if each[n:]
    ]
    heapq.heapify(heap)
    while heap:
        falling, index = heapq.heappop(heap)
        counts[index] = count = counts[index] + 1
        gain -= falling
        more = extra(count) - extra(count - 1)
        rows += more
        looks += more * candidates[index].cells
        back += undoing[index][count].seconds - undoing[index][count - 1].seconds
        if count < len(chances[index]):
            heapq.heappush(heap, (-chances[index][count], index))
        worth = gain - rate * (tariff.judged(rows, looks) + back)
        if worth > best:
            best, chosen = worth, list(counts)
    return chosen
