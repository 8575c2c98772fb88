"""Measurements in idle time, on a real tiny model."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
import tiny

from localspec import drafters
from localspec.control.acceptance import Acceptance
from localspec.control.controller import Controller
from localspec.control.costs import STEADY, Costs
from localspec.drafters.model import ModelDrafter
from localspec.engine import calibrate
from localspec.engine.calibrate import MeasuringPlace, Timed
from localspec.engine.exactness.classes import Shape
from localspec.engine.llama.context import Context
from localspec.engine.llama.model import Model
from localspec.engine.pieces import whole
from localspec.engine.session import Request
from localspec.engine.step import Engine, Limits
from localspec.types import (
    Draft,
    DraftRequest,
    ForwardOutput,
    Row,
    SamplingParams,
    SpeculationParams,
)


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


@pytest.mark.parametrize("warm", [0, STEADY])
def test_row_counts_that_surprise_are_measured_again(context: Context, warm: int) -> None:
    """Each count three times in turn; one whose times vary some times more, but not endlessly."""
    seen: list[int] = []

    def measured(rows: int, _seconds: float, attended: int) -> float:
        assert attended == rows * (rows - 1) // 2  # nothing before them
        seen.append(rows)
        return {2: 0.05, 4: 0.5 if len(seen) < 12 else 0.0, 8: -0.3}[rows]

    for _ in calibrate.staircase(
        context, (2, 4, 8, 512), lambda: MeasuringPlace(1, 0), measured, ticks, warm
    ):
        pass
    assert seen == [2, 4, 8] * 3 + [4, 8] * 2 + [8] * 2
    assert context.length(1) == 0


def test_far_forwards_attend_to_a_long_text(context: Context, engine: Engine) -> None:
    """Prefill in chunks, then each row count behind all of it and beside a short one."""
    far = calibrate.far_tokens(context)
    seen = list(calibrate.far_measurements(engine, 2, ticks, STEADY))
    pairs = [
        [(rows, sum(range(far, far + rows))), (rows, sum(range(rows)))]
        for rows in (1, 4, 16, 1, 4, 16)
    ]
    assert [(forward.rows, forward.attended) for forward in seen] == [
        (64, sum(range(64))),
        (64, sum(range(64, 128))),
        (far - 128, sum(range(128, far))),
        *itertools.chain(*pairs),
    ]
    assert {forward.seconds for forward in seen} == {1.0}
    assert context.length(0) == context.length(1) == 0


@pytest.mark.parametrize("before", [1, 4, 8])
def test_a_request_only_delays_the_measurement(
    context: Context, engine: Engine, before: int
) -> None:
    """The tokens are read again after it, and its slot still remembers its text."""
    measuring = calibrate.far_measurements(engine, 2, ticks, STEADY)
    seen = list(itertools.islice(measuring, before))
    visit(engine, [7, 8, 9])
    assert (engine.remembers(0), engine.remembers(1)) == (True, False)
    after = list(measuring)
    far = calibrate.far_tokens(context)
    assert (64, 1.0, sum(range(64))) in after[:2]
    behind = [forward.rows for forward in seen + after if forward.attended >= far * forward.rows]
    assert behind == [1, 4, 16, 1, 4, 16]
    assert (context.length(0), context.length(1)) == (5, 0)


def test_drafts_are_measured_after_short_and_long_texts(context: Context) -> None:
    """Each text is read first, then drafted after; one that is too long is left out."""
    drafter = drafters.load("model", context=context, n_vocab=context.n_vocab, ends=frozenset())
    seen = list(calibrate.rehearsals(drafter, 2, 1, [], context.n_vocab, ticks))
    assert [(cost.pending, cost.depth, cost.cells) for cost in seen] == [
        (64, 1, 64),
        (1, 4, 64),
        (64, 1, 64),
        (1, 4, 64),
    ]


class Merging(ModelDrafter):
    """Says in one token what it decoded in several."""

    def propose(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        """The first of each."""
        return [draft.head(1) for draft in super().propose(requests)]


def test_a_draft_takes_as_many_steps_as_forwards(context: Context) -> None:
    """However many tokens those make, as of a draft with another tokenizer."""
    vocabulary = context.n_vocab
    plain, merging = (
        list(
            calibrate.rehearsals(
                made(context, vocabulary, frozenset()), 2, 1, [], vocabulary, ticks
            )
        )
        for made in (ModelDrafter, Merging)
    )
    assert [each.depth for each in merging] == [each.depth for each in plain]
    assert max(each.depth for each in merging) > 1


def test_a_long_text_is_read_in_parts(tmp_path: Path) -> None:
    """Each part is a measurement of its own, and the drafts after it look back on all of it."""
    model = Model.load(tiny.build(tmp_path / "tiny.gguf"))
    context = Context.open(model, slots=1, context=1100, rows=256)
    drafter = drafters.load("model", context=context, n_vocab=model.n_vocab, ends=frozenset())
    seen = list(calibrate.rehearsals(drafter, 2, 0, [], model.n_vocab, ticks))[4:]
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


class OneGraph:
    """A backend on which a forward of another row count than the last two takes longer."""

    n_vocab, n_slots, context, max_rows = 50, 2, 128, 64

    def __init__(self, first: float, second: float) -> None:
        self.now = 0.0
        self.batches: list[list[Row]] = []
        self._extra = first, second
        self._rows = self._alike = 0

    def clock(self) -> float:
        """Its forwards are all that takes time."""
        return self.now

    def decode(self, rows: Sequence[Row]) -> ForwardOutput:
        """A tenth of a second for each row, and what a change takes."""
        self._alike = self._alike + 1 if len(rows) == self._rows else 0
        self._rows = len(rows)
        self.batches.append(list(rows))
        self.now += 0.1 * len(rows) + (self._extra[self._alike] if self._alike < STEADY else 0.0)
        wanted = sum(row.wants_logits for row in rows)
        return ForwardOutput(np.zeros((wanted, self.n_vocab), np.float32))

    def truncate(self, slot: int, length: int) -> int:
        """It remembers nothing."""
        del slot
        return length

    def checkpoint(self, slot: int, *, lasting: bool = False) -> None:
        """Nothing to come back to."""


@pytest.mark.parametrize(("first", "second"), [(0.0, 0.0), (0.3, 0.0), (2.0, 0.5), (0.0, 0.2)])
def test_the_cost_of_a_change_of_rows_is_measured_apart(first: float, second: float) -> None:
    """By the first and second forward of a row count; the staircase is that of the third."""
    device = OneGraph(first, second)
    assert calibrate.changes(device, MeasuringPlace(1, 5), device.clock) == pytest.approx(
        [first, second]
    )
    seen = {}

    def measured(rows: int, seconds: float, _looks: int) -> float:
        seen[rows] = seconds
        return 0.0

    for _ in calibrate.staircase(
        device, (1, 3, 8), lambda: MeasuringPlace(1, 0), measured, device.clock, STEADY
    ):
        pass
    assert seen == pytest.approx({1: 0.1, 3: 0.3, 8: 0.8})


def test_no_two_rows_that_are_measured_are_the_same_token() -> None:
    """A mixture of experts would wake the same ones for all of them."""
    device = OneGraph(0.0, 0.0)
    for _ in calibrate.staircase(
        device, (1, 16), lambda: MeasuringPlace(0, 0), lambda *_: 0.0, device.clock, 0
    ):
        pass
    for batch in device.batches:
        assert len({row.token for row in batch}) == len(batch)
        assert all(0 <= row.token < device.n_vocab for row in batch)


@pytest.mark.parametrize("held", [0, 30])
def test_an_idle_slot_keeps_its_text(context: Context, held: int) -> None:
    """Measurements run behind it, so one slot is enough to measure everything."""
    text = [Row(token, place, 1) for place, token in enumerate(range(5, 5 + held))]
    if text:
        context.decode(text)
    attended = []

    def measured(rows: int, _seconds: float, behind: int) -> float:
        attended.append(behind - rows * (rows - 1) // 2 == rows * held)
        return 0.0

    for _ in calibrate.staircase(
        context, (1, 8), lambda: MeasuringPlace(1, held), measured, ticks, 1
    ):
        pass
    calibrate.changes(context, MeasuringPlace(1, held), ticks)
    assert all(attended)
    assert context.length(1) == held


def test_a_timed_target_counts_equal_forwards() -> None:
    """Those right before it with as many rows."""
    device = OneGraph(1.0, 0.5)
    forwards: list[tuple[int, int]] = []
    timed = Timed(
        device, lambda rows, _s, _looks, alike: forwards.append((rows, alike)), device.clock
    )
    for count in (2, 2, 2, 2, 1, 2):
        timed.decode([Row(3, place, 0, wants_logits=True) for place in range(count)])
    assert forwards == [(2, 0), (2, 1), (2, 2), (2, 3), (1, 0), (2, 0)]


def test_a_drafters_cost_of_a_change_is_measured() -> None:
    """By its forwards on a device with a known cost: prefill before, one row after."""
    device = OneGraph(0.3, 0.1)
    drafter = drafters.load("model", context=device, n_vocab=50, ends=frozenset())
    found = whole(calibrate.draft_change(drafter, 1, [], 50, device.clock))
    assert found == pytest.approx(0.4)
