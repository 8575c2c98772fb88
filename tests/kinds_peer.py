"""A process that decodes sessions together and prints how far each is from itself alone.

    python -m kinds_peer MODEL

The CPU's library is that of LLAMA_CPP_LIB_PATH, if that is set.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from localspec.config import Placement
from localspec.engine.llama.context import Context
from localspec.engine.llama.library import ours
from localspec.engine.llama.model import Model
from localspec.types import Floats, Row

SESSIONS = (1, 2, 4)
EQUAL = ((3, 3, 3, 3), (1, 1, 1, 1), (8, 8, 8, 8), (1, 1, 1, 1))
UNEQUAL = ((1, 3, 5, 2), (4, 1, 1, 7), (2, 8, 3, 1), (1, 1, 2, 1))
"""Rows of each session in one forward after the other."""
MOST = 64


def decoded(context: Context, plan: Sequence[Sequence[int]], slots: Sequence[int]) -> list[Floats]:
    """Logits of all rows of each of these sessions, which share forwards of so many rows each."""
    for slot in range(context.n_slots):
        context.truncate(slot, 0)
    found: list[list[Floats]] = [[] for _ in slots]
    positions = dict.fromkeys(slots, 0)
    for counts in plan:
        rows, owners = [], []
        for at, slot in enumerate(slots):
            random = np.random.default_rng([slot, positions[slot]])
            for token in random.integers(0, 250, counts[slot]).tolist():
                rows.append(Row(token, positions[slot], slot, wants_logits=True))
                owners.append(at)
                positions[slot] += 1
        for at, logits in zip(owners, context.decode(rows).logits, strict=True):
            found[at].append(logits.copy())
    return [np.array(each) for each in found]


def apart(found: Floats, alone: Floats) -> float:
    """The furthest row, as a part of its length; infinite where something is no number."""
    if not np.isfinite(found).all() or not np.isfinite(alone).all():
        return float("inf")
    spread = np.linalg.norm(alone - alone.mean(axis=1, keepdims=True), axis=1)
    return float((np.linalg.norm(found - alone, axis=1) / spread).max())


def main() -> None:
    """As the module says."""
    model = Model.load(Path(sys.argv[1]), Placement(gpu_layers=0))
    context = Context.open(model, Placement(), slots=max(SESSIONS), context=512, rows=MOST)
    found: dict[str, float] = {}
    for name, plan in (("equal", EQUAL), ("unequal", UNEQUAL)):
        alone = [decoded(context, plan, [slot])[0] for slot in range(max(SESSIONS))]
        for sessions in SESSIONS:
            together = decoded(context, plan, range(sessions))
            gaps = [apart(each, alone[slot]) for slot, each in enumerate(together)]
            found[f"{sessions} {name}"] = max(gaps)
    json.dump({"kernels": ours.kernels, "found": found}, sys.stdout)


if __name__ == "__main__":
    main()
