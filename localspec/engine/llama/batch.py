"""Checks rows and writes them into a llama_batch: llama.cpp trusts what stands there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from localspec.errors import EngineError
from localspec.types import Row


def fill(batch: Any, rows: Sequence[Row], *, tokens: int, slots: int) -> int:
    """Write `rows` into the batch; returns how many of them want logits.

    Args:
        batch: A llama_batch with room for them.
        rows: What to decode.
        tokens: The size of the vocabulary.
        slots: Sequences of the context.

    Raises:
        EngineError: the model has no such token, or the context no such slot.
    """
    wanted = 0
    batch.n_tokens = len(rows)
    token, pos, logits = batch.token, batch.pos, batch.logits
    n_seq_id, seq_id = batch.n_seq_id, batch.seq_id
    for index, row in enumerate(rows):
        if not (0 <= row.token < tokens and 0 <= row.slot < slots):
            raise EngineError(f"{row} has no such token or slot.")
        token[index] = row.token
        pos[index] = row.position
        n_seq_id[index] = 1
        seq_id[index][0] = row.slot
        logits[index] = row.wants_logits
        wanted += row.wants_logits
    return wanted
