"""A loaded model's threads: as configured, or variable where that changes no bits."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import tiny

from localspec.config import Config, Engine, Placement
from localspec.engine.llama.cores import counts
from localspec.engine.llama.library import ours
from localspec.wire.messages import Load
from localspec.worker import assemble
from localspec.worker.assemble import Loaded

TWO_CORES = pytest.mark.skipif(counts()[0] == 1, reason="one core varies nothing")


@contextmanager
def loaded(model: Path, exactness: str, threads: int = 0) -> Iterator[Loaded]:
    """A tiny model in this process."""
    placement = Placement(threads=threads)
    engine = Engine(context=256, slots=2, exactness=exactness, target=placement)  # type: ignore[arg-type]
    command = Load("tiny", str(model), None, Config(engine=engine))
    with assemble.load(command, lambda *_: None) as found:
        yield found


@pytest.fixture
def model(tmp_path: Path) -> Path:
    """A tiny one."""
    return tiny.build(tmp_path / "tiny.gguf")


@TWO_CORES
def test_threads_vary_unless_strict_bits_come_of_them(model: Path) -> None:
    """By llama.cpp's attention a long text is shared out by threads; ours is not."""
    with loaded(model, "standard") as found:
        assert found.threads.varies
    with loaded(model, "strict") as found:
        assert found.threads.varies == ours.attends
    if use := ours.switch:
        use(False)
        try:
            with loaded(model, "strict") as found:
                assert not found.threads.varies
        finally:
            use(os.environ.get("LOCALSPEC_ROWS") != "0")


def test_configured_threads_stay(model: Path) -> None:
    """Also on a machine with another number of cores; nothing is learned."""
    with loaded(model, "standard", threads=3) as found:
        assert not found.threads.varies
        assert not found.profile.threads
        assert found.kernels == found.speedup.sentence


def test_the_number_is_kept(model: Path) -> None:
    """The next worker takes it from the profile: a machine keeps its answers."""
    with loaded(model, "standard") as found:
        assert found.profile.threads in counts()
        kept = found.profile.threads
    with loaded(model, "standard") as found:
        assert found.profile.threads == kept
