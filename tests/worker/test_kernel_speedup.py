"""The speed-up by our kernels is measured in idle time and kept; no request sees it."""

from __future__ import annotations

from pathlib import Path

import msgspec
import tiny
from gguf import GGMLQuantizationType

from localspec.config import Config, Engine, Placement
from localspec.engine.llama.library import ours
from localspec.machine import Forwards, Machine
from localspec.wire.messages import Load
from localspec.worker import assemble
from localspec.worker.kernel_speedup import ROWS, KernelSpeedup, describe


def test_the_two_are_compared_once_and_ours_compute_again(tmp_path: Path) -> None:
    """Row counts in turns, until the profile knows; the next worker reads it there."""
    model = tiny.build(tmp_path / "tiny.gguf", quantization=GGMLQuantizationType.Q4_0)
    settings = Engine(context=256, slots=2, exactness="standard", target=Placement(threads=1))
    load = Load("tiny", str(model), None, Config(engine=settings))
    switched: list[bool] = []
    with assemble.load(load, lambda *_: None) as loaded:
        engine, profile = loaded.engine, loaded.profile
        assert profile.worth == {}
        worth = KernelSpeedup(engine, profile, "AVX2", switched.append)
        assert worth.sentence == "AVX2, LocalSpec's own"
        while worth.advance():
            assert switched[-1]
            assert not engine.remembers(engine.target.n_slots - 1)
        assert set(profile.worth) == set(ROWS)
        assert min(profile.worth.values()) > 0
        assert switched == [False, True, True, True] * (len(switched) // 4)
    with assemble.load(load, lambda *_: None) as loaded:
        assert loaded.profile.worth == profile.worth
        assert not KernelSpeedup(loaded.engine, loaded.profile, "AVX2", switched.append).advance()


def test_a_draft_with_a_large_vocabulary_is_shortlisted(tmp_path: Path) -> None:
    """Where our kernels compute its head; a simulated machine computes all, as its device does."""
    words = tuple(f"word{number}" for number in range(44_002))
    target = tiny.build(tmp_path / "target.gguf", specials=words)
    draft = tiny.build(tmp_path / "draft.gguf", seed=1, like=0, noise=0.2, specials=words)
    settings = Engine(context=256, slots=1, exactness="standard", target=Placement(threads=1))
    load = Load("tiny", str(target), str(draft), Config(engine=settings))
    said = "the draft model chooses among 32,7"
    with assemble.load(load, lambda *_: None) as loaded:
        assert "model" in loaded.engine.drafters
        assert (said in loaded.kernels) == bool(ours.kernels)
    machine = Machine("x", "y", Forwards({1: 1.0}), Forwards({1: 0.1}))
    with assemble.load(msgspec.structs.replace(load, machine=machine), lambda *_: None) as loaded:
        assert said not in loaded.kernels


def test_without_a_comparison_kernels_are_only_named() -> None:
    """In words as people read them."""
    assert describe("AVX512_VNNI", {}) == "AVX512 VNNI, LocalSpec's own"
    assert describe("NEON_I8MM", {4: 1.5, 8: 2.25}) == (
        "NEON I8MM, LocalSpec's own; 4 rows 1.50 times and 8 rows 2.25 times as fast as by "
        "llama.cpp's own"
    )
