"""A process that multiplies many rows by tiles of bf16 and prints what is wrong with the products.

python -m many_rows_peer LIBRARIES
"""

from __future__ import annotations

import itertools
import json
import sys
from pathlib import Path

import gguf
import numpy as np

from localspec.engine.llama.kernels import UNLISTED_LOGIT
from localspec.engine.llama.products import FORMATS, Products, Stored, Weights, activations
from localspec.engine.llama.shortlist import RUN
from localspec.types import Floats

WIDE = ("q4_0", "q8_0", "q4_K", "q6_K")
OTHERS = ("q5_K", "iq4_xs")
"""Packed for AMX as well, and llama.cpp's to multiply."""
SHAPES = ((256, 32), (1280, 64), (4352, 96))
"""Activations and outputs; the last are cut into several panels."""
NARROW = (96, 32)
"""For blocks of 32 weights."""
ROWS = (1, 2, 15, 16, 17, 31, 32, 33, 48, 100, 300)
NEVER = 1 << 30
HALF = 2.0**-9
"""Of a number, at most, is lost when it is rounded to bf16."""
LEAST = float(np.finfo(np.float32).tiny)
"""Smaller numbers are zeros to the tiles."""


def faults(library: Products, name: str, width: int, outputs: int) -> list[str]:
    """Sentences about the products of one matrix."""
    kind = FORMATS[name]
    stored = Stored(kind.number, width, outputs, kind.blocks(width, outputs))
    weights = library.stored(stored, "tiles")
    plain = gguf.quants.dequantize(stored.data, gguf.GGMLQuantizationType(kind.number))
    exact_weights = plain.astype(np.float64)
    x = activations(width, max(ROWS))
    exact = x.astype(np.float64) @ exact_weights.T
    sizes = np.abs(x).astype(np.float64) @ np.abs(exact_weights).T
    allowed = sizes * (2 * HALF + HALF**2 + width * 2.0**-24)
    allowed += LEAST * (width + np.abs(exact_weights).sum(axis=1) + np.abs(x).sum(axis=1)[:, None])
    found = []
    for rows in ROWS:
        library.many_rows(NEVER)
        few = library.product(weights, x[:rows])[0]
        library.many_rows(rows + 1)
        if library.product(weights, x[:rows])[0].tobytes() != few.tobytes():
            found.append(f"{rows} rows are by tiles, and too few")
        library.many_rows(rows)
        product = library.product(weights, x[:rows])[0]
        far = ~(np.abs(product - exact[:rows]) <= allowed[:rows])  # no number is far too
        if far.any():
            found.append(f"{rows} rows: {far.sum()} outputs of {far.size} are too far")
        if rows > 1 and product.tobytes() == few.tobytes():
            found.append(f"{rows} rows are not by tiles")
        if not shortened(library, weights, x[:rows]):
            found.append(f"{rows} rows, cut short")
    again = library.product(weights, x)[0]
    if again[: ROWS[-2]].tobytes() != by_rows(library, weights, x, ROWS[-2]).tobytes():
        found.append("a row has other bits beside other rows")
    library.many_rows(NEVER)
    library.free(weights)
    return [f"{name} {width}x{outputs}: {each}" for each in found]


def by_rows(library: Products, weights: Weights, x: Floats, rows: int) -> Floats:
    """The product of the first rows alone."""
    library.many_rows(1)
    return library.product(weights, x[:rows])[0]


def shortened(library: Products, weights: Weights, x: Floats) -> bool:
    """Whether a product of which some runs are wanted has those of the whole, and no more."""
    whole = library.product(weights, x)[0]
    outputs = whole.shape[1]
    for runs in ([0], [outputs // RUN - 1], list(range(0, outputs // RUN, 2))):
        with library.listing(outputs, np.array(runs, np.int32)):
            found = library.product(weights, x)[0]
        expected = np.where(np.isin(np.arange(outputs) // RUN, runs), whole, UNLISTED_LOGIT)
        if found.tobytes() != expected.astype(np.float32).tobytes():
            return False
    return True


def undisturbed(library: Products, name: str) -> list[str]:
    """Whether llama.cpp's own tiles say the same after ours."""
    width, outputs = SHAPES[1]
    theirs = library.weights("tiles", FORMATS[name], width, outputs)
    ours = library.weights("tiles", FORMATS["q4_K"], width, outputs)
    x = activations(width, 33)
    library.many_rows(NEVER)
    before = library.product(theirs, x)[0]
    library.many_rows(1)
    library.product(ours, x)
    after = library.product(theirs, x)[0]
    library.many_rows(NEVER)
    library.free(theirs)
    library.free(ours)
    return [] if before.tobytes() == after.tobytes() else [f"{name} differs after tiles of bf16"]


def main() -> None:
    """As the module says."""
    library = Products(Path(sys.argv[1]))
    has = library.many_rows(NEVER)
    wrong: list[str] = []
    if has:
        for name, shape in itertools.product(WIDE, SHAPES):
            wrong += faults(library, name, *shape)
        for name in ("q4_0", "q8_0"):
            wrong += faults(library, name, *NARROW)
        for name in OTHERS:
            wrong += undisturbed(library, name)
    json.dump({"kernels": library.kernels, "has": has, "wrong": wrong}, sys.stdout)


if __name__ == "__main__":
    main()
