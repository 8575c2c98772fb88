"""The forwards that llama.cpp makes of one decode, and the rows of each. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal, TypeAlias

Layout: TypeAlias = Literal["shared", "streams", "apart"]
"""The rows that one forward can hold: any (shared), equally many of each of several adjacent slots
(streams), or those of one slot (apart, `engine/exactness/separate.py`)."""


def forwards(rows: Mapping[int, int], layout: Layout, snapshots: int = 0) -> list[int]:
    """The number of rows in each forward of a decode with these `rows` of each slot.

    Slots with a memory of their own, be it a KV stream or a state, share a forward with equally
    many rows each, as many as the slot with the fewest has (llama_batch_allocr::split_equal). The
    others' further rows come in later forwards, and so do slots behind one that has no rows. Where
    forwards leave `snapshots`, the last rows of a slot are not divided.
    """
    if layout == "shared":
        return [sum(rows.values())]
    if layout == "apart":
        return list(rows.values())
    return [sum(made.values()) for made in split(rows, snapshots)]


def split(
    rows: Mapping[int, int], snapshots: int = 0, *, adjacent: bool = True
) -> Iterator[dict[int, int]]:
    """The rows of each slot in each forward, where slots have memories of their own.

    With `adjacent` only slots that follow one another share a forward. Without, all that have rows
    left do, as with one KV cache beside states.
    """
    left = {slot: count for slot, count in sorted(rows.items()) if count}
    while left:
        run = [min(left)]
        for slot in sorted(left)[1:]:
            if not adjacent or slot == run[-1] + 1:
                run.append(slot)
        each = min(left[slot] for slot in run)
        made = dict.fromkeys(run, each)
        if snapshots:
            made = _undivided(made, left, snapshots)
        yield made
        left = {slot: rest for slot, count in left.items() if (rest := count - made.get(slot, 0))}


def _undivided(made: Mapping[int, int], left: Mapping[int, int], snapshots: int) -> dict[int, int]:
    """The first slots whose last `snapshots` rows stay together, or else all rows of the first."""
    kept: dict[int, int] = {}
    for slot, count in made.items():
        if 0 < left[slot] - count <= snapshots:
            break
        kept[slot] = count
    first = min(made)
    return kept or {first: left[first]}


def taken_back(rows: Mapping[int, int], snapshots: int) -> dict[int, int]:
    """The number of its last tokens that each slot can take back by snapshots after a decode.

    A forward of several slots may move the states of other slots but not their snapshots, which
    are then lost (llama_memory_recurrent::find_slot).
    """
    found = dict.fromkeys(rows, snapshots)
    for adjacent in (True, False):
        back: dict[int, int] = {}
        for made in split(rows, snapshots, adjacent=adjacent):
            if len(made) > 1:
                back.clear()
            back |= {slot: min(count - 1, snapshots) for slot, count in made.items()}
        found = {slot: min(most, back.get(slot, 0)) for slot, most in found.items()}
    return found


def moves(rows: Mapping[int, int], snapshots: int) -> bool:
    """Whether a decode of these `rows` may move the states of slots that have no rows in it."""
    return any(
        len(made) > 1
        for adjacent in (True, False)
        for made in split(rows, snapshots, adjacent=adjacent)
    )
