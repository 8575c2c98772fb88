"""`localspec status` over reports as the daemon sends them."""

from __future__ import annotations

import json
from importlib import metadata
from typing import Any

import pytest
from click.testing import CliRunner
from scripted import Peer

from localspec.cli.main import cli
from localspec.cli.status import size, span


def device(name: str, what: str, total: int, free: int, held: int) -> dict[str, Any]:
    """One device, as the daemon tells of it."""
    sizes = {"total_bytes": total, "free_bytes": free, "held_bytes": held}
    return {"name": name, "description": what, **sizes}


MODEL: dict[str, Any] = {
    "name": "qwen",
    "state": "ready",
    "default": True,
    "target_path": "/models/qwen.gguf",
    "draft_path": "/models/small.gguf",
    "size_bytes": 1_117_320_768,
    "active": 1,
    "queued": 2,
    "last_crash": "signal 11 while decoding",
    "context": 8192,
    "context_train": 32768,
    "drafters": ["lookup", "model"],
    "rollback": "by copies of the state",
    "exactness": "standard",
    "exactness_detail": "1 to 4 rows agree",
    "devices": [{"device": "CPU", "what": "weights", "bytes": 1_100_000_000}],
    "kernels": "AVX2, LocalSpec's own; 4 rows 1.50 times as fast as by llama.cpp's own",
    "memory": {"CPU": 1_400_000_000},
    "tokens_per_second": 48.13,
    "cost_ms_by_rows": {"1": 20.4, "16": 110.0, "2": 34.0, "15": 104.0},
    "routing": {"short-request": 3, "speculating": 12},
    "drafted": {"lookup": 100, "model": 0},
    "accepted": {"lookup": 57, "model": 0},
}
REPORT: dict[str, Any] = {
    "version": metadata.version("localspec"),
    "updated": False,
    "pid": 4242,
    "uptime_seconds": 11_520.5,
    "draining": False,
    "socket": "/run/localspec.sock",
    "tcp": None,
    "config_error": None,
    "restart_needed": [],
    "models_directory": "/models",
    "loading": None,
    "memory_bytes": 2_000_000_000,
    "memory_free_bytes": 9_500_000_000,
    "devices": [
        device("CPU", "A Processor", 16_000_000_000, 9_500_000_000, 1_400_000_000),
        device("CUDA0", "", 24_000_000_000, 24_000_000_000, 0),
    ],
    "models": [MODEL],
}


def shown(peer: Peer, **changes: Any) -> str:
    """The output of `localspec status` for REPORT with `changes`, lines joined by single spaces."""
    peer.status = {**REPORT, **changes}
    result = CliRunner(env={"COLUMNS": "120"}).invoke(cli, ["status"])
    assert result.exit_code == 0, result.stderr
    return " ".join(result.stdout.split())


@pytest.mark.parametrize(
    "fact",
    [
        f"localspec {REPORT['version']} · pid 4242 · up 3 h 12 min · /run/localspec.sock",
        "qwen (default): ready, 1 answering, 2 waiting",
        "last crash signal 11 while decoding",
        "target qwen.gguf, 1.12 GB",
        "draft small.gguf",
        "memory CPU: weights 1.10 GB",
        "holds 1.40 GB of CPU",
        "CPU: A Processor, 9.50 GB of 16.00 GB free, models hold 1.40 GB",
        "CUDA0: 24.00 GB of 24.00 GB free memory",
        "memory: models may take 2.00 GB of the CPU's together",
        "context 8192 tokens of 32768 trained",
        "drafters lookup, model",
        "exactness standard: 1 to 4 rows agree",
        "speed 48.1 tokens/s",
        "decode 1: 20 ms, 2: 34 ms, 16: 110 ms by rows",
        "accepted lookup 57 of 100 (57%)",
        "requests 12 with speculation; 3 without: so short an answer gains nothing",
    ],
)
def test_the_report_tells_each_fact(peer: Peer, fact: str) -> None:
    """Each fact of the status has its row."""
    assert fact in shown(peer)


def test_loading_and_trouble_are_told(peer: Peer) -> None:
    """A half-loaded model, a refused configuration, a pair that cannot speculate."""
    loading = {
        "name": "qwen", "state": "loading", "default": False,
        "loading": {"model": "qwen", "stage": "target", "fraction": 0.42},
        "speculation_off": "vocabularies differ", "error": "no room",
    }  # fmt: skip
    text = shown(
        peer, models=[loading], config_error="unknown key engin", restart_needed=["server.tcp"]
    )
    assert "qwen: loading, reading the model 42%" in text
    loading["loading"] = {"stage": "room", "fraction": 0, "why": "waiting for memory: b is loading"}
    assert "qwen: loading, waiting for memory: b is loading" in shown(peer, models=[loading])
    assert "speculation off: vocabularies differ" in text
    drafting = {**MODEL, "drafters": ["lookup"], "speculation_off": "The draft is larger."}
    assert "no draft The draft is larger." in shown(peer, models=[drafting])
    head = {**MODEL, "drafters": ["lookup"], "head": "h.gguf is a draft head for another model."}
    assert "head h.gguf is a draft head for another model." in shown(peer, models=[head])
    assert "error no room" in text
    assert "config error: unknown key engin (the last good one is in force)" in text
    assert "after a restart: server.tcp" in text


def test_no_models_names_the_directory(peer: Peer) -> None:
    """So that one knows where to put a file."""
    assert "models: none in /models" in shown(peer, models=[])


def test_a_model_that_embeds_is_told_as_what_it_is(peer: Peer) -> None:
    """Exactness and drafts are not its business."""
    text = shown(peer, models=[{**MODEL, "speculation_off": "embeddings"}])
    assert "gives a vector of each text; nothing is drafted" in text
    assert "exactness" not in text


def test_a_simulated_machine_is_named(peer: Peer) -> None:
    """A simulated machine's figures cannot be mistaken for this one's."""
    assert "machine: h100-7b, on a simulated machine" in shown(peer, machine="h100-7b")
    assert "on a simulated machine" not in shown(peer, machine="")


def test_names_cannot_command_the_terminal(peer: Peer) -> None:
    """File names may hold control characters; brackets are no markup either."""
    text = shown(peer, models=[{"name": "[red]\x1b[2Jx", "state": "unloaded"}])
    assert r"[red]\x1b[2Jx" in text


def test_json_is_what_the_daemon_sent(peer: Peer) -> None:
    """One object, with `running` for scripts that ask nothing else."""
    peer.status = REPORT
    result = CliRunner().invoke(cli, ["status", "--json"])
    assert json.loads(result.stdout) == {"running": True, **REPORT}


def test_no_daemon_is_exit_code_69_also_as_json() -> None:
    """`running` is false and stderr names the command that helps."""
    result = CliRunner().invoke(cli, ["status", "--json"])
    assert result.exit_code == 69
    assert json.loads(result.stdout)["running"] is False
    assert "localspec start" in result.stderr


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(0.4, "0 s"), (59, "59 s"), (61, "1 min 1 s"), (3600, "1 h"), (90_061, "1 d 1 h")],
)
def test_spans_show_their_two_largest_units(seconds: float, words: str) -> None:
    """Never more digits than anyone reads."""
    assert span(seconds) == words


@pytest.mark.parametrize(
    ("count_bytes", "words"),
    [(0, "0 B"), (999, "999 B"), (98_362_432, "98 MB"), (1_117_320_768, "1.12 GB")],
)
def test_sizes_are_decimal(count_bytes: int, words: str) -> None:
    """As file managers and model pages count."""
    assert size(count_bytes) == words
