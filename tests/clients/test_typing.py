"""How long somebody who types waits, on the real pair: `pytest -m typing -s`, on a quiet machine.

The text is a thousand tokens of this project, asked for as llama.vim does: the line that is typed
stands apart, and grows. It prints what it found; the least of each figure is held to the promise.
"""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

import pytest
from serving import Daemon, House, run_daemon

from localspec.catalog.registry import Resolved
from localspec.text import template
from localspec_daemon.worker import COMMAND

pytestmark = [pytest.mark.typing, pytest.mark.timeout(1800)]

FIRST_TEXT_SECONDS = 0.25
LINES = Path(template.__file__).read_text()[:4000].splitlines(keepends=True)
HERE = len(LINES) * 3 // 4
TYPED = "    value = environment.from_string(source).render("


async def fill(it: Daemon, typed: str, **fields: Any) -> tuple[float, float, dict[str, Any]]:
    """Seconds to the first text and to the end, and the last event."""
    before, after = "".join(LINES[:HERE]), "".join(LINES[HERE:])
    body = {"input_prefix": before, "input_suffix": after, "prompt": typed, "stream": True}
    began, first, event = time.perf_counter(), 0.0, b""
    async with it.http.post("/infill", json=body | {"n_predict": 32, **fields}) as response:
        assert response.status == 200
        async for line in response.content:
            if line.startswith(b"data: "):
                event = line[6:]
                first = first or time.perf_counter() - began
    return first, time.perf_counter() - began, json.loads(event)


def test_the_first_text_comes_at_once_and_so_does_the_end(
    tmp_path: Path, real_pair: Resolved
) -> None:
    """A few letters more each time; then a deadline, and somebody who leaves."""
    house = House(tmp_path, real_pair.target_path)
    settings = {"directory": str(real_pair.target_path.parent), "default": real_pair.name}
    house.configure(models=settings, engine={"context": 8192, "slots": 2})

    async def scene() -> None:
        async with run_daemon(house, COMMAND) as it:
            await fill(it, "")
            warm = [await fill(it, TYPED[:end]) for end in range(8, len(TYPED), 3)]
            late = [await fill(it, TYPED, t_max_predict_ms=1) for _ in range(3)]
            left = [await leave(it) for _ in range(3)]
        read = [event["timings"]["prompt_n"] for _, _, event in warm]
        figures = {
            "tokens": warm[0][2]["timings"]["prompt_n"] + warm[0][2]["timings"]["cache_n"],
            "read_anew": max(read),
            "first_text_ms": [round(first * 1000) for first, _, _ in warm],
            "deadline_tokens": [event["timings"]["predicted_n"] for _, _, event in late],
            "free_after_leaving_ms": [round(seconds * 1000) for seconds in left],
        }
        print(json.dumps(figures))  # noqa: T201  the report
        assert figures["tokens"] > 900
        assert max(read) < 16
        assert min(first for first, _, _ in warm) <= FIRST_TEXT_SECONDS
        assert max(figures["deadline_tokens"]) < 32
        assert min(left) <= FIRST_TEXT_SECONDS

    asyncio.run(scene())


async def leave(it: Daemon) -> float:
    """Seconds from closing the connection in the middle of an answer until nobody is served."""
    async with it.streaming("Count to a thousand.") as stream:
        await stream.next("data: ")
    began = time.perf_counter()
    await it.until(
        lambda: all(not one.requests for one in it.server.supervisor.pool.models.values())
    )
    return time.perf_counter() - began
