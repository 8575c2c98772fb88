"""Answers come first: what exactness a model has is found out in pauses, then it is in force."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import recurrent
import tiny
from engine.lawful import Lawful, Quirk
from gguf import GGMLQuantizationType
from hypothesis import given, settings
from hypothesis import strategies as st
from laws.policies import FixedDepth
from worker.idling import answer

from localspec import drafters
from localspec.config import Config, Engine, Placement
from localspec.control.acceptance import Acceptance
from localspec.control.costs import Costs
from localspec.engine.exactness.classes import Shape
from localspec.engine.llama.context import Context
from localspec.engine.llama.model import Model
from localspec.engine.step import Engine as Stepping
from localspec.engine.step import Limits
from localspec.types import Floats, Row
from localspec.wire.messages import (
    Load,
)
from localspec.worker import assemble
from localspec.worker.exactness_choice import ExactnessChoice
from localspec.worker.exactness_decision import UNCHECKED, ExactnessDecision, Reread, unchecked
from localspec.worker.profile import Profile
from localspec.worker.progress import OnProgress
from localspec.worker.strict_cost import StrictCost

# --- one load -------------------------------------------------------------------------------------


@contextmanager
def forwards() -> Iterator[list[int]]:
    """Rows of each forward that this thread makes meanwhile, of whatever model."""
    made: list[int] = []

    def called(frame: Any, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_name == "decode" and code.co_filename.endswith("context.py"):
            made.append(len(frame.f_locals["rows"]))

    sys.setprofile(called)
    try:
        yield made
    finally:
        sys.setprofile(None)


def alone(model: Path, **engine: Any) -> Load:
    """One model without a draft, with "auto"."""
    chosen = {"context": 600, "slots": 2, "target": Placement(threads=1), **engine}
    return Load("tiny", str(model), None, Config(engine=Engine(**chosen)))


def noting(stages: list[str]) -> OnProgress:
    """Notes each stage with how far it is."""

    def progressed(stage: str, fraction: float, _why: str = "", /) -> None:
        stages.append(f"{stage} {fraction}")

    return progressed


KINDS = [GGMLQuantizationType.Q4_0, GGMLQuantizationType.Q8_0, GGMLQuantizationType.F32]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("exactness", ["auto", "standard"])
def test_a_first_load_is_one_load_and_no_forward_more_than_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: GGMLQuantizationType, exactness: str
) -> None:
    """On a fresh home, of a pair: each file is read once, and nothing is computed but a warm-up.

    The second start, for which all was found, is the same.
    """
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    target = tiny.build(tmp_path / "target.gguf", quantization=kind)
    draft = tiny.build(tmp_path / "draft.gguf", seed=1, like=0)
    settings = Engine(context=600, slots=2, exactness=exactness)  # type: ignore[arg-type]
    command = Load("tiny", str(target), str(draft), Config(engine=settings))
    made: list[list[int]] = []
    for start in range(2):
        stages: list[str] = []
        with forwards() as rows, assemble.load(command, noting(stages)) as it:
            assert it.ready.exactness == "standard" or start
            assert (UNCHECKED in it.ready.exactness_detail) is (start == 0)
            made.append(list(rows))
            assert [stages.count(f"{each} 0.0") for each in ("target", "draft")] == [1, 1]
            assert not any(stage.startswith("probe") for stage in stages)
            while it.decision.advance():
                pass
            assert UNCHECKED not in it.ready.exactness_detail
    assert made[0] == made[1]
    assert max(made[0]) <= 4  # two rows of two sessions: whether logits are numbers
    assert len(made[0]) <= 10  # two contexts: that, and how each of them forgets


def test_a_worker_that_is_killed_while_it_checks_leaves_one_load_to_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is claimed of a check that did not come to its end, and nothing else is lost."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    command = alone(tiny.build(tmp_path / "tiny.gguf", quantization=GGMLQuantizationType.Q4_0))
    for forwards_made in (1, 30, 90):
        with assemble.load(command, lambda *_: None) as loaded:
            for _ in range(forwards_made):
                assert loaded.decision.advance()
            assert loaded.ready.exactness == "standard"
            assert UNCHECKED in loaded.probe.detail
            assert f"{forwards_made} of " in loaded.probe.detail
    assert not list(tmp_path.rglob("exactness/*"))


def test_configured_strict_mode_probes_at_load(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Loading reports the number of forwards, and the first answer is strict."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    model = tiny.build(tmp_path / "tiny.gguf", quantization=GGMLQuantizationType.Q4_0)
    told: list[tuple[float, str]] = []

    def tell(stage: str, done: float, why: str = "", /) -> None:
        if stage == "probe" and why:
            told.append((done, why))

    with assemble.load(alone(model, exactness="strict"), tell) as loaded:
        assert UNCHECKED not in loaded.ready.exactness_detail
        assert loaded.decision.over
    done, why = told[0]
    count, total = (int(word) for word in why.rpartition(", ")[2].split(" of "))
    assert why.startswith("checking that drafts change nothing, ")
    assert count == 1
    assert done * total == pytest.approx(1)
    assert total > 50


# --- in pauses ------------------------------------------------------------------------------------


@dataclass
class Storing(Lawful):
    """A device whose slots can be copied out and in."""

    def take_out(self, slot: int) -> list[tuple[int, int, int]]:
        """Remove and return its contents."""
        held = list(self._cells[slot])
        self.truncate(slot, 0)
        return held

    def put_back(self, slot: int, kept: list[tuple[int, int, int]]) -> None:
        """It holds that again."""
        assert not self._cells[slot]
        self._cells[slot] = list(kept)


@dataclass
class Around:
    """Surroundings of an engine in a test."""

    folder: Path
    strict: bool
    said: list[tuple[Shape, StrictCost]] = field(default_factory=list)
    arranged: list[bool] = field(default_factory=list)

    def arrange(self, *, strict: bool) -> None:
        """It is noted."""
        self.strict = strict
        self.arranged.append(strict)

    def known(self, *, strict: bool) -> Profile:
        """Nothing is."""
        return Profile(self.folder / f"{strict}.json", Costs(), Acceptance())

    def decided(self, shape: Shape, verdict: StrictCost) -> None:
        """It is noted."""
        self.said.append((shape, verdict))


@dataclass
class Opened:
    """An engine on a device that obeys a quirk, of which nothing is known."""

    target: Storing
    engine: Stepping
    harness: Around
    decision: ExactnessDecision


def opened(
    quirk: Quirk, folder: Path, *, strict: bool = True, verdict: StrictCost | None = None
) -> Opened:
    """With three slots. `strict` is how their memory is at first."""
    target = Storing(quirk, n_slots=3, context=2048)
    engine = Stepping(
        target,
        {"lookup": drafters.load("lookup", piece=lambda token: b"x%d " % token)},
        FixedDepth(31),
        ends=frozenset(),
        shape=unchecked(target, "trim", strict=strict),
        limits=Limits(),
        clock=itertools.count(0.0, 0.001).__next__,
    )
    harness, profile = Around(folder, strict), Profile(folder / "p.json", Costs(), Acceptance())
    kept = None if verdict else ExactnessChoice(folder / "choice.json", None)
    decision = ExactnessDecision(
        engine, profile, harness, verdict=verdict, kept=kept, prefill_rows=512
    )
    return Opened(target, engine, harness, decision)


def test_an_expected_class_is_claimed_and_texts_stay(tmp_path: Path) -> None:
    """Answers before, between any two forwards and after: same tokens, no text read twice."""
    it = opened(lambda _: 0, tmp_path)
    answer(it.engine, "a", 200)
    before = it.target.decoded
    while it.decision.advance():
        assert not it.harness.said
    assert it.harness.arranged == []
    ((shape, verdict),) = it.harness.said
    assert verdict.strict
    assert (shape.bitwise, shape.multiple, shape.cells) == (True, 1, 1024)
    assert it.engine.shape == shape
    made = it.target.decoded
    answer(it.engine, "a", 200)
    assert it.target.decoded - made < 200 < made - before  # its prompt was still there
    assert it.target.other_bits == []
    assert (tmp_path / "choice.json").exists()


def test_an_unexpected_class_reads_texts_again(
    tmp_path: Path,
) -> None:
    """Single rows have other bits and cost as much as two: strict in pairs of rows."""
    it = opened(lambda seen: seen.total == 1, tmp_path)
    it.engine.clock = lambda: float(it.target.forwards)
    again = Reread(it.engine, it.decision.forgotten)
    for client in "ab":
        answer(it.engine, client, 200)
    while it.decision.advance():
        pass
    assert it.engine.shape.multiple == 2
    it.target.other_bits.clear()
    it.target._known.clear()  # noqa: SLF001 - bits of the class that nothing was claimed of
    while again.advance():
        pass
    made = it.target.decoded
    for client in "ab":
        answer(it.engine, client, 200)
    assert it.target.decoded - made < 400
    assert it.target.other_bits == []


@pytest.mark.parametrize("strict", [True, False])
def test_where_strict_costs_much_the_load_is_standard(tmp_path: Path, *, strict: bool) -> None:
    """Each row costs as much as the first, so two in place of one cost too much; texts stay."""
    it = opened(lambda seen: seen.total == 1, tmp_path, strict=strict)
    it.engine.clock = lambda: float(it.target.decoded)
    again = Reread(it.engine, it.decision.forgotten)
    answer(it.engine, "a", 200)
    while it.decision.advance() or again.advance():
        pass
    ((shape, verdict),) = it.harness.said
    assert not verdict.strict
    assert "at least" in verdict.why
    assert it.harness.arranged == ([False] if strict else [])
    assert shape.detail != UNCHECKED
    made = it.target.decoded
    answer(it.engine, "a", 200)
    assert it.target.decoded - made < 200


def test_where_strict_may_be_cheap_it_is_tried_with_streams(tmp_path: Path) -> None:
    """If it costs much after all, the load returns to standard: no class is found here."""
    it = opened(lambda seen: seen.total == 2 and seen.rows == 1, tmp_path, strict=False)
    it.engine.clock = lambda: float(it.target.forwards)
    while it.decision.advance():
        pass
    assert it.harness.arranged[0] is True
    ((_, verdict),) = it.harness.said
    assert it.harness.strict is verdict.strict


@settings(max_examples=12, deadline=None)
@given(
    gaps=st.lists(st.integers(0, 60), max_size=12),
    quirk=st.sampled_from([lambda _: 0, lambda seen: seen.total == 1, lambda seen: seen.slot]),
)
def test_requests_between_probe_forwards_find_their_texts(
    tmp_path_factory: pytest.TempPathFactory, gaps: list[int], quirk: Quirk
) -> None:
    """The probe has the same result, and no slot keeps anything of it."""
    undisturbed = opened(quirk, tmp_path_factory.mktemp("one"))
    while undisturbed.decision.advance():
        pass
    it = opened(quirk, tmp_path_factory.mktemp("other"))
    for place, gap in enumerate(gaps):
        for _ in range(gap):
            it.decision.advance()
        answer(it.engine, "abc"[place % 3], 40 + 60 * (place % 3))
        held = {slot: len(tokens) for slot, tokens in it.engine.held()}
        for slot in range(3):
            assert len(it.target._cells[slot]) == held.get(slot, 0)  # noqa: SLF001 - as it is
    while it.decision.advance():
        pass
    (found,), (expected,) = it.harness.said, undisturbed.harness.said
    assert found[0] == expected[0]
    assert found[1].strict == expected[1].strict


def test_the_announced_total_of_forwards_is_right(tmp_path: Path) -> None:
    """Exact from the beginning where rows agree, and never less than the forwards made."""
    it = opened(lambda _: 0, tmp_path)
    first = it.decision.step
    steps = [first]
    while it.decision.advance():
        steps.append(it.decision.step)
        assert f"{it.decision.step.done} of {it.decision.step.total}" in it.decision.sentence
    assert first.done == 0
    assert all(step.done <= step.total for step in steps)
    assert abs(steps[-1].done - first.total) <= 8
    assert it.decision.sentence == ""


# --- the native context ---------------------------------------------------------------------------


@pytest.mark.parametrize("build", [tiny.build, recurrent.mamba, recurrent.lfm2])
@pytest.mark.parametrize("streams", [True, False])
def test_a_text_is_put_aside_bit_by_bit_and_a_memory_becomes_another_one(
    build: Any, tmp_path: Path, *, streams: bool
) -> None:
    """From one memory for all to one for each slot, and back; copies with it, if it is a state."""
    model = Model.load(build(tmp_path / "model.gguf"), Placement(threads=1))
    context = Context.open(
        model, Placement(threads=1), slots=2, context=512, rows=64, streams=streams
    )
    context.find_rollback()

    def read(slot: int, start: int, count: int) -> Floats:
        places = range(start, start + count)
        return context.decode(
            [Row(3 + at % 7, at, slot, at == places[-1]) for at in places]
        ).logits.copy()

    for slot in range(2):
        read(slot, 0, 40 + slot)
        context.checkpoint(slot, lasting=True)
    expected = read(1, 41, 1)
    context.truncate(1, 41)
    stored = [context.take_out(slot) for slot in range(2)]
    assert list(context.held) == [0, 0]
    context.arrange(streams=not streams, context=512, cells=1024, most_cells=1024)
    assert context.streams is not streams
    read(0, 0, 40)
    context.truncate(0, 0)
    context.arrange(streams=streams, context=512, cells=1024, most_cells=1024)
    for slot in range(2):
        context.put_back(slot, stored[slot])
    assert list(context.held) == [40, 41]
    assert np.array_equal(read(1, 41, 1), expected)
    assert context.truncate(1, 41) == 41
    context.close()
    model.close()
