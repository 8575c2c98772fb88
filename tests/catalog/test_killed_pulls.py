"""A pull that is killed at any moment goes on when it is called again, until all is there."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import heads
import projectors
import pytest
import tiny
from catalog.test_fetching import REPO, models, run, serve

from localspec import paths

__all__ = ["models"]

AT_A_STEP = """
import os, signal, sys
left = int(sys.argv[1])

def count(event, _):
    global left
    left -= event == "os.rename"
    if left == 0:
        left = -1
        os.kill(os.getpid(), signal.SIGKILL)

sys.addaudithook(count)
from localspec.cli.main import main
sys.argv = ["localspec", "models", "pull", sys.argv[2]]
main()
"""
"""Ends its own process just before a file gets its name for the n-th time."""


def killed(step: int) -> bool:
    """Pull the repository; whether it was killed at that step."""
    done = subprocess.run(
        [sys.executable, "-c", AT_A_STEP, str(step), REPO],
        env=os.environ,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode in {0, -signal.SIGKILL}, done.stderr
    return done.returncode != 0


def there(directory: Path) -> dict[str, bytes]:
    """Every file below the directory that is no record, hidden ones included."""
    found = (path for path in directory.rglob("*") if path.is_file() and path.suffix != ".json")
    return {str(path.relative_to(directory)): path.read_bytes() for path in found}


@pytest.mark.parametrize("kind", ["whole", "in parts"])
def test_a_killed_pull_goes_on_with_whatever_is_missing(
    hub: Any, tmp_path: Path, models: Path, kind: str
) -> None:
    """Its model, what reads images for it and its head; nothing half made has a name, or stays."""
    if kind == "whole":
        serve(hub, heads.glm4moe(tmp_path / "Tiny-Q4_0.gguf", part="trunk"))
        serve(hub, projectors.build(tmp_path / "mmproj-F16.gguf"))
        serve(hub, heads.glm4moe(tmp_path / "mtp-Tiny-Q4_0.gguf", part="predicts"))
    else:
        tiny.build(tmp_path / "Tiny-Q4_0.gguf", split_tensors=7)
        serve(hub, *sorted(tmp_path.glob("Tiny-Q4_0-*.gguf")))
    assert run("pull", REPO).exit_code == 0
    wanted = there(models)
    step = 1
    while True:
        for name in there(models):
            (models / name).unlink()
        for record in models.rglob("*.json"):
            record.unlink()
        if not killed(step):
            break
        left = there(models)
        named = {name for name in left if name.endswith(".gguf") and not name.startswith(".")}
        assert all(left[name] == wanted[name] for name in named), step
        again = run("pull", REPO)
        assert again.exit_code == 0, (step, again.stderr)
        paths.sweep(models)
        assert there(models) == wanted, step
        assert run("show", REPO).exit_code == 0
        step += 1
    assert step > len(wanted)


def test_what_was_killed_while_it_wrote_is_deleted_and_what_runs_is_not(tmp_path: Path) -> None:
    """Also where its process was another user's, or the name is no number of a process."""
    with subprocess.Popen([sys.executable, "-c", ""]) as ended:
        pass
    kept = [f".a.json.{os.getpid()}.1.tmp", ".a.json.1.1.tmp", ".a.1.tmp", "a.1.1.tmp", ".tmp"]
    gone = [f".a.gguf.{ended.pid}.1.tmp", f".b.json.{2**31}.7.tmp", f".c.{10**10 - 1}.1.tmp"]
    for name in (*kept, *gone):
        (tmp_path / name).touch()
    (tmp_path / f".d.{ended.pid}.1.tmp").mkdir()
    paths.sweep(tmp_path / "nowhere", tmp_path)
    left = {path.name for path in tmp_path.iterdir() if path.is_file()}
    assert left == set(kept)
