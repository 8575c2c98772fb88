"""Everything before a head is taught: texts and features that go on, sizes, and when it ends."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import hypothesis.strategies as st
import numpy as np
import pytest
import small_heads
import tiny
from hypothesis import given

from localspec.catalog import header
from localspec.engine.llama.context import Context
from localspec.engine.llama.library import ours
from localspec.engine.llama.model import Model
from localspec.errors import DiskFull, ModelError
from localspec.types import Row
from localspec.worker.eagle3 import features, shape, texts
from localspec.worker.eagle3.progress import duration
from localspec.worker.eagle3.schedule import MOST_ROUNDS, RATE, Schedule
from localspec.worker.eagle3.texts import Text

IDS = st.lists(st.integers(0, 2**31 - 1), min_size=2, max_size=9)


@pytest.fixture
def context(tmp_path: Path) -> Iterator[Context]:
    """A tiny target of four layers, with slots to write in."""
    target = tiny.build(tmp_path / "target.gguf", layers=small_heads.LAYERS)
    model = Model.load(target)
    context = Context.open(model, slots=4, context=256, rows=32)
    yield context
    context.close()
    model.close()


def _quiet(_done: int) -> None:
    """Say nothing."""


@given(written=st.lists(IDS, max_size=6), cut=st.integers(0, 60))
def test_texts_survive_any_end_of_their_file(
    tmp_path_factory: pytest.TempPathFactory, written: list[list[int]], cut: int
) -> None:
    """Whole records are read, what is half of one is cut off, and more may follow."""
    path = tmp_path_factory.mktemp("texts") / "texts.bin"
    given = [Text(np.array(ids, np.int32), 1 + ids[0] % len(ids)) for ids in written]
    assert len(list(texts.append(path, given))) == len(given)
    data = path.read_bytes()
    path.write_bytes(data[: max(0, len(data) - cut)])

    kept = texts.load(path)
    assert cut or len(kept) == len(given)
    more = Text(np.array([5, 6, 7], np.int32), 2)
    list(texts.append(path, [more]))

    found = texts.load(path)
    assert len(found) == len(kept) + 1
    for mine, theirs in zip(found, [*given[: len(kept)], more], strict=True):
        assert mine.start == theirs.start
        assert np.array_equal(mine.tokens, theirs.tokens)


def test_writing_goes_on_where_it_stopped(context: Context, tmp_path: Path) -> None:
    """With other texts than those that are there; answers are as many tokens as were asked for."""
    path = tmp_path / "texts.bin"
    first = texts.write(context, ["hello", "abc"], path, 60, _quiet, longest=20)
    assert sum(text.answer for text in first) >= 60
    assert all(0 < text.answer <= 20 for text in first)
    again = texts.write(context, ["hello", "abc"], path, 60, _quiet, longest=20)
    assert [text.tokens.tolist() for text in again] == [text.tokens.tolist() for text in first]
    more = texts.write(context, ["hello", "abc"], path, 140, _quiet, longest=20)
    assert [text.tokens.tolist() for text in more[: len(first)]] == [
        text.tokens.tolist() for text in first
    ]
    assert sum(text.answer for text in more) >= 140


def test_the_vocabulary_is_what_answers_say_and_their_ends() -> None:
    """Not what prompts say; and the first tokens where answers have too few."""
    written = [Text(np.array([9, 9, 9, 4, 4, 5], np.int32), 3)]
    assert texts.vocabulary(written, [7], 3, 20).tolist() == [4, 5, 7]
    assert texts.vocabulary(written, [7], 2, 20).tolist() == [4, 7]
    assert texts.vocabulary(written, [7], 5, 20).tolist() == [0, 1, 4, 5, 7]


@pytest.mark.skipif(not ours.states, reason="llama.cpp without LocalSpec's edits")
@pytest.mark.parametrize("first", [1, 3])
def test_reading_goes_on_where_it_stopped(context: Context, tmp_path: Path, first: int) -> None:
    """And what is kept is what the target computes, in the order of the texts."""
    random = np.random.default_rng(0)
    lengths, starts = (9, 50, 30, 12), (2, 45, 1, 11)
    known = [
        Text(random.integers(0, 250, length).astype(np.int32), start)
        for length, start in zip(lengths, starts, strict=True)
    ]
    features.read(context, small_heads.TAPS, known[:first], tmp_path, _quiet)
    read: list[int] = []
    found = features.read(context, small_heads.TAPS, known, tmp_path, read.append)
    assert read == np.cumsum(lengths)[first:].tolist()
    for text, end in zip(known, np.cumsum(lengths), strict=True):
        begin = end - len(text.tokens)
        for slot in range(2):
            context.truncate(slot, 0)
        rows = [Row(int(token), at, 1, wants_logits=True) for at, token in enumerate(text.tokens)]
        taps, states, likeliest = [], [], []
        for start in range(0, len(rows), 32):
            logits, shown, tapped = context.decode(rows[start : start + 32])
            likeliest += logits.argmax(axis=1).tolist()
            features_ = tapped()
            assert features_ is not None
            assert shown is not None
            taps.append(features_)
            states.append(shown.copy())
        for mine, theirs in ((found.taps, taps), (found.states, states)):
            wanted = np.concatenate(theirs)
            if mine is found.states:
                wanted[: text.start - 1] = 0
            numbers = features.wide(mine[begin:end])
            assert np.linalg.norm(numbers - wanted) < 0.02 * np.linalg.norm(wanted)
        told = found.likeliest[begin:end]
        assert (told[: text.start - 1] == -1).all()
        assert (told[text.start - 1 :] == likeliest[text.start - 1 :]).mean() > 0.9


@given(
    st.lists(
        st.floats(-(2.0**126), 2.0**126, width=32, allow_subnormal=False), min_size=1, max_size=20
    )
)
def test_bfloat16_keeps_every_size(numbers: list[float]) -> None:
    """Within half a step of eight bits."""
    given = np.array(numbers, np.float32)
    kept = features.wide(features.brief(given))
    assert np.all(np.abs(kept - given) <= np.abs(given) / 256)
    assert np.array_equal(features.brief(kept), features.brief(given))


def test_a_disk_that_is_too_small_is_said_first(context: Context, tmp_path: Path) -> None:
    """In a sentence, before anything is read."""
    huge = Text(np.lib.stride_tricks.as_strided(np.zeros(1, np.int32), (1 << 40,), (0,)), 1)
    if not ours.states:
        return
    with pytest.raises(DiskFull, match="has no room"):
        features.read(context, small_heads.TAPS, [huge], tmp_path, _quiet)
    assert not list(tmp_path.glob("*.bin"))


@pytest.mark.parametrize("layers", range(4, 90, 5))
def test_three_different_layers_are_tapped(layers: int) -> None:
    """None of them the first; those of EAGLE-3 where there are enough."""
    first, middle, last = shape.taps(layers)
    assert 0 < first < middle < last < layers
    if layers >= 8:
        assert (first, middle, last) == (2, layers // 2, layers - 3)


@pytest.mark.parametrize("width", [64, 128, 256, 896, 1536, 2048, 3584, 4096, 5120])
def test_sizes_fit_each_other(width: int) -> None:
    """For any width: heads divide it, groups divide heads, blocks divide all."""
    found = shape.sizes(width, words=96)
    assert width % found.heads == 0
    assert found.heads % found.groups == 0
    assert found.heads >= 4
    assert all(rows % 16 == 0 for rows in found.shapes()["blk.0.attn_k.weight"])
    assert found.inner % 32 == 0
    assert 2.3 < found.inner / width <= 3


def test_a_shape_is_chosen_by_the_target(tmp_path: Path) -> None:
    """With its vocabulary; a model of few layers or of an odd width has none."""
    target = header.read(tiny.build(tmp_path / "four.gguf", layers=4))
    found = shape.chosen(target, 100)
    assert (found.layers, found.sizes.words) == ((1, 2, 3), 96)
    assert found.vocabulary == target.vocabulary_size
    assert shape.chosen(target, 10**6).sizes.words <= target.vocabulary_size
    with pytest.raises(ModelError, match="three layers, and this model has 2"):
        shape.chosen(header.read(tiny.build(tmp_path / "two.gguf")), 100)
    with pytest.raises(ModelError, match="multiple of 64"):
        shape.chosen(header.read(tiny.build(tmp_path / "odd.gguf", layers=4, width=96)), 100)
    with pytest.raises(ModelError, match="cannot draft"):
        shape.chosen(target, 8)


@given(agreements=st.lists(st.floats(0, 1), min_size=MOST_ROUNDS, max_size=MOST_ROUNDS + 5))
def test_every_training_ends(agreements: list[float]) -> None:
    """For any measurements; bounds of what is left hold, and the rate ends low."""
    schedule, given, bounds = Schedule(7), iter(agreements), []
    while not schedule.over:
        assert 0 < schedule.rate <= RATE
        bounds.append(schedule.steps_left)
        schedule.step += 1
        if schedule.step % 7 == 0:
            schedule.heard(next(given, 0.0))
    total = schedule.step
    assert total <= (MOST_ROUNDS + 2) * 7
    for made, (fewest, most) in enumerate(bounds):
        assert fewest <= total - made <= most
    assert schedule.rate < 0.1 * RATE


@pytest.mark.parametrize(
    ("agreements", "rounds"),
    [
        ([0.2, 0.4, 0.5, 0.503], 4),
        ([0.2, 0.1], 2),
        ([0.1 * each for each in range(MOST_ROUNDS)], MOST_ROUNDS),
    ],
)
def test_it_stops_when_agreement_no_longer_rises(agreements: list[float], rounds: int) -> None:
    """Two rounds of falling rate follow."""
    schedule = Schedule(5)
    for agreement in agreements:
        assert schedule.cooling is None
        schedule.step += 5
        schedule.heard(agreement)
    assert schedule.cooling == 5 * rounds
    assert schedule.steps_left == (10, 10)


@pytest.mark.parametrize(
    ("seconds", "says"), [(0.2, "1 s"), (90, "90 s"), (3000, "50 min"), (9000, "2.5 h")]
)
def test_durations_are_short(seconds: float, says: str) -> None:
    """For people who decide whether to wait."""
    assert duration(seconds) == says


@pytest.mark.parametrize("case", ["no torch", "junk", "two layers", "no questions", "unwritable"])
def test_a_training_that_cannot_be_is_explained_in_a_sentence(tmp_path: Path, case: str) -> None:
    """Before hours of work, and nothing is written."""
    target, head = tmp_path / "some.gguf", tmp_path / "heads" / "some.gguf"
    tiny.build(target, layers=2 if case == "two layers" else 4)
    questions = tmp_path / "questions.txt"
    questions.write_text("\n \n", "utf-8")
    if case == "junk":
        target.write_bytes(b"GGUF" + bytes(100))
    if case == "unwritable":
        head.parent.touch()
    # A module that is None cannot be imported, whether it is installed or not.
    missing = "None" if case == "no torch" else "type(sys)('torch')"
    code = f"import sys; sys.modules['torch'] = {missing}; sys.argv[0] = 'eagle3'\n"
    code += "from localspec.worker.eagle3.__main__ import main; sys.exit(main())"
    asked = [str(target), str(head), "--tokens=2000", "--words=96"]
    asked += [f"--questions={questions}"] * (case == "no questions")

    done = subprocess.run(
        [sys.executable, "-c", code, *asked], capture_output=True, text=True, check=False
    )

    says = {
        "no torch": (78, "pip install 'localspec[train]'"),
        "junk": (65, "cannot be used"),
        "two layers": (65, "three layers"),
        "no questions": (78, "has no questions"),
        "unwritable": (69, "cannot be written"),
    }
    assert (done.returncode, says[case][1] in done.stderr) == (says[case][0], True), done.stderr
    assert "Traceback" not in done.stderr
    assert not head.exists()
