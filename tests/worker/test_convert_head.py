"""Published Medusa and Hydra heads: each says its own position, and no file can do harm."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import heads
import numpy as np
import published_heads
import pytest
from worker.test_fed_heads import COUNTED, answer, loaded

from localspec.engine.llama.library import ours
from localspec.errors import BadPair, ModelError
from localspec.worker import tensor_files
from localspec.worker.heads import find

needs_states = pytest.mark.skipif(not ours.states, reason="llama.cpp without LocalSpec's edits")


def convert(folder: Path, tensors: published_heads.Arrays, kind: str = "safetensors") -> Path:
    """A target that counts, with these heads beside it as the command puts them there."""
    models = folder / "localspec" / "models"
    models.mkdir(parents=True)
    target = heads.qwen2(models / "target.gguf", counts=True)
    source = folder / f"heads.{kind}"
    (published_heads.pt if kind == "pt" else published_heads.safetensors)(source, tensors)
    command = [sys.executable, "-m", "localspec.cli.main", "models", "convert-head", str(source)]
    done = subprocess.run(
        [*command, "--for", "target"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "XDG_DATA_HOME": str(folder)},
    )
    place = models / "heads" / "target-by-position.gguf"
    assert (done.returncode, place.exists()) == (0, True), done.stderr
    assert str(place) in done.stdout.replace("\n", "")
    assert "positions" in done.stderr
    return target


def drafts(folder: Path, target: Path) -> tuple[list[int], int, int]:
    """The tokens of an answer, and how many were drafted by the head and accepted."""
    with loaded(folder, target) as made:
        assert made.ready.drafters.count("feature_head") == 1
        assert made.ready.head in {f"{kind} heads for 3 positions" for kind in ("Medusa", "Hydra")}
        tokens, sources = answer(made)
        assert answer(made, "off") == (tokens, {})
        told = sources.get("feature_head")
        return tokens, told.drafted if told else 0, told.accepted if told else 0


@needs_states
@pytest.mark.parametrize("kind", ["safetensors", "pt"])
@pytest.mark.parametrize(
    "made",
    [
        published_heads.medusa(),
        published_heads.hydra(),
        published_heads.hydra(looks_at=0),
        published_heads.hydra(looks_at=1),
    ],
    ids=["medusa", "hydra by its latest token", "by its state", "by its first token"],
)
def test_each_head_says_its_own_position(made: Any, kind: str, tmp_path: Path) -> None:
    """Heads made by hand that are right every time, in either format, are accepted every time."""
    tokens, drafted, accepted = drafts(tmp_path, convert(tmp_path, made, kind))
    assert tokens == COUNTED
    assert drafted == accepted > 30


@needs_states
@pytest.mark.parametrize("off", [-1, 1])
@pytest.mark.parametrize("make", [published_heads.medusa, published_heads.hydra])
def test_a_head_that_is_off_by_one_is_never_right(make: Any, off: int, tmp_path: Path) -> None:
    """So acceptance proves the position; the tokens are those of plain decoding."""
    tokens, drafted, accepted = drafts(tmp_path, convert(tmp_path, make(off=off)))
    assert tokens == COUNTED
    assert drafted > accepted == 0


@needs_states
def test_heads_at_random_change_nothing(tmp_path: Path) -> None:
    """The tokens are those of plain decoding, whatever is drafted; half as many bytes a number."""
    halves = {
        name: each.astype(np.float16) for name, each in published_heads.medusa(random=True).items()
    }
    tokens, _, _ = drafts(tmp_path, convert(tmp_path, halves))
    assert tokens == COUNTED


def test_formats_are_read_alike(tmp_path: Path) -> None:
    """Numbers and shapes of both are those that were written."""
    written = published_heads.hydra()
    for read in (
        tensor_files.read(published_heads.pt(tmp_path / "a.pt", written)),
        tensor_files.read(published_heads.safetensors(tmp_path / "a.safetensors", written)),
    ):
        assert read.keys() == written.keys()
        for name, each in written.items():
            np.testing.assert_array_equal(read[name].floats(), each)


def test_a_pt_that_calls_something_is_refused_and_calls_nothing(tmp_path: Path) -> None:
    """Functions other than those of tensors are never looked up."""
    proof = tmp_path / "called"
    call = f"cos\nsystem\n(X{chr(len(f'touch {proof}'))}\0\0\0touch {proof}tR0".encode()
    path = published_heads.pt(tmp_path / "evil.pt", published_heads.medusa(), calls=call)
    with pytest.raises(ModelError, match=r"names (os|posix)\.system"):
        tensor_files.read(path)
    assert not proof.exists()


def _cut(path: Path, share: float) -> Path:
    path.write_bytes(path.read_bytes()[: int(share * path.stat().st_size)])
    return path


@pytest.mark.parametrize("share", [0.0, 0.0001, 0.02, 0.5, 0.999])
@pytest.mark.parametrize("kind", ["safetensors", "pt"])
def test_a_file_that_is_cut_off_is_one_sentence(kind: str, share: float, tmp_path: Path) -> None:
    """Wherever it ends."""
    write = published_heads.pt if kind == "pt" else published_heads.safetensors
    path = _cut(write(tmp_path / f"a.{kind}", published_heads.medusa()), share)
    with pytest.raises(ModelError, match="cannot be used"):
        tensor_files.read(path)


@pytest.mark.parametrize("kind", ["safetensors", "pt"])
def test_a_damaged_file_is_one_sentence_or_read(kind: str, tmp_path: Path) -> None:
    """With any few bytes of its first or last thousand changed, where the lists of parts are."""
    write = published_heads.pt if kind == "pt" else published_heads.safetensors
    whole = write(tmp_path / f"a.{kind}", published_heads.medusa()).read_bytes()
    random, path = np.random.default_rng(7), tmp_path / "damaged"
    refused = 0
    for _ in range(300):
        data = bytearray(whole)
        for place in random.integers(-1000, 1000, random.integers(1, 4)):
            data[place] = random.integers(256)
        path.write_bytes(data)
        try:
            tensor_files.read(path)
        except ModelError:
            refused += 1
    assert 0 < refused < 300


def _without(name: str) -> published_heads.Arrays:
    return {key: each for key, each in published_heads.medusa().items() if key != name}


def _with(name: str, value: Any) -> published_heads.Arrays:
    return {**published_heads.medusa(), name: value}


_WIDTH = heads.WIDTH


@pytest.mark.parametrize(
    ("tensors", "error", "said"),
    [
        (_without("1.1.weight"), ModelError, "does not hold all"),
        (_without("2.0.linear.weight"), ModelError, "lacks linear.weight"),
        ({"model.norm.weight": np.ones(4, np.float32)}, ModelError, "no Medusa and no Hydra"),
        (_with("0.0.linear.weight", np.ones((32, 32), np.float32)), BadPair, "states of 32"),
        (_with("0.1.weight", np.ones((9, _WIDTH), np.float32)), BadPair, "for 9 tokens"),
        (_with("0.0.linear.bias", np.full(_WIDTH, np.nan, np.float32)), ModelError, "no number"),
        (_with("0.0.linear.bias", np.ones(3, np.float32)), ModelError, "bias"),
        (
            {
                **published_heads.hydra(),
                "prefix_embeding_layer.norm.weight": np.ones(4, np.float32),
            },
            ModelError,
            "prefix layer",
        ),
    ],
)
def test_heads_that_cannot_be_used_are_one_sentence(
    tensors: published_heads.Arrays, error: Any, said: str, tmp_path: Path
) -> None:
    """No file is left behind."""
    target = heads.qwen2(tmp_path / "target.gguf")
    source = published_heads.safetensors(tmp_path / "heads.safetensors", tensors)
    command = [sys.executable, "-m", "localspec.worker.convert_head"]
    place = tmp_path / "heads" / "a.gguf"
    done = subprocess.run(
        [*command, str(target), str(source), str(place)],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == error.exit_code
    assert said in done.stderr
    assert "Traceback" not in done.stderr
    assert not place.exists()


@pytest.mark.parametrize("share", [0.3, 0.9])
def test_a_converted_file_that_is_damaged_is_left_out(share: float, tmp_path: Path) -> None:
    """The model has no feature head then, and loads."""
    target = convert(tmp_path, published_heads.medusa())
    _cut(target.parent / "heads" / "target-by-position.gguf", share)
    assert find(target, target.parent / "heads") is None
