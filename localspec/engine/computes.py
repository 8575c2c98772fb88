"""Whether a model's forwards give usable numbers, asked once when it is loaded.

An architecture that llama.cpp has may need what a kernel of this build gets wrong; then logits are
no numbers, in the worst case as soon as sessions share a forward. A damaged file gives none either,
or, where all of it is zero, the same for every token.
"""

from __future__ import annotations

import os
import sys
from typing import Protocol

import numpy as np

from localspec.errors import no_numbers
from localspec.types import ForwardOutput, Row

_ROWS = 2
"""Of each session: products then have rows in batches, where a model's memory is a state."""


class Decoding(Protocol):
    """The part of a context that is needed."""

    n_slots: int

    def decode(self, rows: list[Row], /) -> ForwardOutput:
        """Decode all rows."""

    def truncate(self, slot: int, length: int, /) -> int:
        """Forget."""


def computes(context: Decoding) -> bool:
    """Whether logits are usable, of one session and of two that share a forward.

    A token may be impossible (-inf), but each row has two that are not equally likely.

    Leaves the slots empty.
    """
    for sessions in {1, min(2, context.n_slots)}:
        rows = [
            Row(0, at, slot, wants_logits=at + 1 == _ROWS)
            for slot in range(sessions)
            for at in range(_ROWS)
        ]
        logits = context.decode(rows).logits
        best = logits.max(axis=1)
        usable = np.isfinite(best).all() and (logits.min(axis=1) < best).all()
        for slot in range(sessions):
            context.truncate(slot, 0)
        if not usable:
            return False
    return True


def require_numbers(context: Decoding, file: str, *, fast_kernels: bool) -> None:
    """Check a model that has just been loaded. Raises NoNumbers, without the fast kernels.

    With them this process ends, as llama.cpp ends it where it finds that: a worker that ends so
    while it loads is followed by one with plain kernels.
    """
    if computes(context):
        return
    if not fast_kernels:
        raise no_numbers(file)
    sys.stderr.write(f"{file} gives no usable numbers with the fast kernels of this build.\n")
    sys.stderr.flush()
    os.abort()
