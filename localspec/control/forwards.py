"""How many forwards llama.cpp makes of one decode, and of how many rows each. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal, TypeAlias

Layout: TypeAlias = Literal["shared", "streams", "apart"]
"""Which rows one forward can hold: any; as many of each of several slots that follow one another;
or those of one slot (`engine/exactness/separate.py`)."""


def forwards(rows: Mapping[int, int], layout: Layout, snapshots: int = 0) -> list[int]:
    """The rows of each forward of a decode with so many `rows` of each slot, in order of slots.

    Slots with a memory of their own, be it a KV stream or a state, take part in a forward with as
    many rows each, as many as the one with the fewest has (llama_batch_allocr::split_equal). What
    others have more is computed after that, and so are slots behind one that takes no part. Where
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

    Unless only `adjacent` slots share a forward, all that are left do: one KV cache beside states.
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
    """The first slots that end here or keep enough rows; otherwise the first one as a whole."""
    kept: dict[int, int] = {}
    for slot, count in made.items():
        if 0 < left[slot] - count <= snapshots:
            break
        kept[slot] = count
    first = min(made)
    return kept or {first: left[first]}


def taken_back(rows: Mapping[int, int], snapshots: int) -> dict[int, int]:
    """How many of its last tokens each slot can take back by snapshots after such a decode.

    A forward of several slots may move the states of others, but not their snapshots
    (llama_memory_recurrent::find_slot).
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
    """Whether such a decode may move the states of slots that have no rows in it."""
    return any(
        len(made) > 1
        for adjacent in (True, False)
        for made in split(rows, snapshots, adjacent=adjacent)
    )
