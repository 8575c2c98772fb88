"""A distilled draft says more often what its target would have said, or stays as it is."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import gguf
import heads
import numpy as np
import pytest
import tiny

from localspec.catalog import header, output_rows
from localspec.catalog.registry import Registry
from localspec.catalog.writer import Tensor
from localspec.config import Placement
from localspec.engine.llama.context import Context
from localspec.engine.llama.model import Model
from localspec.types import Floats, Row
from localspec.worker import distill
from localspec.worker.eagle3 import features
from localspec.worker.eagle3.texts import Text


def blurred(path: Path, noise: float) -> Path:
    """A model that counts, with random numbers added to its output rows."""
    made = heads.qwen2(path, counts=True)
    reader = gguf.GGUFReader(made, "r+")
    (rows,) = (each for each in reader.tensors if each.name == "output.weight")
    rows.data[:] += np.random.default_rng(5).normal(0, noise, rows.data.shape)
    del reader
    return made


def run(folder: Path) -> tuple[str, Registry]:
    """The words of `models distill draft --for target`, and the models afterwards."""
    command = [sys.executable, "-m", "localspec.cli.main", "models", "distill", "draft"]
    place = {"XDG_DATA_HOME": str(folder), "XDG_CACHE_HOME": str(folder / "cache")}
    done = subprocess.run(
        [*command, "--for", "target", "--tokens", "4000"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **place},
    )
    assert done.returncode == 0, done.stderr
    assert "It will take about" in done.stderr
    assert list((folder / "cache" / "localspec" / "distill").iterdir()) == []
    return done.stdout + done.stderr, Registry(folder / "localspec" / "models")


@pytest.mark.parametrize("noise", [0.0, 1.5])
def test_a_draft_is_replaced_if_and_only_if_more_is_accepted(noise: float, tmp_path: Path) -> None:
    """One that is right already stays; one with blurred rows learns, and its copy drafts."""
    pytest.importorskip("torch")
    models = tmp_path / "localspec" / "models"
    models.mkdir(parents=True)
    heads.qwen2(models / "target.gguf", counts=True)
    draft = blurred(models / "draft.gguf", noise)
    before = draft.read_bytes()
    said, registry = run(tmp_path)
    assert draft.read_bytes() == before
    assert ("stays as it is" in said) is (noise == 0)
    assert registry.resolve("target").draft_name == ("draft-distilled" if noise else None)
    assert (models / "draft-distilled.gguf").exists() is (noise > 0)


def test_without_torch_it_is_said(tmp_path: Path) -> None:
    """Before anything is written."""
    if subprocess.run([sys.executable, "-c", "import torch"], check=False).returncode == 0:
        pytest.skip("torch is there")
    target = heads.qwen2(tmp_path / "target.gguf")
    command = [sys.executable, "-m", "localspec.worker.distill", str(target), str(target), "x.gguf"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "localspec[train]" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_file_of_places_goes_on_where_it_ended(tmp_path: Path) -> None:
    """Cut at any length: whole texts stay, the rest is made anew, once each."""
    found = [Text(np.arange(10, dtype=np.int32), start) for start in (4, 9, 1, 5)]
    asked: list[int] = []

    def work(text: Text) -> np.ndarray[tuple[int, ...], np.dtype[np.int32]]:
        asked.append(text.start)
        return np.full((text.answer, 3), text.start, np.int32)

    path = tmp_path / "places.bin"
    whole = distill._kept(path, np.int32, 3, found, work, "reading")  # noqa: SLF001 - a law of its own
    assert [*whole[:, 0]] == [4] * 6 + [9] + [1] * 9 + [5] * 5
    data = path.read_bytes()
    for length in range(0, len(data) + 1, 7):
        asked.clear()
        path.write_bytes(data[:length])
        again = distill._kept(path, np.int32, 3, found, work, "reading")  # noqa: SLF001 - as above
        np.testing.assert_array_equal(again, whole)
        kept = sum(length >= end * 12 for end in (6, 7, 16, 21))
        assert asked == [4, 9, 1, 5][kept:]


def test_states_are_those_of_each_place_of_an_answer(tmp_path: Path) -> None:
    """Of texts longer than a forward too: as if every token were decoded alone."""
    draft = tiny.build(tmp_path / "draft.gguf")
    tokens = np.random.default_rng(3).integers(0, 200, 230).astype(np.int32)
    found = [Text(tokens, 20), Text(tokens[:90], 89), Text(tokens[:65], 1)]
    placement = Placement(threads=1)
    states = features.wide(distill._states(draft, placement, found, tmp_path))  # noqa: SLF001 - a law of its own
    model = Model.load(draft, placement)
    context = Context.open(model, placement, slots=1, context=256, rows=8)
    assert context.show()
    each = []
    for at, token in enumerate(tokens):
        shown = context.decode([Row(int(token), at, 0, True)]).states
        assert shown is not None
        each.append(shown[0].copy())
    wanted = np.concatenate([each[19:229], each[88:89], each[0:64]])
    np.testing.assert_allclose(states, wanted, rtol=0.02, atol=0.02)
    context.close()
    model.close()


def logits(path: Path) -> Floats:
    """Of a few tokens."""
    model = Model.load(path, Placement(threads=1))
    context = Context.open(model, Placement(threads=1), slots=1, context=64, rows=8)
    found = context.decode(
        [Row(token, at, 0, True) for at, token in enumerate((3, 5, 8))]
    ).logits.copy()
    context.close()
    model.close()
    return found


@pytest.mark.parametrize("tied", [False, True])
def test_a_copy_has_the_rows_that_it_was_given(tied: bool, tmp_path: Path) -> None:
    """With its own rows it says the same, with twice these twice as much; all else is copied."""
    model = heads.qwen2(tmp_path / "model.gguf", tied=tied)
    tensors = {each.name: each for each in gguf.GGUFReader(model).tensors}
    assert ("output.weight" in tensors) is not tied
    rows = np.array(tensors["token_embd.weight" if tied else "output.weight"].data)
    output = Tensor("output.weight", rows.shape, "F32")
    once, twice = tmp_path / "once.gguf", tmp_path / "twice.gguf"
    output_rows.replace(model, once, output, [rows[:100].tobytes(), rows[100:].tobytes()], "a")
    output_rows.replace(once, twice, output, [(2 * rows).tobytes()], "b")
    np.testing.assert_array_equal(logits(once), logits(model))
    np.testing.assert_allclose(2 * logits(once), logits(twice), rtol=1e-5)
    made, found = header.read(twice), header.read(model)
    assert made.text("general.name") == "b"
    assert {each.name for each in made.tensors} == {*tensors, "output.weight"}
    assert made.layers == found.layers
    assert not list(tmp_path.glob(".*"))
