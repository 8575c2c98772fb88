"""A process that multiplies matrices by ggml's CPU library and prints what came out.

    python -m products_peer LIBRARIES [--least]

Where the libraries are for another CPU an emulator runs them (`emulated.py`). Our kernels compute
unless LOCALSPEC_ROWS is 0. With `--least`, least microseconds of a product as large as one of a
model, by rows, instead of digests.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import sys
from pathlib import Path

import numpy as np
from emulated import Emulated, is_emulated

from localspec.engine.llama.kernels import UNLISTED_LOGIT
from localspec.engine.llama.products import FORMATS, Products, activations
from localspec.engine.llama.shortlist import RUN
from localspec.types import Floats

SHAPES = [(256, 8), (768, 33), (1280, 40), (512, 1), (768, 12)]
"""Activations and outputs: not all of them whole groups of what is computed at once."""
ROWS = [*range(1, 18), 24, 25, 31, 32]
"""Every count of a round, and the ends of what is computed at once and of what is ours."""
MORE_ROWS = [33, 49, 64, 65, 127, 128, 129, 600]
"""On x86 a prompt too is ours, of packed weights and of some plain ones."""
PLAIN_PROMPTS = {"q6_K", "q8_0"}
PROMPTS_IN_LANES = {*PLAIN_PROMPTS, "q5_K", "iq4_xs"}
"""With AVX-512 VNNI all plain ones are (`native/lanes.h`)."""
SHORT_ROWS = [1, 2, 7, 32]
"""Of products of which half of the runs of outputs are wanted."""
LEAST_ROWS = [1, 2, 3, 4, 6, 8, 12, 16, 32]
CLOSE = 1e-4
"""So much of an output's largest number may come of another order of sums."""


def digest(row: Floats) -> str:
    """Of one row of outputs."""
    return hashlib.sha256(row.tobytes()).hexdigest()[:12]


def digests(library: Products | Emulated, *, ours: bool) -> dict[str, dict[str, list[str]]]:
    """Of each row of every product, by format, layout and shape, and by rows in a product.

    Without our kernels, of rows that were multiplied one at a time.
    """
    found: dict[str, dict[str, list[str]]] = {}
    for (layout, name), (width, outputs) in itertools.product(library.formats, SHAPES):
        if layout == "packed" and outputs % tile_outputs(library, name):
            continue
        x = activations(width, max(ROWS if on_arm(library) else MORE_ROWS))
        # The two libraries agree in all but what weights are.
        weights: object = library.weights(layout, FORMATS[name], width, outputs)
        by_rows = found[f"{name} {layout} {width}x{outputs}"] = {}
        singles = alone(library, weights, x)
        by_rows["alone"] = [digest(row) for row in singles]
        if ours:
            for rows in ROWS + MORE_ROWS * prompts_are_ours(library, layout, name):
                product, _ = library.product(weights, x[:rows])  # type: ignore[arg-type]
                by_rows[str(rows)] = [digest(row) for row in product]
            by_rows["wrong"] = [
                str(rows) for rows in SHORT_ROWS if not shortened(library, weights, x[:rows])
            ]
            by_rows["far"] = far_outputs(library, weights, x, singles)
        library.free(weights)  # type: ignore[arg-type]
    return found


def prompts_are_ours(library: Products | Emulated, layout: str, name: str) -> bool:
    """Whether more rows than a round has are computed by our kernels, or as these do."""
    plain = PROMPTS_IN_LANES if library.kernels == "AVX512_VNNI" else PLAIN_PROMPTS
    return (layout == "packed" or name in plain) and not on_arm(library)


def alone(library: Products | Emulated, weights: object, x: Floats) -> Floats:
    """Products of each row."""
    return np.concatenate([library.product(weights, row[None])[0] for row in x])  # type: ignore[arg-type]


def far_outputs(
    library: Products | Emulated, weights: object, x: Floats, found: Floats
) -> list[str]:
    """Those that are not what llama.cpp's own kernels say, but for the order of sums."""
    if not isinstance(library, Products):
        return []  # only here a library has both
    library.use(False)
    theirs = alone(library, weights, x)
    library.use(True)
    peaks = np.abs(x).max(axis=1, keepdims=True).astype(np.float64)
    bound = CLOSE * np.abs(theirs / peaks).max(axis=0) * peaks + np.finfo(np.float32).tiny
    return [str(at) for at in np.flatnonzero((np.abs(found - theirs) > bound).any(axis=0))]


def shortened(library: Products | Emulated, weights: object, x: Floats) -> bool:
    """Whether a product of which every second run is wanted has those of the whole, and no more."""
    whole, _ = library.product(weights, x)  # type: ignore[arg-type]
    outputs = whole.shape[1]
    last = (outputs - 1) // RUN
    runs = np.arange(last % 2, last + 1, 2, dtype=np.int32)
    with library.listing(outputs, runs):
        found, _ = library.product(weights, x)  # type: ignore[arg-type]
    expected = np.where(np.isin(np.arange(outputs) // RUN, runs), whole, UNLISTED_LOGIT)
    again, _ = library.product(weights, x)  # type: ignore[arg-type]
    return found.tobytes() == expected.tobytes() and again.tobytes() == whole.tobytes()


def on_arm(library: Products | Emulated) -> bool:
    """Only there Q8_0 is packed."""
    return ("packed", "q8_0") in library.formats


def tile_outputs(library: Products | Emulated, name: str) -> int:
    """Outputs of one tile of packed weights."""
    return 4 if on_arm(library) and name in {"q4_0", "q8_0"} else 8


def least(library: Products) -> dict[str, dict[str, float]]:
    """Microseconds by format and rows, on one thread; every row count in turn, some times."""
    width, outputs = 1536, 8960
    found: dict[str, dict[str, float]] = {}
    x = activations(width, max(LEAST_ROWS))
    for layout, name in library.formats:
        weights = library.weights(layout, FORMATS[name], width, outputs)
        times = found[f"{name} {layout}"] = {}
        for _, rows in itertools.product(range(12), LEAST_ROWS):
            _, seconds = library.product(weights, x[:rows], 3)
            times[str(rows)] = min(times.get(str(rows), 1e9), round(1e6 * seconds))
        library.free(weights)
    return found


def main() -> None:
    """As the module says."""
    libraries, measured = Path(sys.argv[1]), "--least" in sys.argv
    found: dict[str, dict[str, float]] | dict[str, dict[str, list[str]]]
    if measured:
        library: Products | Emulated = Products(libraries, threads=1)
        assert isinstance(library, Products)
        found = least(library)
    else:
        library = (Emulated if is_emulated(libraries) else Products)(libraries)
        found = digests(library, ours=os.environ.get("LOCALSPEC_ROWS") != "0")
    json.dump({"kernels": library.kernels, "found": found}, sys.stdout)


if __name__ == "__main__":
    main()
