"""A process that decodes with a model in forwards of mixed sizes and prints a digest of the logits.

    python -m graphs_peer MODEL

llama.cpp reads LOCALSPEC_GRAPHS once, so the two ways to compute need two processes.
"""

from __future__ import annotations

import hashlib
import random
import sys
from pathlib import Path

import numpy as np

from localspec.engine.llama.context import Context
from localspec.engine.llama.model import Model
from localspec.types import Row

SIZES = (1, 1, 1, 2, 3, 4, 5, 7, 8, 9, 16, 31, 32, 33, 64)
FORWARDS, LENGTH, SLOTS = 300, 700, 2


def main() -> None:
    """As the module says."""
    model = Model.load(Path(sys.argv[1]))
    context = Context.open(model, slots=SLOTS, context=LENGTH, rows=max(SIZES))
    chance = random.Random(3)  # noqa: S311 — a test
    held = [0] * SLOTS
    found = hashlib.sha256()
    for _ in range(FORWARDS):
        size, slot = chance.choice(SIZES), chance.randrange(SLOTS)
        if held[slot] + size > LENGTH:
            held[slot] = 0
            context.truncate(slot, 0)
        judged = chance.random() < 0.8
        rows = [
            Row(chance.randrange(250), held[slot] + at, slot, judged or at % 3 == 0)
            for at in range(size)
        ]
        logits = context.decode(rows).logits
        assert np.isfinite(logits).all()
        found.update(logits.tobytes())
        held[slot] += size - chance.randrange(min(size, 6))
        context.truncate(slot, held[slot])
    sys.stdout.write(found.hexdigest())


if __name__ == "__main__":
    main()
