"""The probe detects how a device rounds its rows, and its class holds in every schedule."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import recurrent
import tiny
from engine.lawful import VOCABULARY, Lawful, Quirk, Seen, block, cuda, stream_k
from hypothesis import given, settings
from hypothesis import strategies as st
from laws.policies import FixedDepth

from localspec import drafters
from localspec.config import Placement
from localspec.engine.exactness import classes
from localspec.engine.exactness.classes import EVERYWHERE, Shape, next_line
from localspec.engine.llama.context import Context
from localspec.engine.llama.model import Model
from localspec.engine.replay import Script, replay
from localspec.engine.session import Request, Session
from localspec.engine.step import Engine, Limits
from localspec.types import Row, SamplingParams, SpeculationParams, Token

CONTEXT = 4608


def probed(quirk: Quirk, *, context: int = CONTEXT, lines: int = 9999) -> Shape:
    """Class found on such a device, with so many far texts at load."""
    more_time = itertools.chain([True] * lines, itertools.repeat(False))
    target = Lawful(quirk, context=context)
    shape = classes.strict(target, patience=lambda: next(more_time))
    for slot in range(target.n_slots):
        target.truncate(slot, 0)
    return shape


def as_numbers(shape: Shape) -> tuple[int, int, int, bool]:
    """Class in four numbers."""
    return shape.multiple, shape.max_rows, shape.border, shape.alone


FREE = (1, 32, 0, False)
SEEN: dict[str, tuple[Quirk, tuple[int, int, int, bool]]] = {
    "nothing": (lambda _: 0, FREE),
    "single rows differ": (lambda seen: seen.total == 1, (2, 32, 0, False)),
    "few rows differ": (
        lambda seen: (seen.total <= 8, 0 < seen.wanted < 16),
        (16, 32, 0, False),
    ),
    "blocks of 256 cells": (lambda seen: block(seen.end), (1, 32, 256, False)),
    "a longer session": (lambda seen: block(seen.longest) - block(seen.end), (1, 32, 0, True)),
    "company": (lambda seen: seen.total != seen.rows, (1, 32, 0, True)),
    "the place among rows": (lambda seen: seen.place // 16, (1, 16, 0, False)),
    "blocks and a longer session": (lambda seen: block(seen.longest), (1, 32, 256, True)),
    "cuda": (cuda, (16, 32, 256, True)),
    "stream-k": (stream_k, (16, 16, 256, True)),
}


@pytest.mark.parametrize("name", SEEN)
def test_the_cheapest_class_that_holds_is_found(name: str) -> None:
    """Free where nothing differs, and as bound as each device demands."""
    quirk, expected = SEEN[name]

    shape = probed(quirk)

    assert shape.bitwise
    assert shape.cells == EVERYWHERE
    assert as_numbers(shape) == expected


@pytest.mark.parametrize("size", range(1, 33))
def test_one_size_that_differs_is_seen(size: int) -> None:
    """Whichever it is: no class that is claimed has a forward of so many rows."""
    shape = probed(lambda seen: seen.rows == size, context=600)

    assert shape.bitwise
    assert size not in range(shape.multiple, shape.max_rows + 1, shape.multiple) or (
        shape.multiple == shape.max_rows == size
    )


@pytest.mark.parametrize("slot", range(4))
@pytest.mark.parametrize("since", [0, 250])
def test_one_slot_that_differs_is_seen(slot: int, since: int) -> None:
    """There is no class then, and not even plain decoding can be promised."""
    shape = probed(lambda seen: seen.slot == slot and seen.position >= since)

    assert not shape.bitwise
    assert not shape.alone
    assert "not even single rows agree" in shape.detail


def _is_in(slot: int, seen: Seen) -> bool:
    return seen.slot == slot


def test_a_short_context_is_probed_in_every_slot_and_shared() -> None:
    """Where there is one line only, slots stand at the same."""
    for slot in range(4):
        assert not probed(partial(_is_in, slot), context=200).bitwise
    assert as_numbers(probed(lambda seen: seen.total != seen.rows, context=200)) == (1, 32, 0, True)


def test_slots_at_different_places_are_tried_together_at_load() -> None:
    """Where no time is left for far texts, which are read beside others too."""
    assert as_numbers(probed(SEEN["company"][0], lines=0)) == (1, 32, 0, True)


def test_where_only_single_rows_agree_requests_are_alone_and_plain() -> None:
    """A forward of many rows has other bits in each, so nothing can be drafted."""
    shape = probed(lambda seen: (seen.place, seen.total) if seen.total > 1 else 0)

    assert not shape.bitwise
    assert shape.alone
    assert "nothing is drafted" in shape.detail


@pytest.mark.parametrize("border", [256, 512, 1024, 2048, 4096])
def test_a_border_anywhere_is_seen(border: int) -> None:
    """Cells that are split in another way from there on, by where a forward ends."""
    shape = probed(lambda seen: seen.end > border)

    assert as_numbers(shape) == (1, 32, 256, False)
    assert shape.cells == EVERYWHERE


def test_far_texts_are_probed_later_and_limit_the_claim() -> None:
    """Nothing is drafted beyond the probed cells; a failure ends probing for good."""
    quirk: Quirk = lambda seen: seen.rows if seen.end > 2048 else 0  # noqa: E731 - one of many
    shape = probed(quirk, lines=0)
    target = Lawful(quirk, context=CONTEXT)
    reached = [shape.cells]
    while (line := next_line(shape, CONTEXT)) is not None:
        *steps, found = classes.farther(target, shape, line, [3, 0, 1, 2])
        assert steps == [None] * len(steps)
        assert found is not None
        if found.cells == shape.cells:
            shape = found
            break
        shape = found
        reached.append(shape.cells)

    assert reached == [512, 1024]
    assert "fails at 2048, and beyond 1024 nothing is drafted" in shape.detail
    assert as_numbers(probed(quirk)) == (
        16,
        16,
        256,
        True,
    )  # with time at load another class is found


def test_the_successor_of_a_failed_class_is_probed_at_load() -> None:
    """Up to the text at which the first one failed."""
    shape = probed(lambda seen: seen.rows if seen.end > 1024 else 0, lines=1, context=8192)

    assert as_numbers(shape) == (16, 16, 256, True)
    assert shape.cells == 1024


@pytest.mark.parametrize("context", [64, 103, 104, 300, 552, 700, 1024, 2000, 8192])
def test_every_context_is_probed_to_its_last_border(context: int) -> None:
    """Nothing is claimed for a context that is too short to try anything."""
    ends: list[int] = []

    def watching(seen: Seen) -> int:
        ends.append(seen.end)
        return 0

    shape = probed(watching, context=context)

    assert shape.bitwise == (context >= 104)
    assert max(ends, default=0) <= context
    if shape.bitwise:
        assert shape.cells == EVERYWHERE
        assert max(ends) > (context - 40) // 256 * 256


def test_a_memory_that_cannot_forget_is_not_probed() -> None:
    """The reason is given, and nothing was decoded."""
    target = Lawful(lambda _: 0)

    shape = classes.strict(target, rollback="none")

    assert not shape.bitwise
    assert shape.rollback == "none"
    assert target.forwards == 0


def test_the_probe_at_load_is_as_cheap_as_it_can_be() -> None:
    """Near lines in four slots: forwards and rows, for a class that is found at once."""
    target = Lawful(lambda seen: seen.total == 1, context=8192)

    classes.strict(target, patience=lambda: False)

    assert target.forwards <= 110
    assert target.decoded <= 2300


# --- the class at work ----------------------------------------------------------------------------

SHAPES = {name: probed(quirk, context=2048) for name, (quirk, _) in SEEN.items()}


def _engine(target: Lawful, shape: Shape, depth: int, prefill_rows: int) -> Engine:
    return Engine(
        target,
        {"lookup": drafters.load("lookup", piece=lambda token: b"x%d " % token)},
        FixedDepth(depth),
        ends=frozenset(),
        shape=shape,
        limits=Limits(prefill_rows, 31),
        clock=itertools.count(0.0, 0.001).__next__,
    )


def _request(prompt: list[Token], tokens: int) -> Request:
    return Request(
        id="r",
        client="someone",
        prompt=prompt,
        sampling=SamplingParams(temperature=0.0),
        speculation=SpeculationParams(mode="always"),
        max_tokens=tokens,
        ignore_eos=True,
    )


def _text(length: int, seed: int) -> list[Token]:
    """A period that lookup finds again."""
    return [(index * index % (7 + seed) + seed) % VOCABULARY for index in range(length)]


ASKED = st.lists(
    st.tuples(
        st.one_of(st.integers(1, 40), st.integers(225, 262), st.integers(480, 530)),  # prompt
        st.integers(0, 2),  # which text
        st.integers(1, 50),  # tokens
        st.integers(0, 6),  # steps before the next arrives
    ),
    min_size=1,
    max_size=6,
)


def _run(engine: Engine, asked: Sequence[tuple[int, int, int, int]]) -> list[list[Token]]:
    """Requests that arrive after so many steps, or when a slot is free; their answers."""
    sessions: list[Session] = []

    def step() -> None:
        for advance in engine.step():
            if advance.finish is not None:
                engine.retire(advance.session)

    for length, seed, tokens, steps in asked:
        while not engine.free_slots:
            step()
        sessions.append(engine.admit(_request(_text(length, seed), tokens)))
        for _ in range(steps):
            step()
    while engine.sessions:
        step()
    return [session.tokens[session.n_prompt :] for session in sessions]


@pytest.mark.parametrize("name", SEEN)
@settings(max_examples=25, deadline=None)
@given(asked=ASKED, depth=st.integers(0, 31), prefill_rows=st.sampled_from([16, 64, 512]))
def test_the_same_tokens_have_the_same_logits_in_every_schedule(
    name: str, asked: list[tuple[int, int, int, int]], depth: int, prefill_rows: int
) -> None:
    """Plain or drafted, alone or shared, read at once, in chunks or before: the same bits."""
    target = Lawful(SEEN[name][0], context=1024)
    shape = SHAPES[name]

    answers = _run(_engine(target, shape, depth, prefill_rows), asked)
    shared = target.compared
    for slot in range(target.n_slots):
        target.truncate(slot, 0)
    engine = _engine(target, shape, 0, 512)
    plain = [_run(engine, [each])[0] for each in asked]

    assert answers == plain
    assert target.compared > shared > 0
    assert target.other_bits == []
    assert max(target.sizes) <= shape.max_rows


@pytest.mark.parametrize("name", SEEN)
def test_a_replay_has_the_logits_of_the_answer(name: str) -> None:
    """Prompt and answer read again, judged from a row in the middle of a block."""
    target = Lawful(SEEN[name][0], context=1024)
    engine = _engine(target, SHAPES[name], 16, 512)
    prompt = _text(231, 1)
    (answer,) = _run(engine, [(231, 1, 60, 0)])

    script = Script("other", prompt, [], answer, [], 8)
    list(replay(engine, script, lambda _: 0.5))

    assert target.compared > 2 * len(answer)
    assert target.other_bits == []


@pytest.mark.parametrize("name", SEEN)
def test_an_answer_ends_before_its_padding_has_no_cells(name: str) -> None:
    """A class needs cells for its last forward; up to there every position is used."""
    target, shape = Lawful(SEEN[name][0], context=1024), SHAPES[name]
    (answer,) = _run(_engine(target, shape, 8, 512), [(1000, 1, 50, 0)])

    assert 1000 + len(answer) == 1024 - shape.multiple + 1
    assert target.other_bits == []


@pytest.mark.parametrize("drafted", [True, False])
def test_drafts_are_accepted_across_borders_and_end_where_the_probe_did(*, drafted: bool) -> None:
    """Within blocks drafts still save forwards; beyond `cells` there is one forward per token."""
    target = Lawful(cuda, context=1024)
    shape = SHAPES["cuda"] if drafted else Shape(16, 32, border=256, alone=True, cells=100)
    engine = _engine(target, shape, 31, 512)
    prompt = _text(120, 0)
    session = engine.admit(_request(prompt, 400))
    while session.tail > 1:
        engine.step()
    forwards = target.forwards
    while engine.sessions:
        for advance in engine.step():
            if advance.finish is not None:
                engine.retire(advance.session)

    taken = target.forwards - forwards
    assert taken < 200 if drafted else taken >= 399
    assert target.other_bits == []


def test_without_its_border_the_class_would_not_hold() -> None:
    """The schedules above do meet borders: the same class without it breaks the law."""
    target = Lawful(cuda, context=1024)
    loose = Shape(16, 32, alone=True, bitwise=True)
    for depth in (0, 31):
        engine = _engine(target, loose, depth, 512)
        _run(engine, [(225, 0, 60, 0)])

    assert target.other_bits


@pytest.mark.parametrize("build", [tiny.build, recurrent.mamba, recurrent.lfm2])
def test_a_class_that_is_claimed_has_the_same_states_to_the_last_bit(
    build: Callable[[Path], Path], tmp_path: Path
) -> None:
    """Also where rounding hides it from logits: plain rows against forwards of two and of five."""
    model = Model.load(build(tmp_path / "model.gguf"), Placement(threads=1))
    context = Context.open(model, Placement(threads=1), slots=2, context=256, rows=32, streams=True)
    context.find_rollback()
    assert context.show()
    shape = classes.strict(context, rollback=context.rollback)
    tokens = np.random.default_rng(1).integers(0, model.n_vocab, 100).tolist()
    states = []
    for size in (1, 2, 5):
        context.truncate(0, 0)
        found = []
        for start in range(0, 100, size):
            part = tokens[start : start + size]
            rows = [Row(token, start + at, 0, True) for at, token in enumerate(part)]
            shown = context.decode(rows).states
            assert shown is not None
            found.append(shown.copy())
        states.append(np.concatenate(found))
    same = all(np.array_equal(states[0], each) for each in states)
    assert same or not shape.bitwise or shape.multiple > 1
    context.close()
    model.close()
