"""How many forwards llama.cpp makes of one decode, and of how many rows each. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, TypeAlias

Layout: TypeAlias = Literal["shared", "streams", "apart"]
"""Which rows one forward can hold: any; as many of each of several slots that follow one another;
or those of one slot (`engine/exactness/separate.py`)."""


def forwards(rows: Mapping[int, int], layout: Layout) -> list[int]:
    """The rows of each forward of a decode with so many `rows` of each slot, in order of slots.

    Slots with a memory of their own, be it a KV stream or a state, take part in a forward with as
    many rows each, as many as the one with the fewest has (llama_batch_allocr::split_equal). What
    others have more is computed after that, and so are slots behind one that takes no part.
    """
    if layout == "shared":
        return [sum(rows.values())]
    if layout == "apart":
        return list(rows.values())
    left = {slot: count for slot, count in sorted(rows.items()) if count}
    found: list[int] = []
    while left:
        first = min(left)
        run = [first]
        while run[-1] + 1 in left:
            run.append(run[-1] + 1)
        each = min(left[slot] for slot in run)
        found.append(each * len(run))
        left = {
            slot: count - each * (slot in run)
            for slot, count in left.items()
            if slot not in run or count > each
        }
    return found
