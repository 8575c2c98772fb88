"""A process that decodes with a model in forwards of every size and prints what came out.

    python -m rows_peer MODEL ROWS [ROWS ...]

llama.cpp reads LOCALSPEC_ROWS once, so the two ways to compute need two processes.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from localspec.config import Placement
from localspec.engine.llama.context import Context
from localspec.engine.llama.library import ours
from localspec.engine.llama.model import Model
from localspec.types import Row

LENGTH = 72


def decoded(context: Context, size: int) -> NDArray[np.float32]:
    """All logits of a random text that is decoded `size` rows at a time."""
    context.truncate(0, 0)
    tokens = np.random.default_rng(7).integers(0, 250, LENGTH).tolist()
    found = []
    for start in range(0, LENGTH, size):
        chunk = tokens[start : start + size]
        rows = [Row(token, start + i, 0, wants_logits=True) for i, token in enumerate(chunk)]
        logits = context.decode(rows).logits
        assert np.isfinite(logits).all()
        assert logits.std() > 0
        found.append(logits.copy())
    return np.concatenate(found)


def main() -> None:
    """As the module says."""
    model = Model.load(Path(sys.argv[1]), Placement(gpu_layers=0))
    found: dict[str, object] = {"kernels": ours.kernels}
    ways = {"products": Placement(flash_attention="off"), "attention": Placement()}
    for name, how in ways.items():
        context = Context.open(model, how, slots=1, context=2 * LENGTH, rows=LENGTH)
        logits = {size: decoded(context, int(size)) for size in sys.argv[2:]}
        found[name] = {
            size: hashlib.sha256(each.tobytes()).hexdigest() for size, each in logits.items()
        }
        found["last"] = logits["1"][-1].tolist()
        context.close()
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
