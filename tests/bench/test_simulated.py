"""`localspec bench --machine`: a daemon of its own with a tiny pair, on machines of tables."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tiny
from user_home import UserHome

from localspec.bench import tables
from localspec.client import Client
from localspec.errors import NotRunning

QUESTIONS = [
    {"question_id": 1, "category": "copy", "turns": ["Say again: one two three four " * 6]},
    {"question_id": 2, "category": "talk", "turns": ["abc abc abc", "and once more"]},
]
FIGURES = ("tokens", "rounds", "decode_seconds", "ttft_seconds", "seconds", "sources", "text")


@pytest.fixture(scope="module")
def user(tmp_path_factory: pytest.TempPathFactory) -> Iterator[UserHome]:
    """Someone with a tiny pair and no daemon."""
    found = UserHome(tmp_path_factory.mktemp("p"))
    tiny.build(found.models / "tiny.gguf")
    tiny.build(found.models / "little.gguf", like=0, noise=0.02)
    (found.models / "drafts.json").write_text('{"tiny":"little"}')
    (found.home / "q.jsonl").write_text("\n".join(map(json.dumps, QUESTIONS)))
    yield found
    found.run("stop")


def bench(user: UserHome, output: Path, *arguments: str) -> Any:
    """results.json of a short measurement."""
    user.run(
        "bench", "--prompts", str(user.home / "q.jsonl"), "--tokens", "24", "--arms", "auto,model",
        "--output", str(output), *arguments,
    )  # fmt: skip
    return json.loads((output / "results.json").read_text())


def answers(found: Any) -> list[tuple[Any, ...]]:
    """The values that must not differ between two runs."""
    every = (one for batch in found["results"]["batches"] for one in batch["answers"])
    return [(one["arm"], one["prompt"], *(one[name] for name in FIGURES)) for one in every]


def test_two_runs_give_the_same_figures_and_plains_tokens(user: UserHome, tmp_path: Path) -> None:
    """Virtual times to the last digit; the user's own daemon is neither started nor asked."""
    found = bench(user, tmp_path / "one", "--machine", "h100-7b")
    again = bench(user, tmp_path / "two", "--machine", "h100-7b")
    assert answers(found) == answers(again)
    assert found["summary"]["cells"] == again["summary"]["cells"]
    for arm in ("auto", "model"):
        cell = found["summary"]["cells"]["all"][arm]
        assert cell["equal"] == cell["compared"] == 3
        assert cell["ratio"]["mean"] <= cell["bound"]["mean"]
    assert user.run("status", exit_code=69).stdout == ""


def test_plain_takes_what_the_table_says(user: UserHome, tmp_path: Path) -> None:
    """One row and the host a token; the bound is the table's too."""
    _, machine = tables.find("h100-32b")
    found = bench(user, tmp_path / "plain", "--machine", "h100-32b", "--repeats", "2")
    plain = [
        one
        for batch in found["results"]["batches"]
        for one in batch["answers"]
        if one["arm"] == "plain"
    ]
    assert len(plain) == 6
    # Strict forwards are padded, and prompts are a few hundred tokens long.
    largest_ms = machine.target.forward_ms(16, 0, 600) + machine.host.round_ms
    for one in plain:
        ms = 1000 * one["decode_seconds"] / (one["tokens"] - 1)
        assert machine.target.forward_ms(1, 2) + machine.host.round_ms <= ms <= largest_ms


@pytest.fixture
def short_path() -> Iterator[Path]:
    """A directory of a short path, since a socket lies below."""
    with tempfile.TemporaryDirectory(prefix="ls") as path:
        yield Path(path)


def answering(process: subprocess.Popen[bytes], root: Path) -> Client:
    """The daemon below `root`, once it answers: its socket is there before it listens."""
    while process.poll() is None:
        for path in root.glob("*/*/localspec.sock"):
            with contextlib.suppress(NotRunning):
                Client(path).status()
                return Client(path)
        os.sched_yield()
    raise AssertionError("bench ended before its daemon answered")


def test_a_terminal_that_is_closed_leaves_no_daemon_behind(
    user: UserHome, short_path: Path
) -> None:
    """The daemon of a closed terminal ends too, though it has a session of its own."""
    asked = ("--prompts", str(user.home / "q.jsonl"), "--tokens", "1000", "--machine", "h100-7b")
    with user.begin("bench", *asked, TMPDIR=str(short_path)) as process:
        daemon = answering(process, short_path)
        assert daemon.status()["models"]
        process.send_signal(signal.SIGHUP)
    assert process.returncode == 130
    assert list(short_path.iterdir()) == []
    with pytest.raises(NotRunning):
        daemon.status()


def test_several_machines_are_compared_in_the_end(user: UserHome, tmp_path: Path) -> None:
    """Each with a report of its own."""
    done = user.run(
        "bench", "--prompts", str(user.home / "q.jsonl"), "--tokens", "8", "--arms", "auto",
        "--machine", "h100-7b", "--machine", "rtx4090-7b", "--output", str(tmp_path),
    )  # fmt: skip
    assert "on a simulated machine: times are those of the table of H100, 7B" in done.stdout
    last = done.stdout.rpartition("Every machine: decode speed of auto")[2]
    assert "H100, 7B" in last
    assert "RTX 4090, 7B" in last
    for name in ("h100-7b", "rtx4090-7b"):
        assert (tmp_path / name / "report.html").is_file()


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (("--machine", "cray-1"), "cray-1"),
        (("--machine", "hole.toml"), "what one row costs"),
        (("--machine", "h100-7b", "--concurrency", "2"), "--concurrency"),
        (("--machine", "h100-7b", "--pause", "1"), "--pause"),
        (("--machine", "h100-7b", "--against", "http://127.0.0.1:1"), "--against"),
    ],
)
def test_mistakes_are_told_before_anything_is_loaded(
    user: UserHome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...],
    word: str,
) -> None:  # fmt: skip
    """In one sentence, and no daemon has been started."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "hole.toml").write_text(
        'name = "n"\nsource = "s"\n[target]\nsteady_ms = {}\n[draft]\nsteady_ms = { 1 = 1.0 }\n'
    )
    code = 78 if "hole.toml" in arguments else 2
    assert word in user.run("bench", *arguments, exit_code=code).stderr
