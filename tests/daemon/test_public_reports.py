"""Requests that failed on other servers, by public reports, are answered here by a real worker."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import aiohttp
import tiny
from daemon.reported import REPORTS, Report

from localspec_daemon.supervisor.worker import COMMAND

TEMPLATE = (
    "{% if tools %}{{ tools | tojson }}{% endif %}{% for message in messages %}"
    "{% if message.role == 'system' and not loop.first %}"
    "{{ raise_exception('System message must be at the beginning.') }}{% endif %}"
    "{% if message.role not in ['system', 'user', 'assistant', 'tool'] %}"
    "{{ raise_exception('Unexpected message role.') }}{% endif %}"
    "<|im_start|>{{ message.role }}\n{{ message.content or '' }}"
    "{% for call in message.tool_calls %}{{ call.function | tojson }}{% endfor %}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""As strict as those of the reports are."""


async def answer(http: aiohttp.ClientSession, report: Report) -> tuple[int, Any]:
    """Status and JSON, or the events of a stream; the last of a chat's is a mark."""
    async with http.post(report.path, json=report.body) as response:
        text = await response.text()
    if not report.body.get("stream") or response.status != report.status:
        return response.status, json.loads(text)
    lines = [line.removeprefix("data: ") for line in text.split("\n") if line.startswith("data: ")]
    return response.status, [json.loads(line) for line in lines if line != "[DONE]"]


async def wrong(http: aiohttp.ClientSession) -> list[str]:
    """The reports that hold here too."""
    found = []
    for report in REPORTS:
        status, told = await answer(http, report)
        try:
            holds = status == report.status and report.holds(told)
        except (KeyError, IndexError, TypeError, ValueError) as error:
            holds, told = False, f"{error!r} in {told}"
        if not holds:
            found.append(f"{report.name}: {status} {str(told)[:800]}")
    return found


def test_what_was_reported_elsewhere_works_here(harness: Any, daemon: Any) -> None:
    """Each by one worker, which none of them ends."""
    (harness.models / "alpha.gguf").unlink()
    tiny.build(harness.models / "alpha.gguf", template=TEMPLATE)
    harness.configure(
        engine={"context": 4096, "slots": 2, "exactness": "standard"}, sampling={"seed": 1}
    )

    async def scene() -> None:
        async with daemon(harness, COMMAND) as it:
            found = await wrong(it.http)
            assert found == [], "\n".join(found)
            assert not it.model().crashes.times

    asyncio.run(scene())
