"""`exactness = "auto"`: measured once, kept, and from then on what the first load found."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
import recurrent
import tiny
from engine.lawful import Lawful
from gguf import GGMLQuantizationType
from laws.policies import FixedDepth

from localspec.catalog.devices import Device
from localspec.config import Config, Engine, Placement
from localspec.engine.exactness import classes
from localspec.engine.exactness.classes import Shape
from localspec.engine.llama.library import build_info
from localspec.engine.pieces import whole
from localspec.engine.step import Engine as Stepping
from localspec.engine.step import Limits
from localspec.types import ForwardOutput, Row
from localspec.wire.messages import Load
from localspec.worker import assemble, exactness_choice
from localspec.worker.exactness_choice import ExactnessChoice
from localspec.worker.strict_cost import StrictCost


def command(model: Path, **engine: Any) -> Load:
    """One model without a draft, in a small engine with "auto"."""
    settings = {"context": 600, "slots": 2, "target": Placement(threads=1), **engine}
    return Load("tiny", str(model), None, Config(engine=Engine(**settings)))


def status_words(load: Load) -> tuple[str, str]:
    """Exactness of a load as status words it, once nothing is pending."""
    with assemble.load(load, lambda *_: None) as loaded:
        while loaded.decision.advance():
            assert loaded.ready.exactness == "standard"
        assert loaded.ready.exactness_detail == loaded.probe.detail
        return loaded.ready.exactness, loaded.ready.exactness_detail


@pytest.mark.parametrize("kind", [GGMLQuantizationType.Q4_0, GGMLQuantizationType.F32])
def test_the_first_load_decides_and_the_next_ones_obey(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: GGMLQuantizationType
) -> None:
    """The verdict on disk is in force, so that a machine keeps its answers.

    On most CPUs rows of the one type agree and are strict for nothing, and those of the other do
    not, which is known before anything is probed.
    """
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    load = command(tiny.build(tmp_path / "tiny.gguf", quantization=kind))
    first, detail = status_words(load)
    assert f"auto: strict {'costs' if first == 'strict' else 'would cost'}" in detail
    kept = ExactnessChoice.open(load, [Path(load.target_path)], build_info(), 0.0).path
    for found in ("strict", "standard"):
        kept.write_text(f'{{"strict":{str(found == "strict").lower()},"why":"it was {found}"}}')
        assert status_words(load)[0] == found
        assert f"auto: it was {found}" in status_words(load)[1]
    kept.write_text("[]")
    assert status_words(load)[0] in {"strict", "standard"}
    assert "it was" not in kept.read_text()


def test_a_memory_that_cannot_be_padded_is_standard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where only single rows would do, the load gives the reason and is probed once.

    The reason is given, and probed once.
    """
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    padded = "single rows have other bits here, and this model's state would keep padding"
    for name, packed, why in (("plain", False, padded), ("packed", True, "strict")):
        load = command(recurrent.mamba(tmp_path / f"{name}.gguf", packed=packed))
        for _ in range(2):
            kind, detail = status_words(load)
            assert kind == "standard" or packed
            assert why in detail
            assert (padded in detail) is not packed


class Charged(Lawful):
    """A device whose forwards take so many seconds, and so many more for each row."""

    def __init__(self, seconds: float, row_seconds: float) -> None:
        super().__init__(lambda seen: seen.total == 1, n_slots=3, context=2048)
        self._seconds, self._row_seconds = seconds, row_seconds
        self.now = 0.0

    def decode(self, rows: Sequence[Row]) -> ForwardOutput:
        """As any other, and time passes."""
        self.now += self._seconds + self._row_seconds * len(rows)
        return super().decode(rows)


def engine(target: Charged, shape: Shape) -> Stepping:
    """Engine loaded with this cost."""
    return Stepping(
        target,
        {},
        FixedDepth(0),
        ends=frozenset(),
        shape=shape,
        limits=Limits(),
        clock=lambda: target.now,
    )


def by_forwards(target: Charged, shape: Shape, prefill_rows: int) -> StrictCost:
    """The verdict of an engine that is loaded with this cost and class."""
    return whole(exactness_choice.priced(engine(target, shape), shape, prefill_rows))


@pytest.mark.parametrize(
    ("seconds", "row_seconds", "strict"), [(1.0, 0.001, True), (1.0, 0.1, False)]
)
def test_the_choice_follows_the_cost_of_forwards(
    seconds: float, row_seconds: float, *, strict: bool
) -> None:
    """Two rows in place of one: free where weights take the time, costly where rows do."""
    target = Charged(seconds, row_seconds)
    shape = classes.strict(target, patience=lambda: False)
    assert shape.multiple == 2
    verdict = by_forwards(target, shape, prefill_rows=32)
    assert verdict.strict is strict


def test_a_high_cost_is_known_without_a_probe() -> None:
    """From some rows more or less in standard use; a low cost is left to the probe."""
    for seconds, row_seconds, dear in ((1.0, 0.001, False), (1.0, 0.1, True)):
        target = Charged(seconds, row_seconds)
        verdict = whole(exactness_choice.looked(engine(target, Shape())))
        assert (verdict is not None) is dear
        assert verdict is None or (verdict.sure and not verdict.strict)
        assert target.decoded <= 128


def test_measurements_on_a_busy_machine_expire_after_a_day(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Times that vary threefold for one kind of forward are no permanent reason.

    But a worker that was killed must not load three times to find out again.
    """
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    model = tiny.build(tmp_path / "tiny.gguf")
    target = Charged(1.0, 0.1)
    stolen = itertools.cycle((0.0, 0.0, 0.0, 0.0, 2.0, 2.0, 2.0, 2.0))
    busy = engine(target, Shape())

    def clock() -> float:
        target.now += next(stolen)
        return target.now

    busy.clock = clock
    verdict = whole(exactness_choice.looked(busy))
    assert verdict is not None
    assert "as far as a busy machine tells" in verdict.sentence
    kept = ExactnessChoice.open(command(model), [model], "b1", 0.0)
    assert kept.verdict is None
    for sure in (False, True):
        assert kept.keep(replace(verdict, sure=sure)) is kept.verdict
        written = kept.path.stat().st_mtime
        for later in (
            1.0,
            exactness_choice.UNSURE_SECONDS - 1,
            exactness_choice.UNSURE_SECONDS + 1,
        ):
            found = ExactnessChoice.open(command(model), [model], "b1", written + later).verdict
            assert found == (
                kept.verdict if sure or later < exactness_choice.UNSURE_SECONDS else None
            )


def test_where_nothing_can_be_shared_it_is_standard() -> None:
    """As on a GPU, whose class has one request in a forward; and where no class was found."""
    target = Charged(1.0, 0.0)
    alone = by_forwards(target, Shape(4, 4, alone=True, bitwise=True), 512)
    none = by_forwards(target, Shape(), 512)
    assert "1 of 3 requests could go on together" in alone.why
    assert "no class of forwards agrees" in none.why
    assert not alone.strict
    assert not none.strict


def test_memory_for_every_slot_comes_first(tmp_path: Path) -> None:
    """Where slots share what there is, and parts of their own would be too small."""
    model = tiny.build(tmp_path / "tiny.gguf", layers=4, width=256)
    for slots, free_mib, strict in ((64, 450, False), (64, 9000, True), (1, 450, True)):
        there = [Device("CPU", "cpu", free_mib << 20, free_mib << 20)]
        verdict = exactness_choice.by_memory(
            command(model, context=4096, slots=slots), [model], there
        )
        assert (verdict is None) == strict, (slots, free_mib)


def test_a_choice_goes_by_files_build_and_settings(tmp_path: Path) -> None:
    """Any of them changed: it is found out anew."""
    model = tiny.build(tmp_path / "tiny.gguf")
    one = ExactnessChoice.open(command(model), [model], "b1", 0.0)
    assert one.path == ExactnessChoice.open(command(model), [model], "b1", 0.0).path
    safe = msgspec.structs.replace(command(model), safe_kernels=True)
    others = [
        ExactnessChoice.open(command(model), [model], "b2", 0.0),
        ExactnessChoice.open(command(model, prefill_rows=64), [model], "b1", 0.0),
        ExactnessChoice.open(safe, [model], "b1", 0.0),
    ]
    assert one.path not in {other.path for other in others}
