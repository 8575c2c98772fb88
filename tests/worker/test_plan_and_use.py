"""Planned memory equals llama.cpp's allocations and the process's use, within a tenth."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Literal

import encoders
import pytest
import tiny
from worker_peer import Files, Worker, load

from localspec.catalog import header, placement
from localspec.catalog.devices import Device, Own
from localspec.catalog.memory import outline
from localspec.catalog.parts import Layout
from localspec.catalog.plan import Amounts, PlanCandidate, PlanRequest
from localspec.catalog.registry import Resolved
from localspec.config import Config, Engine, Placement
from localspec.engine.llama.context import Context
from localspec.engine.llama.library import ours
from localspec.engine.llama.model import Model
from localspec.engine.llama.pooling import Pooling
from localspec.wire.messages import Embed, Load, QuestionAnswer
from localspec_daemon.supervisor.memory_demand import used

_LIBRARIES_BYTES = 32 << 20
_HOST = [Device("CPU", "cpu", 1 << 36, 1 << 36)]


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Model large enough that its layers and keys show in the figures."""
    return tiny.build(tmp_path_factory.mktemp("wide") / "wide.gguf", layers=4, width=1024)


@contextmanager
def opened(path: Path) -> Iterator[tuple[Model, ExitStack]]:
    """A model, and what closes contexts before it."""
    with ExitStack() as later:
        model = Model.load(path, Placement(threads=1))
        later.callback(model.close)
        yield model, later


@pytest.mark.parametrize("exactness", ["standard", "strict"])
@pytest.mark.parametrize(
    ("how", "slots", "cells"),
    [
        (Placement(threads=1), 4, 8192),
        (Placement(threads=1), 1, 32768),
        (Placement(threads=1, flash_attention="off"), 4, 4096),
        (Placement(threads=1, kv_type="q8_0"), 4, 32768),
    ],
)
def test_plans_equal_llama_cpps_allocations(
    wide: Path, how: Placement, slots: int, cells: int, exactness: Literal["standard", "strict"]
) -> None:
    """Weights, keys and values, and scratch memory: each within a tenth."""
    request = PlanRequest(
        Config(engine=Engine(slots=slots, target=how, exactness=exactness)),
        outline(header.read(wide)),
    )
    rows, outputs = request.rows(slots), request.outputs(slots)
    (part,) = request.target_parts(PlanCandidate(slots, cells, draft=False), Layout(), cells)
    with opened(wide) as (model, later):
        context = Context.open(
            model,
            how,
            slots=slots,
            context=cells // slots,
            rows=rows,
            outputs=outputs,
            streams=request.strict,
        )
        later.callback(context.close)
        taken = {buffer.what: buffer.bytes for buffer in context.buffers}
    assert part.weight_bytes == header.read(wide).weight_bytes
    assert part.kv_bytes == pytest.approx(taken["KV"], rel=0.01)
    copied = outputs * 4 * request.target.vocabulary
    assert part.compute_bytes - copied == pytest.approx(taken["compute"], rel=0.15)


def test_an_encoder_is_planned_without_keys_and_logits(tmp_path: Path) -> None:
    """No draft, one text as long as a forward; its scratch memory is right."""
    path = encoders.bert(tmp_path / "bert.gguf").path
    found = outline(header.read(path))
    request = PlanRequest.of(Config(), [found, found])
    assert request.draft is None
    (plan, *_) = placement.plans(request, _HOST)
    assert plan.embeds
    assert (plan.context, plan.rows, plan.outputs) == (encoders.PLACES, encoders.PLACES, 0)
    (target,) = (part for part in plan.parts if part.model == "target")
    assert target.kv_bytes == 0
    assert target.weight_bytes == header.read(path).weight_bytes
    with opened(path) as (model, later):
        pooling = Pooling.open(model, Placement(threads=1), texts=plan.slots, rows=plan.rows)
        later.callback(pooling.close)
        taken = {buffer.what: buffer.bytes for buffer in pooling.buffers}
    assert "KV" not in taken
    assert target.compute_bytes == pytest.approx(taken["compute"], rel=0.2)
    assert "texts at once" in plan.sentence()
    assert "draft" not in plan.sentence()


def held_by(cache: Path, command: Load) -> tuple[int, Amounts]:
    """Host memory of a worker after some texts, and its plan.

    Pages of the files count as far as they are needed: a kernel may map others that lie between.
    """
    files = [Path(name) for name in (command.target_path, command.draft_path) if name]
    outlines = [outline(header.read(file)) for file in files]
    worker = Worker(cache)
    try:
        worker.send(command)
        worker.until_ready()
        ready = worker.ready
        prompts: list[Any] = [
            [1 + at % 200 for at in range(start, start + 192)] for start in (0, 50)
        ]
        if ready.speculation_off == "embeddings":
            worker.send(Embed("some", [prompt[:90] for prompt in prompts]))
            worker.until(lambda event: isinstance(event, QuestionAnswer))
        else:
            worker.answer(*(worker.request(prompt) for prompt in prompts))
        real = used(worker.process.pid)
    finally:
        worker.close()
    assert real is not None
    own = Own("ROWS" in ready.llama_build, "CELLS" in ready.llama_build)
    request = PlanRequest.of(command.config, outlines, own)
    plan = placement.plans(request, _HOST)[0]
    assert plan.sentence() == ready.placement
    assert Amounts.of(request, plan).loaded == ready.takes
    weights = sum(part.weight_bytes for part in plan.parts)
    packed = sum(
        one.bytes for one in ready.devices if one.device != "CPU_Mapped" and "model" in one.what
    )
    needed = weights - packed + _LIBRARIES_BYTES
    return real.own + min(real.files, needed), Amounts.of(request, plan)


@pytest.mark.parametrize("exactness", ["standard", "strict"])
def test_a_process_uses_what_was_planned(tmp_path: Path, wide: Path, exactness: str) -> None:
    """A model alone: "memory loaded" within a tenth; strict mode probes far texts besides."""
    engine = {"slots": 4, "context": 0, "prefill_rows": 512, "exactness": exactness}
    command = load(Files(wide, wide, wide), **engine)
    own, planned = held_by(tmp_path, Load("wide", str(wide), None, command.config))
    most = "loaded" if exactness == "standard" else "full"
    assert 0.9 * planned.loaded["CPU"] < own < 1.1 * getattr(planned, most)["CPU"]
    assert planned.loaded["CPU"] < planned.full["CPU"]
    assert (planned.full["CPU"] < planned.peak["CPU"]) is not ours.cells


def test_an_encoder_uses_what_was_planned(tmp_path: Path) -> None:
    """Most of it is the process; nothing grows."""
    path = encoders.bert(tmp_path / "bert.gguf").path
    own, planned = held_by(tmp_path, load(Files(path, path, path)))
    assert own == pytest.approx(planned.loaded["CPU"], rel=0.15)
    assert planned.loaded == planned.full == planned.peak


@pytest.mark.real
@pytest.mark.slow
def test_the_default_pair_uses_what_was_planned(tmp_path: Path, real_pair: Resolved) -> None:
    """In the default configuration: the figure of `models show`, within a tenth."""
    command = Load(
        real_pair.name,
        str(real_pair.target_path),
        str(real_pair.draft_path),
        Config(engine=Engine(exactness="standard")),
    )
    own, planned = held_by(tmp_path, command)
    assert own == pytest.approx(planned.loaded["CPU"], rel=0.1)
