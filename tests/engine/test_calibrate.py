"""What is measured while nobody waits, on a real tiny model."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest
import tiny

from localspec import drafters
from localspec.control.acceptance import Acceptance
from localspec.control.controller import Controller
from localspec.control.costs import Costs
from localspec.engine import calibrate
from localspec.engine.context import Context
from localspec.engine.exactness import Shape
from localspec.engine.model import Model
from localspec.engine.session import Request
from localspec.engine.step import Engine, Limits
from localspec.types import SamplingParams, SpeculationParams


@pytest.fixture
def context(tmp_path: Path) -> Iterator[Context]:
    """Two slots of 200 tokens."""
    model = Model.load(tiny.build(tmp_path / "tiny.gguf"))
    context = Context.open(model, slots=2, context=200, rows=128)
    yield context
    context.close()
    model.close()


def ticks() -> float:
    """A clock that moves by one second each time it is read."""
    return float(next(_TICKS))


_TICKS = itertools.count()


@pytest.fixture
def engine(context: Context) -> Engine:
    """Over both slots, without drafters."""
    policy = Controller(Costs(), Acceptance())
    ends: frozenset[int] = frozenset()
    return Engine(context, {}, policy, ends=ends, shape=Shape(), limits=Limits(), clock=ticks)


def visit(engine: Engine, prompt: list[int]) -> None:
    """A request that comes and goes; its slot remembers it."""
    sampling = SamplingParams(temperature=0.0)
    session = engine.admit(Request("r", "c", prompt, sampling, SpeculationParams(), 3))
    while session.finish is None:
        engine.step()
    engine.retire(session)


def test_row_counts_that_surprise_are_measured_again(context: Context) -> None:
    """Every count three times in turn; what does not settle some times more, and not for ever."""
    seen: list[int] = []

    def measured(rows: int, _seconds: float, looks: int) -> float:
        assert looks == rows * (rows - 1) // 2  # nothing before them
        seen.append(rows)
        return {2: 0.05, 4: 0.5 if len(seen) < 12 else 0.0, 8: -0.3}[rows]

    for _ in calibrate.staircase(context, (2, 4, 8, 512), 1, measured, ticks):
        pass
    assert seen == [2, 4, 8] * 3 + [4, 8] * 2 + [8] * 2
    assert context.length(1) == 0


def test_far_forwards_look_back_on_what_was_read_before_them(
    context: Context, engine: Engine
) -> None:
    """Reading in chunks, then each row count behind all of it and beside that near a beginning."""
    far = calibrate.far_tokens(context)
    seen = list(calibrate.far_measurements(engine, 2, ticks))
    pairs = [
        [(rows, sum(range(far, far + rows))), (rows, sum(range(rows)))]
        for rows in (1, 4, 16, 1, 4, 16)
    ]
    assert [(forward.rows, forward.looks) for forward in seen] == [
        (64, sum(range(64))),
        (64, sum(range(64, 128))),
        (far - 128, sum(range(128, far))),
        *itertools.chain(*pairs),
    ]
    assert {forward.seconds for forward in seen} == {1.0}
    assert context.length(0) == context.length(1) == 0


@pytest.mark.parametrize("before", [1, 4, 8])
def test_a_visitor_is_only_a_delay(context: Context, engine: Engine, before: int) -> None:
    """The tokens are read again after it, and what its slot remembers of it stays there."""
    measuring = calibrate.far_measurements(engine, 2, ticks)
    seen = list(itertools.islice(measuring, before))
    visit(engine, [7, 8, 9])
    assert (engine.remembers(0), engine.remembers(1)) == (True, False)
    after = list(measuring)
    far = calibrate.far_tokens(context)
    assert (64, 1.0, sum(range(64))) in after[:2]
    behind = [forward.rows for forward in seen + after if forward.looks >= far * forward.rows]
    assert behind == [1, 4, 16, 1, 4, 16]
    assert (context.length(0), context.length(1)) == (5, 0)


def test_a_draft_is_rehearsed_after_short_and_long_texts(context: Context) -> None:
    """Each is read, then drafted after without reading; too long a text is left out."""
    drafter = drafters.load("model", context=context, n_vocab=context.n_vocab, ends=frozenset())
    seen = list(calibrate.rehearsals(drafter, 2, 1, ticks))
    assert [(cost.pending, cost.depth, cost.cells) for cost in seen] == [
        (64, 1, 64),
        (1, 4, 64),
        (64, 1, 64),
        (1, 4, 64),
    ]


def test_a_long_text_is_read_in_parts(tmp_path: Path) -> None:
    """Each part is a measurement of its own, and the drafts after it look back on all of it."""
    model = Model.load(tiny.build(tmp_path / "tiny.gguf"))
    context = Context.open(model, slots=1, context=1100, rows=256)
    drafter = drafters.load("model", context=context, n_vocab=model.n_vocab, ends=frozenset())
    seen = list(calibrate.rehearsals(drafter, 2, 0, ticks))[4:]
    assert [(cost.pending, cost.depth, cost.cells) for cost in seen] == [
        (256, 0, 256),
        (256, 0, 512),
        (256, 0, 768),
        (256, 1, 1024),
        (1, 4, 1024),
        (1, 4, 1024),
    ]
    context.close()
    model.close()
