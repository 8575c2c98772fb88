"""A head that a model is taught, as a process: made, found beside the model, and used."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
import recurrent
import tiny

from localspec.config import Config, Engine, Placement
from localspec.machine import Forwards, Head, Machine
from localspec.wire.messages import Load
from localspec.worker import assemble


def _taught(target: Path, head: Path, *, tokens: int = 3000) -> tuple[int, str]:
    """Exit code and output."""
    command = [sys.executable, "-m", "localspec.worker.train_head", str(target), str(head)]
    command += [f"--tokens={tokens}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr
    return done.returncode, done.stderr


def _drafters(load: Load) -> list[str]:
    with assemble.load(load, lambda *_: None) as loaded:
        assert loaded.ready.drafters == list(loaded.engine.drafters)
        return loaded.ready.drafters


def test_a_head_that_was_taught_drafts_from_the_next_load_on(tmp_path: Path) -> None:
    """Beside the model; if simulated by its price, not with safe kernels nor where damaged."""
    target, head = tiny.build(tmp_path / "some.gguf"), tmp_path / "heads" / "some.gguf"
    settings = Engine(context=256, slots=1, exactness="strict", target=Placement(threads=1))
    load = Load("some", str(target), None, Config(engine=settings))
    assert _drafters(load) == ["lookup", "grammar", "early_exit"]

    assert _taught(target, head)[0] == 0

    assert _drafters(load) == ["lookup", "grammar", "feature_head", "early_exit"]
    machine = Machine("x", "y", Forwards({1: 1.0}), Forwards({1: 0.1}))
    assert "feature_head" not in _drafters(msgspec.structs.replace(load, machine=machine))
    machine = msgspec.structs.replace(machine, head=Head(0.01))
    assert "feature_head" in _drafters(msgspec.structs.replace(load, machine=machine))
    assert "feature_head" not in _drafters(msgspec.structs.replace(load, safe_kernels=True))
    head.write_bytes(head.read_bytes()[:5000])
    assert _drafters(load) == ["lookup", "grammar", "early_exit"]


@pytest.mark.parametrize(
    ("case", "says"),
    [
        ("junk", "cannot be used"),
        ("unwritable", "cannot be written"),
        ("missing", "cannot be read"),
        ("config", "CUDA7"),
    ],
)
def test_a_failed_training_is_explained_in_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str, says: str
) -> None:
    """Nothing is written."""
    target, head = tmp_path / "some.gguf", tmp_path / "heads" / "some.gguf"
    if case == "junk":
        target.write_bytes(b"GGUF" + bytes(100))
    elif case == "unwritable":
        tiny.build(target)
        head.parent.touch()
    elif case == "config":
        tiny.build(target)
        chosen = tmp_path / "config.toml"
        chosen.write_text('[engine.target]\ndevices = ["CUDA7"]\n', encoding="utf-8")
        monkeypatch.setenv("LOCALSPEC_CONFIG", str(chosen))

    code, said = _taught(target, head)

    assert code in (65, 69, 78)
    assert says in said
    assert not head.exists()


def test_a_target_whose_memory_is_a_state_is_taught_one(tmp_path: Path) -> None:
    """Its states are shown like any other's."""
    target, head = tmp_path / "some.gguf", tmp_path / "heads" / "some.gguf"
    recurrent.mamba(target)

    code, said = _taught(target, head)

    assert (code, head.exists()) == (0, True), said
