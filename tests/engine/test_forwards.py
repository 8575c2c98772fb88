"""The forwards that llama.cpp makes of one decode are those that we predict."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Iterator, Mapping

import pytest
import recurrent
import tiny
from hypothesis import given
from hypothesis import strategies as st
from laws.policies import FixedDepth

from localspec.control.forwards import Layout, forwards
from localspec.engine.exactness.classes import Shape
from localspec.engine.kv.cells import Cells
from localspec.engine.llama.context import Context
from localspec.engine.llama.library import native
from localspec.engine.llama.model import Model
from localspec.engine.session import Request, Session
from localspec.engine.step import Engine, Limits
from localspec.types import Row, SamplingParams, SpeculationParams

SLOTS, CONTEXT = 4, 256
DECODES: list[dict[int, int]] = [
    {0: 1, 1: 1},
    {0: 5, 1: 1},
    {0: 1, 1: 5, 2: 5},
    {0: 3, 2: 3},
    {1: 2, 3: 7},
    {0: 4, 1: 2, 2: 3, 3: 1},
    {0: 2, 1: 4, 2: 2, 3: 4},
]
Counted = tuple[str, Context, Callable[[], int]]


@pytest.fixture(scope="module", params=["shared", "streams", "states"])
def counted(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Counted]:
    """A context, and how many parts of graphs it has computed so far."""
    asked = [0]

    def count(_tensor: object, ask: bool, _data: object) -> bool:
        asked[0] += ask
        return False

    callback = native.ggml_backend_sched_eval_callback(count)
    states = request.param == "states"
    path = tmp_path_factory.mktemp("tiny") / "m.gguf"
    model = Model.load((recurrent.mamba if states else tiny.build)(path))
    params = native.llama_context_default_params()
    params.n_ctx, params.n_batch, params.n_ubatch = SLOTS * CONTEXT, 64, 64
    params.n_seq_max, params.n_outputs_max, params.n_threads = SLOTS, 64, 1
    params.kv_unified = request.param != "streams"
    params.cb_eval = ctypes.cast(callback, type(params.cb_eval))
    cells = Cells(SLOTS, SLOTS * CONTEXT, SLOTS * CONTEXT, streams=request.param == "streams")
    context = Context(model, params, cells, CONTEXT, lazy=False)
    yield request.param, context, lambda: asked[0]
    context.close()
    model.close()


@pytest.mark.parametrize("decode", DECODES, ids=str)
def test_a_decode_is_as_many_forwards_as_predicted(
    counted: Counted, decode: Mapping[int, int]
) -> None:
    """Slots in order, each with its rows, recognized by results of one forward alone."""
    kind, context, parts = counted

    def computed(rows: Mapping[int, int]) -> int:
        for slot in range(SLOTS):
            context.truncate(slot, 0)
        before = parts()
        context.decode(
            [Row(7, at, slot, wants_logits=True) for slot in rows for at in range(rows[slot])]
        )
        return parts() - before

    expected = forwards(decode, "shared" if kind == "shared" else "streams")
    assert sum(expected) == sum(decode.values())
    assert computed(decode) == pytest.approx(len(expected) * computed({0: 2}), rel=0.2)


def test_adjacent_slots_share_a_forward_in_any_order_of_arrival(counted: Counted) -> None:
    """Sessions of one row each are one forward, also where the latest has the first slot."""
    _, context, parts = counted
    engine = Engine(
        context,
        {},
        FixedDepth(0),
        ends=frozenset(),
        shape=Shape(rollback=context.rollback),
        limits=Limits(),
        clock=time.perf_counter,
    )

    def session(name: str) -> Session:
        asked = Request(
            id=name,
            client=name,
            prompt=[5, 6, 7],
            sampling=SamplingParams(temperature=0),
            speculation=SpeculationParams(mode="off"),
            max_tokens=50,
            route="off",
        )
        return engine.admit(asked)

    first, *others = [session(str(number)) for number in range(SLOTS)]
    engine.step()
    engine.retire(first)
    latest = session("late")
    assert latest.slot < min(other.slot for other in others)
    engine.step()
    before = parts()
    engine.step()
    together = parts() - before
    for each in others:
        engine.retire(each)
    before = parts()
    engine.step()
    assert together == pytest.approx(parts() - before, rel=0.2)
    engine.retire(latest)


@given(st.dictionaries(st.integers(0, 5), st.integers(1, 9), min_size=1, max_size=6))
def test_no_row_is_lost_and_equal_neighbours_share(rows: dict[int, int]) -> None:
    """However they are shared out; apart, each slot is a forward of its own."""
    layouts: tuple[Layout, ...] = ("shared", "streams", "apart")
    assert {sum(forwards(rows, layout)) for layout in layouts} == {sum(rows.values())}
    even = dict.fromkeys(range(len(rows)), 3)
    assert forwards(even, "streams") == forwards(even, "shared") == [3 * len(rows)]
    assert forwards(rows, "apart") == list(rows.values())
