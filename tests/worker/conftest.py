"""Tiny models on disk, and real worker processes on them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import tiny
from worker_peer import Files, Worker, load


@pytest.fixture(scope="session")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    """A target, a draft that imitates it, and a model that spells one token differently."""
    folder = tmp_path_factory.mktemp("tiny")
    target = tiny.build(folder / "target.gguf", seed=0)
    draft = tiny.build(folder / "draft.gguf", seed=1, like=0, noise=0.2)
    stranger = folder / "stranger.gguf"
    length = (2).to_bytes(8, "little")
    stranger.write_bytes(draft.read_bytes().replace(length + b"th", length + b"qz", 1))
    return Files(target, draft, stranger)


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[Worker]:
    """Worker process before its first message."""
    worker = Worker(tmp_path)
    yield worker
    worker.close()


@pytest.fixture(scope="module")
def worker(files: Files, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    """A worker with the pair loaded, for one file of tests."""
    worker = Worker(tmp_path_factory.mktemp("cache"))
    worker.send(load(files))
    worker.until_ready()
    yield worker
    worker.close()
