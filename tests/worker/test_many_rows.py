"""Tiles of bf16 compute prompts where they were measured to be faster, and nothing else then."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any, Literal

import pytest
import tiny
from hypothesis import given
from hypothesis import strategies as st
from laws.builds import EMULATED, libraries_of, whole
from worker_peer import Worker

from localspec.config import Config, Engine, Placement
from localspec.wire.messages import Load
from localspec.worker.many_rows import ROWS, Spans, least_rows

SECONDS = st.floats(1e-6, 1.0)
TEXT = [32 + at * 7 % 90 for at in range(300)]


@given(st.fixed_dictionaries({rows: st.builds(Spans, SECONDS, SECONDS) for rows in ROWS}))
def test_a_slower_kernel_is_never_chosen(found: dict[int, Spans]) -> None:
    """Not at any row count that was measured, and the least is chosen from which all gain."""
    chosen = least_rows(found.__getitem__)
    above = [rows for rows in ROWS if chosen and rows >= chosen]
    assert all(found[rows].many < found[rows].few for rows in above)
    below = [rows for rows in ROWS if rows not in above]
    assert not below or not found[max(below)].gain


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache of one's own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path


def choose(build: str) -> int:
    """The choice for a build, by a process that may die of its library."""
    program = f"from localspec.worker import many_rows; print(many_rows.choose({build!r}))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    return int(done.stdout.split()[-1])


def kept(home: Path) -> Path:
    """The one file of a choice."""
    (path,) = home.rglob("many-rows-*.json")
    return path


@pytest.fixture
def emulated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """llama.cpp with AMX, its tiles emulated."""
    libraries, why = libraries_of(EMULATED)
    if libraries is None:
        pytest.skip(why)
    place = whole(libraries, tmp_path / "libraries")
    monkeypatch.setenv("LLAMA_CPP_LIB_PATH", str(place))
    return place


@pytest.mark.usefixtures("emulated")
def test_what_was_chosen_is_kept_for_the_build(home: Path) -> None:
    """It is measured once, and once more where the file is damaged; another build has its own."""
    first = choose("one")
    assert first in {0, *ROWS}
    kept(home).write_text("128")
    assert choose("one") == 128
    kept(home).write_text("[")
    assert choose("one") in {0, *ROWS}
    choose("other")
    assert len([*home.rglob("many-rows-*.json")]) == 2


@pytest.mark.usefixtures("emulated")
@pytest.mark.parametrize("exactness", ["standard", "strict"])
def test_a_prompt_is_read_by_tiles(home: Path, exactness: Literal["standard", "strict"]) -> None:
    """The build says from how many rows on; strict use reads in forwards of fewer."""
    model = tiny.build(home / "model.gguf")
    engine: dict[str, Any] = {"slots": 2, "context": 768, "target": Placement(threads=1)}
    load = Load("tiny", str(model), None, Config(engine=Engine(exactness=exactness, **engine)))
    builds, answers = [], []
    for rows in (0, 64):
        with closing(Worker(home)) as worker:
            if rows:
                kept(home).write_text(str(rows))
            worker.send(load)
            worker.until_ready()
            builds.append(worker.ready.llama_build)
            heard = worker.one(TEXT, logprobs=2)
            answers.append([each for delta in heard.deltas for each in delta.logprobs])
            again = worker.one(TEXT[:40], logprobs=2)
            assert again.finished
    assert "TILES" not in builds[0] or os.environ.get("LOCALSPEC_ISA")
    assert "TILES = 64" in builds[1]
    assert (answers[0] == answers[1]) == (exactness == "strict")
