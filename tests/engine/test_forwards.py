"""The forwards that llama.cpp makes of one decode are those that we predict."""

from __future__ import annotations

import ctypes
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import cast

import pytest
import recurrent
import tiny
from hypothesis import example, given
from hypothesis import strategies as st
from laws.policies import FixedDepth

from localspec.control.forwards import Layout, forwards, moves, split, taken_back
from localspec.engine.exactness.classes import Shape
from localspec.engine.kv.cells import Cells
from localspec.engine.llama.context import Context
from localspec.engine.llama.library import native
from localspec.engine.llama.model import Model
from localspec.engine.session import Request, Session
from localspec.engine.step import Engine, Limits
from localspec.types import Row, SamplingParams, SpeculationParams

SLOTS, CONTEXT, SNAPSHOTS = 4, 256, 3
DECODES: list[dict[int, int]] = [
    {0: 1, 1: 1},
    {0: 5, 1: 1},
    {0: 1, 1: 5, 2: 5},
    {0: 3, 2: 3},
    {1: 2, 3: 7},
    {0: 4, 1: 2, 2: 3, 3: 1},
    {0: 2, 1: 4, 2: 2, 3: 4},
    {0: 9, 1: 1},
    {0: 9, 1: 2, 2: 9},
    {0: 6, 2: 2, 3: 2},
    {0: 3, 1: 7, 2: 3, 3: 12},
]
Counted = tuple[str, Context, Callable[[], int]]


@pytest.fixture(
    scope="module", params=["shared", "streams", "states", "snapshots", "snapshots in streams"]
)
def counted(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Counted]:
    """A context, and how many forwards it has computed so far."""
    asked = [0]
    found = native._lib.ggml_get_name  # noqa: SLF001 — libllama leads to ggml
    found.restype, found.argtypes = ctypes.c_char_p, [ctypes.c_void_p]
    named = cast("Callable[[int], bytes]", found)

    def count(tensor: int, ask: bool, _data: object) -> bool:
        asked[0] += ask and named(tensor) == b"result_output"
        return False

    callback = native.ggml_backend_sched_eval_callback(count)
    path = tmp_path_factory.mktemp("tiny") / "m.gguf"
    build: dict[str, Callable[[Path], Path]] = {
        "states": recurrent.mamba,
        "shared": tiny.build,
        "streams": tiny.build,
    }
    model = Model.load(build.get(request.param, recurrent.lfm2)(path))
    params = native.llama_context_default_params()
    params.n_ctx, params.n_batch, params.n_ubatch = SLOTS * CONTEXT, 64, 64
    params.n_seq_max, params.n_outputs_max, params.n_threads = SLOTS, 64, 1
    streams = request.param.endswith("streams")
    params.kv_unified = not streams
    params.n_rs_seq = SNAPSHOTS if request.param.startswith("snapshots") else 0
    params.cb_eval = ctypes.cast(callback, type(params.cb_eval))
    cells = Cells(SLOTS, SLOTS * CONTEXT, SLOTS * CONTEXT, streams=streams)
    context = Context(model, params, cells, CONTEXT, lazy=False)
    yield request.param, context, lambda: asked[0]
    context.close()
    model.close()


@pytest.mark.parametrize("decode", DECODES, ids=str)
def test_a_decode_is_as_many_forwards_as_predicted(
    counted: Counted, decode: Mapping[int, int]
) -> None:
    """Slots in order, each with its rows."""
    kind, context, parts = counted

    def computed(rows: Mapping[int, int]) -> int:
        for slot in range(SLOTS):
            context.truncate(slot, 0)
        before = parts()
        context.decode(
            [Row(7, at, slot, wants_logits=True) for slot in rows for at in range(rows[slot])]
        )
        return parts() - before

    layout: Layout = "shared" if kind == "shared" else "streams"
    expected = forwards(decode, layout, context.snapshots)
    if kind == "snapshots":  # one KV cache beside the states
        expected = [sum(made.values()) for made in split(decode, SNAPSHOTS, adjacent=False)]
    assert sum(expected) == sum(decode.values())
    assert computed(decode) == len(expected)


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
    assert parts() - before == 1
    for each in (*others, latest):
        engine.retire(each)


@given(st.dictionaries(st.integers(0, 5), st.integers(1, 9), min_size=1, max_size=6))
def test_no_row_is_lost_and_equal_neighbours_share(rows: dict[int, int]) -> None:
    """However they are shared out; apart, each slot is a forward of its own."""
    layouts: tuple[Layout, ...] = ("shared", "streams", "apart")
    assert {sum(forwards(rows, layout)) for layout in layouts} == {sum(rows.values())}
    even = dict.fromkeys(range(len(rows)), 3)
    assert forwards(even, "streams") == forwards(even, "shared") == [3 * len(rows)]
    assert forwards(rows, "apart") == list(rows.values())


ROWS = st.dictionaries(st.integers(0, 5), st.integers(1, 20), min_size=1, max_size=6)


@given(ROWS, st.integers(1, 8), st.booleans())
def test_with_snapshots_the_last_rows_of_a_slot_are_one_forward(
    rows: dict[int, int], snapshots: int, adjacent: bool
) -> None:
    """So many and one more, or all that it has; and every row is in one forward."""
    made = list(split(rows, snapshots, adjacent=adjacent))
    for slot, count in rows.items():
        own = [each[slot] for each in made if slot in each]
        assert sum(own) == count
        assert own[-1] >= min(count, snapshots + 1)


@given(ROWS, st.integers(1, 8))
@example({0: 2, 1: 3, 2: 3, 4: 1}, 2)
def test_a_slot_takes_back_no_more_than_it_read_and_snapshots_reach(
    rows: dict[int, int], snapshots: int
) -> None:
    """A single one as much as both allow; beside others at most that, and the last forward's."""
    back = taken_back(rows, snapshots)
    assert back.keys() == rows.keys()
    for slot, count in rows.items():
        assert 0 <= back[slot] <= min(count - 1, snapshots)
    if not moves(rows, snapshots):
        assert back == {slot: min(count - 1, snapshots) for slot, count in rows.items()}
    assert taken_back({3: 5}, snapshots) == {3: min(4, snapshots)}
    assert not moves({3: 5}, snapshots)
