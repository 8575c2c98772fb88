"""Speculation goes on behind an image: the same tokens, and no image is taken for another."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import heads
import numpy as np
import projectors
import pytest
import recurrent
import tiny
from hypothesis import given
from hypothesis import strategies as st
from laws.engine_harness import CONTEXT, ROWS, SLOTS, Harness, finish, opened, output
from laws.policies import FixedDepth
from laws.test_fed_law import made

from localspec.config import Placement
from localspec.engine.images import PIECE_ROWS, border, gaps, placed, stand_ins, words
from localspec.engine.kv.places import SlotPositions
from localspec.engine.llama.images import Picture, Projector
from localspec.engine.llama.library import mtmd_library, native, ours
from localspec.engine.session import Request
from localspec.types import Floats, Row, SamplingParams, SpeculationParams, Token

GREEDY = SamplingParams(temperature=0.0)
SEEDED = SamplingParams(temperature=0.9, seed=11, repetition_penalty=1.1)
BEFORE, BEHIND = "hello world, hello world, look at this: ", " hello world, hello world, hello"
SIZE = 160, 112
"""Pixels of a picture: in a grid 10 x 7 rows, more than a forward takes."""


@pytest.fixture(scope="module", params=["strict", "standard", "strict grid", "standard grid"])
def harness(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Harness]:
    """A pair of which the target reads images, in each exactness; or places them in a grid."""
    folder = tmp_path_factory.mktemp("models")
    build = projectors.reader if "grid" in request.param else tiny.build
    target = build(folder / "target.gguf", seed=0)
    draft = build(folder / "draft.gguf", seed=1, like=0, noise=0.2)
    alone = Placement(threads=1)
    strict = "strict" in request.param
    with opened(target, draft, alone, slots=SLOTS, context=CONTEXT, strict=strict) as found:
        yield found


@pytest.fixture(scope="module", params=[0, 1])
def projector(request: pytest.FixtureRequest, harness: Harness) -> Iterator[Projector]:
    """One of two for a model: an image has 81 rows, or 16 which see each other, or a grid."""
    kinds = (projectors.LLAVA, 72), (projectors.GEMMA, 64)
    if harness.target.architecture == "qwen2vl":
        kinds = (projectors.QWEN, 64), (projectors.QWEN, 96)
    kind, side = kinds[request.param]
    path = harness.path.parent / f"mmproj-{request.param}.gguf"
    projectors.build(path, kind=kind, side=side, seed=request.param)
    found = Projector.open(path, harness.target, threads=1, gpu=False)
    yield found
    found.close()


def picture(seed: int) -> Picture:
    """A picture, another one for each seed."""
    width, height = SIZE
    return Picture(width, height, projectors.pixels(seed, *SIZE), f"picture {seed}".encode())


def looking(
    harness: Harness,
    projector: Projector,
    *seeds: int,
    behind: str = BEHIND,
    sampling: SamplingParams = GREEDY,
    speculation: SpeculationParams | None = None,
    tokens: int = 40,
) -> Request:
    """A request with these pictures one after the other, with words around each."""
    prompt, images = harness.target.tokenize(BEFORE, add_special=True, parse_special=True), []
    for seed in seeds:
        for piece in projector.read(picture(seed)):
            prompt += piece if isinstance(piece, list) else piece.stand_ins
            images += [] if isinstance(piece, list) else [piece]
        prompt += harness.target.plain_tokens(behind)
    asked = harness.request(prompt, sampling, tokens=tokens, speculation=speculation)
    return replace(asked, images=placed(prompt, images), session="talk")


def plain(harness: Harness, *requests: Request) -> list[list[Token]]:
    """The answers of plain decoding, each request alone in an engine that remembers nothing."""
    answers = []
    for request in requests:
        engine = harness.engine({}, FixedDepth(0))
        [session] = finish(engine, [request])
        answers.append(output(session))
    return answers


@pytest.mark.parametrize("sampling", [GREEDY, SEEDED], ids=["greedy", "seeded"])
@pytest.mark.parametrize("source", [("lookup",), ("model",), ("lookup", "model")])
def test_drafts_behind_images_change_nothing(
    harness: Harness, projector: Projector, sampling: SamplingParams, source: tuple[str, ...]
) -> None:
    """The tokens are those of plain decoding, whoever drafts, and drafts are accepted."""
    request = looking(harness, projector, 1, 2, sampling=sampling)
    [expected] = plain(harness, request)
    policy = FixedDepth(4, "model" if "model" in source else None)
    engine = harness.engine(harness.drafters(*source), policy)
    [session] = finish(engine, [request])
    assert output(session) == expected
    assert session.meter.drafted > 0
    if "model" in source:
        assert session.meter.accepted > 0


@pytest.mark.skipif(not ours.states, reason="llama.cpp without LocalSpec's edits")
@pytest.mark.parametrize("kind", ["eagle3", "mimo2"])
def test_heads_behind_images_change_nothing(kind: str, tmp_path: Path) -> None:
    """They are shown the states of words alone, and the target says the same."""
    with made(kind, tmp_path, "chance") as fed:
        path = projectors.build(tmp_path / "mmproj.gguf", side=32, width=heads.WIDTH)
        reads = Projector.open(path, fed.harness.target, threads=1, gpu=False)
        for sampling in (GREEDY, SEEDED):
            request = looking(fed.harness, reads, 1, 2, sampling=sampling)
            [expected], _ = fed.answers({}, [request], 0)
            [found], counts = fed.answers(fed.drafters(), [request], 3)
            assert found == expected
            assert counts[fed.name][0] > 0
        reads.close()


@pytest.mark.parametrize("build", [recurrent.lfm2, recurrent.mamba])
def test_states_that_read_images_go_back(build: Callable[[Path], Path], tmp_path: Path) -> None:
    """Drafts are rejected behind an image, and the state before them comes back."""
    target = build(tmp_path / "target.gguf")
    with opened(target, target, Placement(threads=1), slots=SLOTS, context=CONTEXT) as harness:
        path = projectors.build(tmp_path / "mmproj.gguf", width=recurrent.WIDTH)
        reads = Projector.open(path, harness.target, threads=1, gpu=False)
        for sampling in (GREEDY, SEEDED):
            request = looking(harness, reads, 1, 2, sampling=sampling)
            [expected] = plain(harness, request)
            engine = harness.engine(harness.drafters("lookup"), FixedDepth(4))
            [session] = finish(engine, [request])
            assert output(session) == expected
            assert session.meter.drafted > 0
        reads.close()


def test_rows_are_read_as_llama_cpp_reads_them(harness: Harness, projector: Projector) -> None:
    """The logits behind an image are those that libmtmd's own reading gives, but for rounding."""
    memory, seen = harness.memory, looking(harness, projector, 1)
    [image] = seen.images
    memory.truncate(0, 0)  # whatever an engine left there
    for start, end in ((0, image.start), (image.end, len(seen.prompt))):
        rows = [Row(seen.prompt[at], at, 0, wants_logits=True) for at in range(start, end)]
        ours = memory.decode(rows).logits[-1].copy()
        while end == image.start and memory.held[0] < image.end:
            place = memory.held[0]
            memory.see(0, image, image.piece(place))
    memory.truncate(0, 0)
    theirs = by_mtmd(harness, projector)
    memory.truncate(0, 0)
    assert int(ours.argmax()) == int(theirs.argmax())
    assert np.abs(ours - theirs).max() < 0.01 * np.ptp(ours)


def by_mtmd(harness: Harness, projector: Projector) -> Floats:
    """The logits behind the same text, read by libmtmd alone into slot 0."""
    mtmd = mtmd_library()
    assert mtmd is not None
    shown = picture(1)
    pixels = (ctypes.c_uint8 * len(shown.pixels)).from_buffer_copy(shown.pixels)
    bitmap = mtmd.mtmd_bitmap_init(shown.width, shown.height, pixels)
    whole = BEFORE.encode() + mtmd.mtmd_default_marker() + BEHIND.encode()
    text = mtmd.mtmd_input_text(whole, len(whole), True, True)
    chunks, end = mtmd.mtmd_input_chunks_init(), native.llama_pos()
    bitmaps = (ctypes.c_void_p * 1)(bitmap)
    handle = projector._handle  # noqa: SLF001 - what is compared with
    assert mtmd.mtmd_tokenize(handle, chunks, ctypes.byref(text), bitmaps, 1) == 0
    context = harness.memory.handle
    where = (0, 0, ROWS, True, ctypes.byref(end))
    assert mtmd.mtmd_helper_eval_chunks(handle, context, chunks, *where) == 0
    found = np.ctypeslib.as_array(
        native.llama_get_logits_ith(context, -1), (harness.target.n_vocab,)
    ).copy()
    native.llama_memory_seq_rm(native.llama_get_memory(context), 0, 0, -1)
    mtmd.mtmd_input_chunks_free(chunks)
    mtmd.mtmd_bitmap_free(bitmap)
    return found


def test_another_image_is_another_answer(harness: Harness, projector: Projector) -> None:
    """Two images behind the same words share these words and not one row."""
    one, other = looking(harness, projector, 1), looking(harness, projector, 2)
    first, second = plain(harness, one, other)
    assert first != second
    engine = harness.engine({}, FixedDepth(0))
    [_] = finish(engine, [one])
    [session] = finish(engine, [other])
    assert session.cached_tokens == other.images[0].start
    assert output(session) == second


def test_the_same_image_is_read_once(harness: Harness, projector: Projector) -> None:
    """Another question behind it reuses its rows, and is answered as if all had been read."""
    one = looking(harness, projector, 1)
    other = looking(harness, projector, 1, behind=" goodbye, and what else?")
    [expected] = plain(harness, other)
    engine = harness.engine({}, FixedDepth(0))
    computed = projector.computed
    [_] = finish(engine, [one])
    [session] = finish(engine, [other])
    assert session.cached_tokens >= one.images[0].end
    assert projector.computed == computed
    if harness.shape.bitwise:
        assert output(session) == expected


def test_sessions_with_and_without_images_share_steps(
    harness: Harness, projector: Projector
) -> None:
    """Each is answered as if it were alone."""
    requests = [
        looking(harness, projector, 1),
        harness.request("hello world, hello", GREEDY),
        looking(harness, projector, 2, 1, sampling=SEEDED),
        harness.request("def f(x):\n    return x", SEEDED),
    ]
    requests = [replace(each, client=str(at)) for at, each in enumerate(requests)]
    expected = plain(harness, *requests)
    engine = harness.engine(harness.drafters("lookup", "model"), FixedDepth(3, "model"))
    sessions = finish(engine, requests)
    if harness.shape.bitwise:
        assert [*map(output, sessions)] == expected
    assert all(len(output(session)) == len(expected[0]) for session in sessions)


def test_images_beside_each_other_share_what_is_being_read(
    harness: Harness, projector: Projector
) -> None:
    """A copy of an active session's rows ends where a forward may begin."""
    one = looking(harness, projector, 1, 2)
    other = looking(harness, projector, 1, 3)
    [expected] = plain(harness, other)
    engine = harness.engine({}, FixedDepth(0))
    first = engine.admit(one)
    while not first.n_output:
        engine.step()
    second = engine.admit(other)
    assert second.cached >= one.images[0].end
    while second.finish is None:
        engine.step()
        if first.finish and first in engine.sessions:
            engine.retire(first)
    if harness.shape.bitwise:
        assert output(second) == expected


def test_stand_ins_are_no_tokens_and_tell_images_apart() -> None:
    """They fit the prefix store's four bytes, and another key gives others."""
    one, other = stand_ins(b"one", 576), stand_ins(b"other", 576)
    assert one == stand_ins(b"one", 576)
    assert all(-(2**31) <= token < 0 for token in (*one, *other))
    assert words([5, *one, 6]) == [5, 6]
    assert one[0] != other[0]


@given(runs=st.lists(st.tuples(st.integers(0, 5), st.integers(1, 9), st.integers(1, 9))))
def test_positions_follow_from_the_text(runs: list[tuple[int, int, int]]) -> None:
    """A text with images of n x m rows has them where M-RoPE wants them, wherever it is cut."""
    text, expected, position = list[Token](), list[int](), 0
    for number, (words_before, wide, high) in enumerate(runs):
        text += [7] * words_before
        expected += range(position, position + words_before)
        rows, positions = wide * high, max(wide, high)
        text += stand_ins(bytes([number]), rows, positions)
        expected += [-1] * rows
        position += words_before + positions
    places = SlotPositions()
    places.hold(0, gaps(text), len(text))
    assert places.of(0, len(text)) == position
    for place, wanted in enumerate(expected):
        assert wanted < 0 or places.of(0, place) == wanted
    cut = len(text) // 2
    places.cut(0, cut)
    assert places.gaps(0) == tuple(gap for gap in gaps(text) if gap[0] <= cut)


def test_a_part_of_an_image_is_held_up_to_a_border(harness: Harness, projector: Projector) -> None:
    """A few rows that agree by chance are read again."""
    [image, *_] = looking(harness, projector, 1).images
    rows = image.end - image.start
    for length in range(image.end + 3):
        kept = border([image], length)
        if not image.start < length < image.end:
            assert kept == length
        else:
            step = rows if image.whole or image.grid is not None else PIECE_ROWS
            assert kept == image.start + (length - image.start) // step * step


assert ROWS >= PIECE_ROWS  # a piece is one forward
