"""Writes rows into a llama_batch, checked: llama.cpp trusts what stands there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from localspec.engine.llama.branches import Branches
from localspec.errors import EngineError
from localspec.types import Row


def fill(
    batch: Any, rows: Sequence[Row], branches: Branches | None = None, *, tokens: int, slots: int
) -> int:
    """Write `rows` into the batch; how many of them want logits.

    Args:
        batch: A llama_batch with room for them.
        rows: What to decode.
        branches: The sequences of branches; without, there are none but the slots'.
        tokens: The size of the vocabulary.
        slots: Sequences of the context.

    Raises:
        EngineError: A row has no such token, slot or branch.
    """
    most = branches.most if branches else 1
    wanted = 0
    batch.n_tokens = len(rows)
    token, pos, logits = batch.token, batch.pos, batch.logits
    n_seq_id, seq_id = batch.n_seq_id, batch.seq_id
    for index, row in enumerate(rows):
        if not (0 <= row.token < tokens and 0 <= row.slot < slots):
            raise EngineError(f"{row} has no such token or slot.")
        if not (
            0 < len(row.branches) <= most and 0 <= min(row.branches) <= max(row.branches) < most
        ):
            raise EngineError(f"{row} has no such branch; there are {most}.")
        token[index] = row.token
        pos[index] = row.position
        n_seq_id[index] = len(row.branches)
        for place, branch in enumerate(row.branches):
            seq_id[index][place] = branches.sequence(row.slot, branch) if branches else row.slot
        logits[index] = row.wants_logits
        wanted += row.wants_logits
    return wanted
