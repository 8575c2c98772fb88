"""Whether a model's forwards give numbers, asked once when it is loaded.

An architecture that llama.cpp has may need what a kernel of this build gets wrong; then logits are
no numbers, in the worst case as soon as sessions share a forward.
"""

from __future__ import annotations

import os
import sys
from typing import Protocol

import numpy as np

from localspec.types import Floats, Row

_ROWS = 2
"""Of each session: products then have rows in batches, where a model's memory is a state."""


class Decoding(Protocol):
    """The part of a context that is needed."""

    n_slots: int

    def decode(self, rows: list[Row], /) -> Floats:
        """Logits of the rows that want them."""

    def truncate(self, slot: int, length: int, /) -> int:
        """Forget."""


def computes(context: Decoding) -> bool:
    """Whether all logits are finite, of one session and of two that share a forward.

    Leaves the slots empty.
    """
    for sessions in {1, min(2, context.n_slots)}:
        rows = [
            Row(0, at, slot, wants_logits=at + 1 == _ROWS)
            for slot in range(sessions)
            for at in range(_ROWS)
        ]
        finite = np.isfinite(context.decode(rows)).all()
        for slot in range(sessions):
            context.truncate(slot, 0)
        if not finite:
            return False
    return True


def require_numbers(context: Decoding, stage: str) -> None:
    """End this process if logits are no numbers, as llama.cpp does where it finds that.

    A worker that ends so while it loads is followed by one with plain kernels.
    """
    if computes(context):
        return
    sys.stderr.write(f"The {stage}'s logits are no numbers with the fast kernels of this build.\n")
    sys.stderr.flush()
    os.abort()
