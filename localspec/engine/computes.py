"""Whether a model's forwards give usable numbers, asked once when it is loaded.

A model may need an operation that a kernel of this build computes wrongly. Then its logits are not
finite, perhaps only once sessions share a forward. Those of a damaged file are not finite either,
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
"""Rows of each session: with two, products of a model with a state have rows in batches."""


class Decoding(Protocol):
    """The part of a context that is needed."""

    n_slots: int

    def decode(self, rows: list[Row], /) -> ForwardOutput:
        """Decode all rows."""

    def truncate(self, slot: int, length: int, /) -> int:
        """Forget."""


def computes(context: Decoding) -> bool:
    """Whether logits are usable, of one session and of two that share a forward.

    A token may be impossible (-inf), but the largest logit of each row is finite, and not all of
    them are equal. Leaves the slots empty.
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
    """Check a model that has just been loaded. Without fast kernels, raises NoNumbers on failure.

    With fast kernels this process aborts instead, as llama.cpp does where it finds such a fault:
    after a worker that aborted while it loaded, the next one uses plain kernels.
    """
    if computes(context):
        return
    if not fast_kernels:
        raise no_numbers(file)
    sys.stderr.write(f"{file} gives no usable numbers with the fast kernels of this build.\n")
    sys.stderr.flush()
    os.abort()
