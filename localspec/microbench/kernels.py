"""LocalSpec's own kernels, tried where compiled: `python -m localspec.microbench.kernels`.

A compiler may miscompile them. For each format of theirs, small products of some rows, together and
in batches, must have the bits of these rows alone. They must also agree with llama.cpp's own
kernels: sums of integers exactly, sums of floats up to their last bits. With AMX llama.cpp's
kernels for tiles, which compute prompts there, are tried too and must agree with those for plain
weights. With `--worth` the time that our kernels save is measured as well. Standard output carries
one JSON object, the `Tried` of `bench/kernels.py`.
"""

from __future__ import annotations

import itertools
import os
import sys

import msgspec
import numpy as np

from localspec.built import installed
from localspec.engine.llama.kernels import Layout
from localspec.engine.llama.products import FORMATS, Products, Weights, activations
from localspec.types import Floats

_ROWS = (1, 2, 3, 5, 8, 9, 13, 32)
"""Numbers of rows that some instruction set computes at once, and some that leave a remainder."""
_BATCHES = (2, 2, 3)
"""Batches of rows, as of sessions that share a forward: 12 rows in all, a number not in `_ROWS`."""
_TILED = ("q4_0", "q8_0", "q4_K", "q5_K", "q6_K", "iq4_xs")
"""The types that llama.cpp packs for the tiles of AMX."""
_WIDTH, _OUTPUTS = 768, 32
_CLOSE = 1e-4
"""Largest difference, relative to the largest output of a row."""
_WORTH_ROWS = (4, 8)
_WORTH_WIDTH, _WORTH_OUTPUTS = 1536, 2048
_WORTH_REPEATS = 12


def failure(library: Products, layout: Layout, name: str) -> str:
    """The fault of our kernels for one format, as a sentence; "" if there is none."""
    weights = library.weights(layout, FORMATS[name], _WIDTH, _OUTPUTS)
    x = activations(_WIDTH, max(_ROWS))
    found = {rows: library.product(weights, x[:rows])[0] for rows in _ROWS}
    together = int(np.prod(_BATCHES))
    batches = library.product(weights, x[:together].reshape(*_BATCHES, _WIDTH))[0]
    found[together] = batches.reshape(together, _OUTPUTS)
    alone = np.concatenate([library.product(weights, row[None])[0] for row in x])
    library.use(False)
    theirs = np.concatenate([library.product(weights, row[None])[0] for row in x])
    library.use(True)
    library.free(weights)
    wrong = difference(found, alone, theirs)
    return f"{layout} {name.upper()}: {wrong} ({library.kernels})." if wrong else ""


def tile_failure(library: Products, name: str) -> str:
    """A sentence if products of weights in tiles differ from those of plain weights; else ""."""
    tiles, plain = (
        library.weights(layout, FORMATS[name], _WIDTH, _OUTPUTS) for layout in ("tiles", "plain")
    )
    x = activations(_WIDTH, max(_ROWS))
    wrong = ""
    for ours in (True, False):
        library.use(ours)
        for rows in _ROWS:
            found, expected = (library.product(each, x[:rows])[0] for each in (tiles, plain))
            if not _close(found, expected):
                wrong = f"tiles {name.upper()}: {rows} rows differ from those of plain weights."
    library.use(True)
    library.free(tiles)
    library.free(plain)
    return wrong


def _close(found: Floats, expected: Floats) -> bool:
    apart = np.abs(found - expected).max(axis=1)
    return bool(np.all(apart <= _CLOSE * np.abs(expected).max(axis=1)))


def difference(found: dict[int, Floats], alone: Floats, theirs: Floats) -> str:
    """The fault of products by row count, or ""; `alone` and `theirs` are of single rows."""
    for rows, product in found.items():
        if product.tobytes() != alone[:rows].tobytes():
            return f"{rows} rows differ from each of them alone"
    if not _close(alone, theirs):
        return "a row differs from what llama.cpp's own kernels say"
    return ""


def worth(library: Products, layout: Layout, name: str) -> dict[int, float]:
    """How many times as long llama.cpp's own kernels take, by rows: the least of times in turns."""
    weights = library.weights(layout, FORMATS[name], _WORTH_WIDTH, _WORTH_OUTPUTS)
    x = activations(_WORTH_WIDTH, max(_WORTH_ROWS))
    spans = {(rows, ours): np.inf for rows in _WORTH_ROWS for ours in (False, True)}
    for _, (rows, ours) in itertools.product(range(_WORTH_REPEATS), spans):
        spans[rows, ours] = min(spans[rows, ours], _seconds(library, weights, x[:rows], ours=ours))
    library.free(weights)
    return {rows: round(spans[rows, False] / spans[rows, True], 2) for rows in _WORTH_ROWS}


def _seconds(library: Products, weights: Weights, x: Floats, *, ours: bool) -> float:
    library.use(ours)
    try:
        return library.product(weights, x, 2)[1]
    finally:
        library.use(True)


def main() -> None:
    """As the module says."""
    answer = os.fdopen(os.dup(1), "wb")  # native code may print to descriptor 1 at any time
    os.dup2(2, 1)
    library = Products(installed())
    formats = library.formats if library.kernels else []
    tiled = _TILED if formats and "AMX" in library.buffer_types else ()
    wrong = [failure(library, *each) for each in formats]
    wrong += [tile_failure(library, name) for name in tiled]
    tried = {
        "kernels": library.kernels,
        "formats": sorted({name.upper() for _, name in formats}),
        "failure": next(filter(None, wrong), ""),
        "worth": {},
    }
    if "--worth" in sys.argv:
        single = Products(installed(), threads=1)
        tried["worth"] = {
            f"{name.upper()}": worth(single, layout, name) for layout, name in formats
        }
    with answer:
        answer.write(msgspec.json.encode(tried))


if __name__ == "__main__":
    main()
