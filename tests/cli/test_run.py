"""`localspec run` and `ps`."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import tiny
from click.testing import CliRunner, Result
from scripted import Peer, answer

from localspec.cli.chat import chat
from localspec.cli.main import cli
from localspec.cli.run import run


def localspec(*arguments: str, stdin: str = "") -> Result:
    """`localspec ARGUMENTS`, in process."""
    return CliRunner().invoke(cli, list(arguments), input=stdin)


@pytest.fixture
def models(home: Path) -> Path:
    """The models directory, with a model called zephyr."""
    directory = home / "data" / "localspec" / "models"
    directory.mkdir(parents=True)
    tiny.build(directory / "zephyr.gguf")
    return directory


def test_run_asks_the_model_that_it_names(peer: Peer, models: Path, home: Path) -> None:
    """One that is here, one that the daemon knows, and a file, which becomes a model first."""
    tiny.build(home / "Mine.gguf", seed=3)
    peer.models = [{"id": "far"}]
    for model, name in (("zephyr", "zephyr"), ("far", "far"), (f"{home}/Mine.gguf", "mine")):
        for _ in range(2):  # the second time nothing is copied
            peer.streams = [answer("ok")]
            result = localspec("run", model, "hello", "world", "-t", "0", stdin="and this")
            assert result.exit_code == 0, result.stderr
            assert result.stdout == "ok\n"
            assert peer.question["model"] == name
            assert peer.question["messages"][-1]["content"] == "hello world\n\nand this"
            assert peer.question["temperature"] == 0
    assert sorted(path.stem for path in models.glob("*.gguf")) == ["mine", "zephyr"]


def test_run_of_what_is_nowhere_says_so(peer: Peer) -> None:
    """And asks no model."""
    result = localspec("run", "no-such-model-at-all", "hi")
    assert result.exit_code == 2
    assert "There is no model" in result.stderr
    assert all(not asked.body for asked in peer.asked)


def test_run_takes_what_chat_takes() -> None:
    """But for the model, which is its first word."""
    ours, theirs = ({option.name for option in one.params} for one in (run, chat))
    assert ours == theirs


def test_ps_shows_what_is_loaded(peer: Peer) -> None:
    """With its memory and what it does; nothing loaded is no error."""
    assert "No model is loaded" in localspec("ps").stderr
    loading = {"stage": "target", "fraction": 0.5}
    peer.status["models"] = [
        {"name": "small", "state": "ready", "memory": {"CPU": 1_400_000_000}, "idle_seconds": 90},
        {"name": "busy", "state": "ready", "active": 2, "queued": 1},
        {"name": "big", "state": "loading", "loading": loading},
        {"name": "off", "state": "unloaded"},
    ]
    shown = localspec("ps").stdout
    rows = [" ".join(line.split()) for line in shown.splitlines()]
    assert rows == [
        "NAME MEMORY DOING",
        "small 1.40 GB CPU idle for 1 min 30 s",
        "busy - 2 answering, 1 waiting",
        "big - reading the model 50%",
    ]
    told = json.loads(localspec("ps", "--json").stdout)
    assert [model["name"] for model in told] == ["small", "busy", "big"]


def test_ps_without_a_daemon_names_the_command() -> None:
    """Exit code 69, as of `status`."""
    result = localspec("ps")
    assert (result.exit_code, "localspec start" in result.stderr) == (69, True)
