"""One KV cache for all slots: it grows, forgets what is idle, and lets sessions wait."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import tiny
from hypothesis import given
from hypothesis import strategies as st

from localspec.config import Placement
from localspec.control.acceptance import Acceptance
from localspec.control.controller import Controller
from localspec.control.costs import Costs
from localspec.drafters.model import ModelDrafter
from localspec.engine.exactness.classes import Shape
from localspec.engine.exactness.separate import apart
from localspec.engine.kv.cells import Cells
from localspec.engine.kv.slots import fitting
from localspec.engine.llama.context import Context
from localspec.engine.llama.library import ours
from localspec.engine.llama.model import Model
from localspec.engine.sampling import Sampler
from localspec.engine.session import Request, Session
from localspec.engine.step import Engine, Limits
from localspec.errors import EngineError, NoRoom
from localspec.types import (
    Draft,
    DraftRequest,
    Floats,
    Row,
    SamplingParams,
    SpeculationParams,
    Token,
)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Model]:
    """A tiny model."""
    found = Model.load(tiny.build(tmp_path_factory.mktemp("tiny") / "target.gguf"))
    yield found
    found.close()


def opened(
    model: Model, *, cells: int, most: int, streams: bool = False, lazy: bool = False
) -> Context:
    """Three slots of at most 1024 tokens on so many cells."""
    return Context.open(
        model,
        Placement(threads=1),
        slots=3,
        context=1024,
        rows=64,
        streams=streams,
        cells=cells,
        most_cells=most,
        lazy=lazy,
    )


def read(context: Context, slot: int, tokens: list[Token], start: int = 0) -> Floats:
    """Logits after the last of these tokens."""
    for first in range(start, len(tokens), 64):
        part = tokens[first : first + 64]
        rows = [
            Row(token, first + at, slot, first + at == len(tokens) - 1)
            for at, token in enumerate(part)
        ]
        logits = context.decode(rows).logits
    return logits.copy()


def tokens(count: int, seed: int = 0) -> list[Token]:
    """Random tokens."""
    return list(map(int, np.random.default_rng(seed).integers(0, 256, count)))


@pytest.mark.parametrize("lazy", [False, True])
@pytest.mark.parametrize("streams", [False, True])
def test_a_grown_cache_keeps_its_contents(model: Model, *, streams: bool, lazy: bool) -> None:
    """Bit for bit: decoding after growth equals that in a context that was large at once."""
    unit = 3 if streams else 1
    small = opened(model, cells=256 * unit, most=1024 * unit, streams=streams, lazy=lazy)
    large = opened(model, cells=1024 * unit, most=1024 * unit, streams=streams)
    for slot, length in ((0, 150), (1, 90)):
        read(small, slot, tokens(length, slot))
        read(large, slot, tokens(length, slot))
    before = small.kv_cells
    long = tokens(700)
    both = [read(context, 0, long, 150) for context in (small, large)]
    both += [read(context, 1, tokens(120, 1), 90) for context in (small, large)]
    assert small.kv_cells > before
    assert np.array_equal(both[0], both[1])
    assert np.array_equal(both[2], both[3])
    small.close()
    large.close()


@pytest.mark.parametrize("lazy", [False, True])
def test_a_full_cache_raises_and_loses_nothing(model: Model, *, lazy: bool) -> None:
    """NoRoom is raised before anything is decoded; after a truncation there are cells again."""
    context = opened(model, cells=256, most=512, lazy=lazy)
    read(context, 0, tokens(480))
    with pytest.raises(NoRoom, match="memory for 512"):
        read(context, 1, tokens(64, 1))
    assert list(context.held) == [480, 0, 0]
    context.truncate(0, 400)
    read(context, 1, tokens(64, 1))
    assert list(context.held) == [400, 64, 0]
    assert [context.length(slot) for slot in range(3)] == [400, 64, 0]
    context.close()


def test_a_full_cache_evicts_remembered_texts(model: Model) -> None:
    """As many as it takes, and no more."""
    context = opened(model, cells=256, most=256)
    read(context, 0, tokens(100))
    read(context, 1, tokens(100))
    asked: list[int] = []

    def forget() -> bool:
        asked.append(len(asked))
        context.truncate(asked[-1], 0)
        return True

    context.on_full = forget
    read(context, 2, tokens(128))
    assert asked == [0]
    context.close()


def engine(model: Model, context: Context) -> Engine:
    """An engine without drafters."""
    return Engine(
        context,
        {},
        Controller(Costs(), Acceptance()),
        ends=model.eog,
        shape=Shape(),
        limits=Limits(prefill_rows=64),
        clock=time.perf_counter,
    )


def request(prompt: list[Token], count: int, client: str = "c") -> Request:
    """A greedy request that ends by its length."""
    return Request(
        id=client,
        client=client,
        prompt=prompt,
        sampling=SamplingParams(temperature=0),
        speculation=SpeculationParams(mode="off"),
        max_tokens=count,
        route="off",
        ignore_eos=True,
    )


def run(harness: Engine, requests: list[Request]) -> list[Session]:
    """All of them together, to their ends."""
    sessions = [harness.admit(each) for each in requests]
    left = set(sessions)
    for _ in range(5000):
        for advance in harness.step():
            assert advance.failure is None
            if advance.finish is not None:
                left.discard(advance.session)
                harness.retire(advance.session)
        if not left:
            return sessions
    raise AssertionError("somebody waits for ever")


def test_sessions_that_do_not_fit_together_all_end_with_their_own_text(model: Model) -> None:
    """Three of 210 tokens on 512 cells: one has to wait, and still follows the target.

    Kernels round differently by how many rows share a forward, so a near-tie may go either way.
    """
    wanted = [request(tokens(150, seed), 60, str(seed)) for seed in range(3)]
    tight = opened(model, cells=256, most=512)
    together = run(engine(model, tight), wanted)
    assert all(session.n_output == 60 and session.finish == "length" for session in together)
    assert tight.kv_cells == 512
    tight.close()
    roomy = opened(model, cells=1024, most=1024)
    for session in together:
        roomy.truncate(0, 0)
        for place, token in enumerate(session.tokens[:-1]):
            (logits,) = roomy.decode([Row(token, place, 0, wants_logits=True)]).logits
            if place + 1 >= session.n_prompt:
                assert logits.max() - logits[session.tokens[place + 1]] < 0.05 * np.ptp(logits)
    roomy.close()


@pytest.mark.parametrize("streams", [False, True])
def test_a_long_prompt_makes_its_cache_grow_once_and_before_it_is_read(
    model: Model, *, streams: bool
) -> None:
    """Growth copies other sessions' cells, and none that the prompt has filled itself."""
    parts = 3 if streams else 1
    context = opened(model, cells=256 * parts, most=1024 * parts, streams=streams)
    harness = engine(model, context)
    harness.admit(request(tokens(100, 1), 60, "bystander"))
    while not harness.sessions[0].n_output:
        harness.step()
    harness.admit(request(tokens(800), 20, "long"))
    sizes, taken = [context.kv_cells], []
    while harness.sessions:
        held = sum(context.held)
        for advance in harness.step():
            assert advance.failure is None
            if advance.finish is not None:
                harness.retire(advance.session)
        if context.kv_cells != sizes[-1]:
            sizes.append(context.kv_cells)
            taken.append(held)
    assert sizes == [256 * parts, 1024 * parts]
    assert taken[0] < 110
    context.close()


@pytest.mark.skipif(not ours.cells, reason="this llama.cpp touches all cells at once")
def test_cells_take_memory_when_they_are_used(tmp_path: Path) -> None:
    """A quarter of a million cells take a thirtieth of their memory when they are allocated."""
    cells = 1 << 18
    model = Model.load(tiny.build(tmp_path / "wide.gguf", layers=4, width=512))
    how, before = Placement(threads=1), _resident_bytes()
    context = Context.open(
        model, how, slots=1, context=4096, rows=64, cells=256, most_cells=cells, lazy=True
    )
    (kv,) = (each.bytes for each in context.buffers if each.what == "KV")
    everything = kv * cells // 256
    assert _resident_bytes() - before < everything // 30
    read(context, 0, tokens(600))
    assert context.kv_cells == 1024
    assert _resident_bytes() - before < everything // 15
    for each in (context, model):
        each.close()


def _resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def test_an_ended_request_makes_no_cache_grow(model: Model) -> None:
    """Its expected length is forgotten with it; likewise of one that found no memory."""
    context = opened(model, cells=256, most=1024)
    harness = engine(model, context)
    gone = harness.admit(request(tokens(800), 20))
    harness.retire(gone)
    run(harness, [request(tokens(100), 20)])
    assert context.kv_cells == 256
    cells = Cells(1, 256, 1024, streams=False)
    cells.foreseen[0] = 800
    first = [Row(1, 0, 0)]
    assert (cells.needed(first), cells.wanted(first)) == (1, 800)
    cells.fail(cells.grown(800))
    assert (cells.wanted(first), cells.most) == (1, 512)
    context.close()


def test_unused_texts_are_evicted_for_a_request(model: Model) -> None:
    """The least recently used prefix goes first; the latest is still there."""
    context = opened(model, cells=512, most=512)
    harness = engine(model, context)
    for seed in range(3):
        run(harness, [request(tokens(120, seed), 2, str(seed))])
    assert len(harness.held()) == 3
    run(harness, [request(tokens(200, 9), 20, "new")])
    remembered = {held[0] for _, held in harness.held()}
    assert tokens(1, 0)[0] not in remembered
    assert tokens(1, 2)[0] in remembered
    context.close()


def test_one_session_may_use_the_whole_cache(model: Model) -> None:
    """A single text longer than its share, up to the whole."""
    context = opened(model, cells=256, most=768)
    (session,) = run(engine(model, context), [request(tokens(600), 1000)])
    assert session.finish == "length"
    assert len(session.tokens) == context.context == 768
    context.close()


def test_a_drafter_evicts_its_longest_idle_text(model: Model) -> None:
    """Its cache is shared too; an evicted text is read again when it is needed."""
    context = opened(model, cells=256, most=512)
    drafter = ModelDrafter(context, model.n_vocab, model.eog)
    sampler = Sampler(SamplingParams(temperature=0))
    first, second, third = (
        drafter.open(slot, tokens(length, slot), sampler)
        for slot, length in enumerate((150, 220, 200))
    )
    for session in (first, second, third):
        while drafter.read(session, 64):
            pass
    assert [session.pending for session in (first, second, third)] == [1, 220, 1]
    (draft,) = drafter.propose([DraftRequest(third, Draft(), 3, lambda _signals: True)])
    assert len(draft) == 3
    context.close()


@given(needs=st.lists(st.integers(1, 100), min_size=1), cells=st.integers(0, 300))
def test_the_oldest_session_always_fits(needs: list[int], cells: int) -> None:
    """No session waits that would fit beside those before it."""
    chosen, spare = fitting(needs, cells)
    assert chosen[0] == 0
    used = sum(needs[index] for index in chosen)
    assert used + spare == max(used, cells)
    for index in set(range(len(needs))) - set(chosen):
        assert needs[index] > cells - sum(needs[one] for one in chosen if one < index)


@given(
    slots=st.integers(1, 8),
    now=st.integers(1, 5000),
    most=st.integers(1, 20000),
    streams=st.booleans(),
    needed=st.integers(0, 30000),
)
def test_sizes_are_multiples_within_the_limits(
    slots: int, now: int, most: int, streams: bool, needed: int
) -> None:
    """Multiples of 256 for each stream: enough, or the largest allowed."""
    cells = Cells(slots, now, most, streams=streams)
    grown = cells.grown(needed)
    unit = 256 * (slots if streams else 1)
    assert cells.now % unit == grown % unit == 0
    assert cells.now <= grown <= cells.most
    assert grown >= needed or grown == cells.most
    held = itertools.repeat(0)
    assert list(cells.held) == list(itertools.islice(held, slots))


def test_more_logits_than_there_is_room_for_are_refused_before_llama_cpp_aborts(
    model: Model,
) -> None:
    """A prefill may be longer: its rows want none. So it stays when the context is made anew."""
    context = Context.open(
        model,
        Placement(threads=1),
        slots=2,
        context=1024,
        rows=64,
        outputs=8,
        cells=256,
        most_cells=1024,
    )
    for start in (0, 64, 128, 192, 256):
        context.decode([Row(1, start + at, 0, at >= 56) for at in range(64)])
    assert context.kv_cells > 256
    with pytest.raises(EngineError, match="More than 8 of 9 rows"):
        context.decode([Row(1, 320 + at, 0, wants_logits=True) for at in range(9)])
    assert context.held[0] == 320
    context.close()


def test_slots_apart_change_nothing_where_one_of_them_finds_no_room(model: Model) -> None:
    """The first slot's forward is taken back, so that the same rows may come again."""
    context = opened(model, cells=256 * 3, most=256 * 3, streams=True)
    read(context, 1, tokens(250))
    alone = apart(context)
    rows = [Row(1, 0, 0), *(Row(1, 250 + at, 1, at == 9) for at in range(10))]
    for _ in range(2):
        with pytest.raises(NoRoom):
            alone.decode(rows)
    assert (context.held[0], context.length(0)) == (0, 0)
    assert alone.decode(rows[:1] + rows[1:3]).logits.shape[0] == 0
    context.close()


def test_sessions_wait_for_a_slot_that_is_read_outside_of_them(model: Model) -> None:
    """A replay holds cells of the shared cache; the oldest session goes on once it has ended."""
    context = opened(model, cells=256, most=768)
    running = engine(model, context)
    text = tokens(400, 1)
    slot, start = running.take_slot("another", text)
    while start < len(text):
        start += running.read(slot, text, start, len(text))[1]
    session = running.admit(request(tokens(500), 8))
    assert running.step() == []
    assert context.held[slot] == 400
    running.release_slot(slot, "another", text)
    while session.finish is None:
        running.step()
    running.retire(session)
    context.close()
    fresh = opened(model, cells=256, most=768)
    (again,) = run(engine(model, fresh), [request(tokens(500), 8)])
    assert session.tokens == again.tokens
    fresh.close()
