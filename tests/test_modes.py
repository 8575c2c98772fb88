"""Files of commands, daemon and workers are writable by their owner alone, under any umask."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import tiny
from worker_peer import Files, Worker, load

from localspec.wire.messages import Goodbye, Quit


@pytest.fixture(params=[0o000, 0o027, 0o077], ids=lambda mask: f"{mask:03o}")
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    """The umask of this process, for a test."""
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    """A pair, and the target once more."""
    folder = tmp_path_factory.mktemp("tiny")
    target = tiny.build(folder / "target.gguf", seed=0)
    draft = tiny.build(folder / "draft.gguf", seed=1, like=0, noise=0.2)
    return Files(target, draft, target)


def modes(root: Path) -> dict[str, int]:
    """The permissions of all that is there."""
    return {str(path.relative_to(root)): path.stat().st_mode & 0o777 for path in root.rglob("*")}


def assert_closed(root: Path) -> None:
    """There is something, its owner can use it, and nobody else can write it."""
    found = modes(root)
    assert any(name.count("/") for name in found)
    for name, mode in found.items():
        assert not mode & 0o022, (name, oct(mode))
        assert mode & 0o600 == 0o600, (name, oct(mode))
        assert mode & 0o100 or not (root / name).is_dir(), (name, oct(mode))


@pytest.mark.usefixtures("umask")
def test_what_a_worker_learns_is_private(files: Files, tmp_path: Path) -> None:
    """Profiles and verdicts on exactness: strict use believes them."""
    cache = tmp_path / "home"
    cache.mkdir(mode=0o700)
    worker = Worker(cache)
    worker.send(load(files))
    worker.until_ready()
    for _ in range(3):
        worker.one("hello hello")
    worker.send(Quit())
    worker.until(lambda event: isinstance(event, Goodbye))
    worker.process.wait(60)
    worker.close()
    assert_closed(cache)


@pytest.mark.usefixtures("umask")
def test_models_are_readable_and_nobody_elses_to_write(files: Files, tmp_path: Path) -> None:
    """Imported and requantized ones, their lists and all directories."""
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    places = {f"XDG_{kind}_HOME": str(home / kind) for kind in ("CACHE", "STATE", "DATA", "CONFIG")}
    run = [sys.executable, "-m", "localspec.cli.main", "models"]
    for words in (["import", str(files.target), "--name", "alpha"], ["list"]):
        subprocess.run([*run, *words], env=os.environ | places, check=True, capture_output=True)
    assert_closed(home)
    (model,) = home.rglob("alpha.gguf")
    assert model.stat().st_mode & 0o777 == 0o644
