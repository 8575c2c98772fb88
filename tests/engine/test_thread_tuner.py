"""Threads of real forwards: they change between forwards, and a row's bits do not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import tiny

from localspec.engine.llama.context import Context
from localspec.engine.llama.cores import counts
from localspec.engine.llama.library import ours
from localspec.engine.llama.model import Model
from localspec.engine.llama.threads import ThreadTuner, fastest
from localspec.types import Floats, Row

LONG = 640
"""Behind so many tokens llama.cpp's own attention shares out the text by threads."""


@pytest.fixture
def context(tmp_path: Path) -> Iterator[Context]:
    """Of a tiny model, with cells for few tokens at first."""
    model = Model.load(tiny.build(tmp_path / "model.gguf"))
    made = Context.open(model, slots=1, context=1024, rows=64, cells=256, most_cells=1024)
    yield made
    made.close()
    model.close()


def read(context: Context, length: int) -> None:
    """A text into the first slot."""
    for start in range(0, length, 64):
        context.decode([Row(at % 99, at, 0) for at in range(start, start + 64)])


def row(context: Context) -> Floats:
    """Logits of one more token, which is forgotten."""
    held = context.held[0]
    logits = context.decode([Row(7, held, 0, wants_logits=True)]).logits.copy()
    context.truncate(0, held)
    return logits


def test_bits_do_not_depend_on_threads(context: Context) -> None:
    """Of a row behind a long text; nor while a team tries them."""
    if not ours.kernels:  # which attention comes with, whatever else this process has computed
        pytest.skip("attention is llama.cpp's")
    read(context, LONG)
    alone = row(context)
    for count in (2, 3, 1):
        context.use_threads(count)
        np.testing.assert_array_equal(row(context), alone)
    context.join(ThreadTuner(2, varies=True))
    for _ in range(50):
        np.testing.assert_array_equal(row(context), alone)


def test_a_context_that_grows_keeps_its_threads(context: Context) -> None:
    """Its native context is made anew then."""
    context.use_threads(3)
    cells = context.kv_cells
    read(context, LONG)
    assert context.kv_cells > cells
    assert context.threads == 3


def test_kinds_of_cores_are_measured_by_forwards(context: Context) -> None:
    """The context keeps the best of the given numbers; a single one is not measured."""
    found = fastest(context, [1, 2], lambda: row(context))
    assert found in {1, 2}
    assert fastest(context, [5], lambda: pytest.fail("measured")) == 5


def test_a_tuner_sets_the_contexts_threads(context: Context) -> None:
    """The context follows the tuner's number; without other load the tuner has no message."""
    context.join(ThreadTuner(counts()[0], varies=False))
    context.use_threads(9)
    row(context)
    assert context.threads == counts()[0]
    assert not ThreadTuner(2, varies=True).sentence
