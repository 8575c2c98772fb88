"""Latency for a typing user on the real pair: `pytest -m typing -s`, on a quiet machine.

The text is a thousand tokens of this project, asked for as each client does: the line that is typed
grows, apart from the text before it or not. It prints what it found; the median of the first texts
and the least of the other figures are held to the promise.
"""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from serving import Daemon, DaemonHome, run_daemon

from localspec.catalog.registry import Resolved
from localspec.text import template
from localspec_daemon.supervisor.worker import COMMAND

pytestmark = [pytest.mark.typing, pytest.mark.timeout(1800)]

FIRST_TEXT_SECONDS = 0.25
LINES = Path(template.__file__).read_text()[:4000].splitlines(keepends=True)
HERE = len(LINES) * 3 // 4
TYPED = "    value = environment.from_string(source).render("


BEFORE, AFTER = "".join(LINES[:HERE]), "".join(LINES[HERE:])


def apart(typed: str) -> tuple[str, dict[str, Any]]:
    """Requests as llama.vim, llama.vscode and `localspec lsp` send them."""
    return "/infill", {"input_prefix": BEFORE, "input_suffix": AFTER, "prompt": typed}


def within(typed: str) -> tuple[str, dict[str, Any]]:
    """Requests as minuet and Continue send them."""
    return "/v1/completions", {"prompt": BEFORE + typed, "suffix": AFTER, "temperature": 0}


async def fill(
    it: Daemon, asked: tuple[str, dict[str, Any]], **fields: Any
) -> tuple[float, float, dict[str, Any]]:
    """Seconds to the first text and to the end, and the last event."""
    path, body = asked
    began, first, event = time.perf_counter(), 0.0, dict[str, Any]()
    sent = body | {"max_tokens": 32, "stream": True, **fields}
    async with it.http.post(path, json=sent) as response:
        assert response.status == 200
        async for line in response.content:
            if line.startswith(b"data: {"):
                event = json.loads(line[6:])
                said = event.get("content") or event.get("choices", [{}])[0].get("text")
                first = first or (time.perf_counter() - began if said else 0.0)
    return first, time.perf_counter() - began, event


def test_the_first_text_comes_at_once_and_so_does_the_end(
    tmp_path: Path, real_pair: Resolved
) -> None:
    """A few letters more each time; then a deadline, and a client that disconnects."""
    harness = DaemonHome(tmp_path, real_pair.target_path)
    settings = {"directory": str(real_pair.target_path.parent), "default": real_pair.name}
    harness.configure(models=settings, engine={"context": 8192, "slots": 2})

    async def scene() -> None:
        async with run_daemon(harness, COMMAND) as it:
            await fill(it, apart(""))
            warm = {
                ask.__name__: [await fill(it, ask(TYPED[:end])) for end in range(8, len(TYPED), 5)]
                for ask in (apart, within)
            }
            late = [await fill(it, apart(TYPED), t_max_predict_ms=1) for _ in range(3)]
            left = [await leave(it) for _ in range(3)]
        told = [event["timings"] for each in warm.values() for _, _, event in each]
        read = [timings["prompt_n"] for timings in told]
        figures = {
            "tokens": told[0]["prompt_n"] + told[0]["cache_n"],
            "read_anew": max(read),
            "first_text_ms": {
                name: [round(first * 1000) for first, _, _ in each] for name, each in warm.items()
            },
            "deadline_tokens": [event["timings"]["predicted_n"] for _, _, event in late],
            "free_after_leaving_ms": [round(seconds * 1000) for seconds in left],
        }
        print(json.dumps(figures))  # noqa: T201  the report
        assert figures["tokens"] > 900
        assert max(read) < 16
        for each in warm.values():
            assert median(first for first, _, _ in each if first) <= FIRST_TEXT_SECONDS
        assert max(figures["deadline_tokens"]) < 32
        assert min(left) <= FIRST_TEXT_SECONDS

    asyncio.run(scene())


async def leave(it: Daemon) -> float:
    """Seconds from closing the connection during an answer until no request is active."""
    async with it.streaming("Count to a thousand.") as stream:
        await stream.next("data: ")
    began = time.perf_counter()
    await it.until(
        lambda: all(not one.requests for one in it.server.supervisor.pool.models.values())
    )
    return time.perf_counter() - began
