"""Outputs of slots that are decoded one by one belong to their own rows, or there are none."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from localspec.engine.exactness.separate import SeparateBackend
from localspec.types import ForwardOutput, Row


class Partly:
    """A backend that shows states of the slots in `shows` alone.

    Without LocalSpec's edits llama.cpp shows them only where each row of a forward wants logits.
    """

    n_vocab, n_slots, max_rows, context = 4, 3, 8, 64

    def __init__(self, shows: set[int]) -> None:
        self.shows = shows

    def decode(self, rows: Sequence[Row]) -> ForwardOutput:
        """Logits and states that name their slot."""
        slot, wanted = rows[0].slot, sum(row.wants_logits for row in rows)
        states = np.full((wanted, 2), slot, np.float32) if slot in self.shows and wanted else None
        return ForwardOutput(np.full((wanted, 4), slot, np.float32), states, lambda: None)

    def truncate(self, slot: int, length: int) -> int:
        """Forget nothing."""
        del slot
        return length

    def checkpoint(self, slot: int, *, lasting: bool = False) -> None:
        """Copy nothing."""


ROWS = [
    Row(1, 0, 0, wants_logits=True),
    Row(1, 0, 1),
    Row(2, 1, 1, wants_logits=True),
    Row(3, 0, 2),  # a chunk of a prompt that goes on
]


@pytest.mark.parametrize(
    ("shows", "slots"), [({0, 1, 2}, [0, 1]), ({0, 1}, [0, 1]), ({1}, None), (set(), None)]
)
def test_states_are_those_of_the_rows_with_logits(shows: set[int], slots: list[int] | None) -> None:
    """A session never gets the state of another one."""
    output = SeparateBackend(Partly(shows)).decode(ROWS)
    assert output.logits[:, 0].tolist() == [0, 1]
    assert (output.states is None) == (slots is None)
    if output.states is not None:
        assert output.states[:, 0].tolist() == slots
