"""A head that is taught in torch computes in llama.cpp what it did there, and it learns."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import gguf
import heads as counting
import numpy as np
import pytest
import small_heads
import tiny
from laws.head_contexts import opened

from localspec.built import installed
from localspec.catalog import draft_heads, header
from localspec.catalog.compact_heads import complete
from localspec.engine.llama.context import Context
from localspec.engine.llama.library import ours
from localspec.engine.llama.model import Model
from localspec.engine.llama.products import Products
from localspec.engine.llama.vectors import Taps
from localspec.types import Floats, Row
from localspec.worker import heads
from localspec.worker.eagle3 import features, texts
from localspec.worker.eagle3.shape import Shape

torch = pytest.importorskip(
    "torch", reason="torch is not installed: pip install 'localspec[train]'"
)
from localspec.worker.eagle3 import lesson, network, training  # noqa: E402 - behind the skip

pytestmark = pytest.mark.skipif(not ours.states, reason="llama.cpp without LocalSpec's edits")
WINDOW = 64
SAME = 2e-3
"""By so much of their length vectors may differ that come of sums in another order."""


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny target of four layers, whose rows are not rounded."""
    place, kind = tmp_path_factory.mktemp("target") / "target.gguf", gguf.GGMLQuantizationType.F32
    return tiny.build(place, layers=small_heads.LAYERS, sharpness=8.0, quantization=kind)


def distance(mine: Floats, theirs: Floats) -> float:
    """Relative to the longer one."""
    return float(np.linalg.norm(mine - theirs) / np.linalg.norm(theirs))


class Pair:
    """One head in torch, with the target's rows that go with it."""

    def __init__(self, target: Path) -> None:
        self.weights = {
            name: torch.from_numpy(each) for name, each in small_heads.weights().items()
        }
        self.shape = _shape(target)
        file, products = heads.File.open(target), Products(installed())
        embeddings = file.tensor("token_embd.weight")
        every = np.arange(embeddings.outputs, dtype=np.int32)
        self.embeddings = torch.from_numpy(products.rows(embeddings, every))
        self.words = np.array(small_heads.words(target), np.int32)
        self.output = torch.from_numpy(products.rows(heads.output(file), self.words))

    def drafted(self, taps: Floats, tokens: list[int], depths: int) -> list[Floats]:
        """Vectors by depth, of positions one behind the other."""
        mask = torch.ones(len(tokens), len(tokens), dtype=torch.bool).tril()[None, None]
        vectors = network.fused(self.weights, self.shape, torch.from_numpy(taps)[None])
        embedded = self.embeddings[torch.tensor(tokens)][None]
        found = network.drafted(
            self.weights, self.shape, vectors, embedded, mask=mask, depths=depths
        )
        return [each[0].numpy() for each in found]

    def logits(self, vectors: Floats) -> Floats:
        """Of the head's words."""
        found = network.logits(self.weights, self.shape, torch.from_numpy(vectors), self.output)
        return np.asarray(found.numpy())


def test_torch_and_llama_cpp_compute_the_same(tmp_path: Path, target: Path) -> None:
    """Encoder, a text's pairs, and four depths behind any of its positions; shifted, they differ.

    So the training teaches what will be asked: which token, which vector, and which position.
    """
    pair, random, count, depths = Pair(target), np.random.default_rng(1), 20, 4
    taps = random.standard_normal((count, 3 * small_heads.WIDTH), np.float32)
    tokens = random.integers(0, 250, count).tolist()
    mine = pair.drafted(taps, tokens, depths)
    compact = small_heads.write(tmp_path / "head.gguf", target, kind="F32")
    with opened(target, complete(compact, target)) as fed:
        vectors = fed.fuse(taps)
        fused = network.fused(pair.weights, pair.shape, torch.from_numpy(taps)).numpy()
        assert distance(fused, vectors) < SAME
        rows = [Row(token, at, 0, wants_logits=True) for at, token in enumerate(tokens[1:])]
        logits, left = (each.copy() for each in fed.decode(rows, vectors[: count - 1]))
        for place in range(count - 1):
            assert distance(mine[0][place], left[place]) < SAME
            assert distance(pair.logits(mine[0][place]), logits[place, pair.words]) < SAME
            assert distance(mine[0][place], left[(place + 1) % (count - 1)]) > 10 * SAME
        for place in (0, 7, count - 2 - depths):
            fed.truncate(0, place + 1)
            vector = left[place : place + 1]
            for depth in range(1, depths):
                row = Row(tokens[place + 1 + depth], place + depth, 0, wants_logits=True)
                logits, vector = (each.copy() for each in fed.decode([row], vector))
                assert distance(mine[depth][place], vector[0]) < SAME
                assert distance(pair.logits(mine[depth][place]), logits[0, pair.words]) < SAME
            fed.truncate(0, place + 1)
            rest = [Row(each, at, 0, wants_logits=False) for at, each in enumerate(tokens[1:])]
            fed.decode(rest[place + 1 :], vectors[place + 1 : count - 1])


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """Sums in the same order each time."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def taught(tmp_path_factory: pytest.TempPathFactory) -> lesson.DeviceData:
    """Texts of a target that counts, read by it."""
    place = tmp_path_factory.mktemp("work")
    target = counting.qwen2(place / "target.gguf", counts=True)
    model = Model.load(target)
    context = Context.open(model, slots=8, context=256, rows=64)
    written = texts.write(
        context, ["hello", "one two three", "abc"], place / "texts.bin", 800, _quiet, longest=40
    )
    seen = features.read(context, small_heads.TAPS, written, place, _quiet)
    shape, file, products = _shape(target), heads.File.open(target), Products(installed())
    words = texts.vocabulary(written, model.eog, shape.sizes.words, model.n_vocab)
    known = np.unique(np.concatenate([each.tokens for each in written])).astype(np.int32)
    context.close()
    model.close()
    material = lesson.TrainingData(
        shape,
        written,
        seen,
        products.rows(file.tensor("token_embd.weight"), known),
        known,
        products.rows(heads.output(file), words),
        words,
        np.array(file.tensor("output_norm.weight").data.view(np.float32)),
    )
    return lesson.DeviceData(material, torch.device("cpu"), WINDOW)


def _shape(target: Path) -> Shape:
    """The shape of the small heads."""
    return Shape(small_heads.SIZES, small_heads.TAPS, header.read(target).vocabulary_size, 4096)


def _quiet(_done: object) -> None:
    """Say nothing."""


def test_training_lowers_the_loss_until_the_head_agrees(
    taught: lesson.DeviceData, tmp_path: Path
) -> None:
    """A target that counts is foretold at every depth, in texts that were not learned from."""
    course = training.Training(taught, tmp_path / "checkpoint.pt", fewest=12)
    before, windows = taught.agreement(course.weights), taught.windows(0, 0)
    with torch.no_grad():
        first = float(taught.loss(course.weights, windows))
    reports: list[training.Report] = []
    found = course.run(reports.append)
    with torch.no_grad():
        last = float(taught.loss(course.weights, windows))
    assert max(before) < 0.2
    assert min(found.agreement) > 0.9
    assert last < 0.1 * first
    assert len(reports) == course.schedule.step
    assert reports[-1].seconds == (0.0, 0.0)
    best = {name: torch.from_numpy(each) for name, each in found.weights.items()}
    assert taught.agreement(best) == pytest.approx(found.agreement)


class Stopped(Exception):
    """An interruption."""


@pytest.mark.parametrize("steps", [1, 7])
def test_what_was_interrupted_ends_the_same(
    taught: lesson.DeviceData, tmp_path: Path, steps: int
) -> None:
    """To the last bit, wherever it stopped: in a pass, and behind one that was measured."""
    left = steps

    def stop(_report: training.Report) -> None:
        nonlocal left
        left -= 1
        if not left:
            raise Stopped

    whole = training.Training(taught, tmp_path / "none.pt", fewest=3).run(_quiet)
    half = training.Training(taught, tmp_path / "half.pt", fewest=3)
    with pytest.raises(Stopped):
        half.run(stop, saved_seconds=0)
    rest = training.Training(taught, tmp_path / "half.pt", fewest=3)
    assert rest.schedule.step == steps
    found = rest.run(_quiet)
    assert found.agreement == whole.agreement
    for name, each in whole.weights.items():
        assert np.array_equal(found.weights[name], each)


@pytest.mark.parametrize("damage", [b"", b"junk", None])
def test_a_checkpoint_that_is_none_is_left_out(
    taught: lesson.DeviceData, tmp_path: Path, damage: bytes | None
) -> None:
    """Half a file, or one of another lesson: it begins anew."""
    checkpoint = tmp_path / "checkpoint.pt"
    if damage is None:
        torch.save({"of": [1, 2, 3]}, checkpoint)
    else:
        checkpoint.write_bytes(damage)
    assert training.Training(taught, checkpoint).schedule.step == 0


def test_a_pass_has_every_place_once_and_none_that_is_for_measuring(
    taught: lesson.DeviceData,
) -> None:
    """Every pass in another order."""
    passes = [taught.windows(number, 0) for number in range(3)]
    for windows in passes:
        assert windows.shape[1] == WINDOW
        assert len(np.unique(windows)) == windows.size
    assert not np.array_equal(passes[0], passes[1])
    unseen = taught.unseen
    assert len(unseen) > 0
    assert not np.isin(taught.text[np.concatenate(passes)], unseen).any()


def test_one_step_is_timed_without_texts(tmp_path: Path) -> None:
    """Before hours of work."""
    target = counting.qwen2(tmp_path / "target.gguf")
    assert training.rehearsed(_shape(target)) > 0


def test_a_process_makes_a_head_that_foretells_its_target(tmp_path: Path) -> None:
    """From nothing but the target's file; its work is taken away, and the compact head is found."""
    target = counting.qwen2(tmp_path / "target.gguf", counts=True)
    head, work = tmp_path / "heads" / "target-eagle3.gguf", tmp_path / "work"
    questions = tmp_path / "questions.txt"
    questions.write_text("hello\n\n  one two three\nabc\n", "utf-8")
    command = [sys.executable, "-m", "localspec.worker.eagle3", str(target), str(head)]
    command += [f"--work={work}", "--tokens=2000", "--words=256", f"--questions={questions}"]
    command += [f"--window={WINDOW}", "--steps=12"]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert done.returncode == 0, done.stderr
    assert "It will take about" in done.stderr
    assert not work.exists()
    found, why = draft_heads.find(target, [head])
    assert found is not None, why
    model = Model.load(target)
    context = Context.open(model, slots=1, context=256, rows=64)
    assert context.tap(Taps(found.layers))
    first = 40
    text = [first + place for place in range(20)]
    rows = [Row(token, at, 0, wants_logits=False) for at, token in enumerate(text)]
    tapped = context.decode(rows).features()
    assert tapped is not None
    with opened(target, Path(found.path)) as fed:
        rows = [Row(token, at, 0, wants_logits=True) for at, token in enumerate(text[1:])]
        said = fed.decode(rows, fed.fuse(tapped)[: len(rows)]).logits.argmax(axis=1)
    right = said == np.array(text[1:]) + 1
    assert right.mean() > 0.9
    context.close()
    model.close()
