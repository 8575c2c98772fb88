"""Pruning as a process: layers that are chosen by what is measured, and a pair that is loaded."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import gguf
import pytest
import tiny

from localspec.catalog import header, prune
from localspec.catalog.reader import Array
from localspec.config import Config, Engine, Placement
from localspec.wire.messages import Load
from localspec.worker import assemble
from localspec.worker.prune import candidates

IDLE = 2


def _target(path: Path) -> Path:
    """A model of four layers, of which one does nothing."""
    tiny.build(path, layers=4)
    reader = gguf.GGUFReader(path, "r+")
    for tensor in reader.tensors:
        if tensor.name in {f"blk.{IDLE}.attn_output.weight", f"blk.{IDLE}.ffn_down.weight"}:
            tensor.data[:] = 0
    reader.data.flush()
    return path


def _made(target: Path, draft: Path, *options: str) -> tuple[int, str]:
    command = [sys.executable, "-m", "localspec.worker.prune", str(target), str(draft)]
    done = subprocess.run(
        [*command, "--tokens=300", *options], capture_output=True, text=True, check=False
    )
    assert "Traceback" not in done.stderr
    return done.returncode, done.stderr


def test_the_layer_that_does_nothing_is_left_out(tmp_path: Path) -> None:
    """The others agree everywhere, so that of three layers these are best."""
    target, draft = _target(tmp_path / "some.gguf"), tmp_path / "draft.gguf"
    code, said = _made(target, draft)
    assert code == 0, said
    line = next(each for each in said.splitlines() if each.startswith("layers 0-1,3:"))
    assert "agreement 1.000" in line
    others = [each for each in said.splitlines() if each.startswith("layers")]
    assert sum("agreement 1.000" in each for each in others) == 1
    kept = header.read(draft).metadata[prune.LAYERS]
    assert isinstance(kept, Array)
    assert not list(tmp_path.glob(".pruning-*"))


def test_a_pruned_draft_is_loaded_for_its_target_and_for_no_other(tmp_path: Path) -> None:
    """Another target says why, and decodes without it."""
    target, draft = _target(tmp_path / "some.gguf"), tmp_path / "draft.gguf"
    assert _made(target, draft, "--layers=0-1,3")[0] == 0
    other = tiny.build(tmp_path / "other.gguf", layers=4, seed=9)
    reader = gguf.GGUFReader(other, "r+")
    next(each for each in reader.tensors if each.name == "output_norm.weight").data[0] = 2
    reader.data.flush()
    settings = Engine(context=256, slots=1, exactness="standard", target=Placement(threads=1))
    for model, drafts in ((target, True), (other, False)):
        load = Load("some", str(model), str(draft), Config(engine=settings))
        with assemble.load(load, lambda *_: None) as loaded:
            assert ("model" in loaded.ready.drafters) is drafts
            why = loaded.ready.speculation_off or ""
            assert ("layers of another model" in why) is not drafts


@pytest.mark.parametrize(
    ("layers", "says"), [("0-3", "all that the model has"), ("x", "no list of layers")]
)
def test_wrong_layers_are_a_sentence(tmp_path: Path, layers: str, says: str) -> None:
    """Nothing is written."""
    target = tiny.build(tmp_path / "a.gguf", layers=4)
    code, said = _made(target, tmp_path / "d.gguf", f"--layers={layers}")
    assert code
    assert says in said
    assert not (tmp_path / "d.gguf").exists()


@pytest.mark.parametrize("count", [2, 3, 4, 28, 80])
def test_candidates_keep_the_first_layer_and_lack_a_row(count: int) -> None:
    """Each has fewer layers than the target; an early exit of each size is among them."""
    found = [*candidates(count)]
    assert len({tuple(each) for each in found}) == len(found)
    for each in found:
        assert each[0] == 0
        assert each == sorted(each)
        assert 0 < len(each) < count
        gaps = [after - before for before, after in zip(each, [*each[1:], count], strict=True)]
        assert sum(gap > 1 for gap in gaps) == 1
