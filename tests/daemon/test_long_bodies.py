"""Long bodies are parsed beside the event loop, whatever they are sent to."""

from __future__ import annotations

import asyncio
import json
import sys
from types import FrameType
from typing import Any

import msgspec
import pytest

from localspec_daemon.http.body_limits import LONG_BYTES
from localspec_daemon.http.routes import TABLE

PATHS = [(each.method, each.path) for each in TABLE if each.takes]


@pytest.mark.timeout(120)
def test_no_long_body_is_parsed_on_the_event_loop(harness: Any, daemon: Any) -> None:
    """Of every path that takes one, a model on an upstream included."""
    upstream = {"url": "http://127.0.0.1:1/v1", "models": ["far"]}
    harness.configure(**{"upstream.rack": upstream})
    here: set[str] = set()
    path = ""

    def watch(frame: FrameType, event: str, called: Any) -> None:
        if event == "c_call" and called is msgspec.json.decode:
            texts = [text for text in frame.f_locals.values() if isinstance(text, bytes)]
            if any(len(text) > LONG_BYTES for text in texts):
                here.add(path)

    async def scene() -> None:
        nonlocal path
        async with daemon(harness) as it:
            for model in ("alpha", "far"):
                body = json.dumps({"model": model, "padding": "x" * 2 * LONG_BYTES})
                for method, template in PATHS:
                    path = f"{method} {template}"
                    url = template.replace("{id}", "0")
                    sys.setprofile(watch)
                    try:
                        async with it.http.request(method, url, data=body) as response:
                            await response.read()
                    finally:
                        sys.setprofile(None)

    asyncio.run(scene())
    assert not here
