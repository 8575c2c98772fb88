"""Streams of each dialect show progress while a long prompt is read; the answer is unchanged."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import anthropic
import httpx
import httpx2
import ollama
import openai
import scripted_model
from serving import DaemonHome, run_daemon

from localspec_daemon.supervisor.worker import COMMAND

LONG = " says that a long prompt takes a while to read." * 70
SILENCE_SECONDS = 0.001
"""A hundredth of the time in which a model reads that, letter by letter."""

SIGNS = {
    "/v1/chat/completions": ": reading the prompt",
    "/v1/messages": "event: ping",
    "/v1/responses": "event: response.in_progress",
    "/api/chat": "{",
}
"""How the signs of life of each kind of stream begin."""


def body(path: str, text: str) -> dict[str, Any]:
    """Request that opens such a stream."""
    if path == "/v1/responses":
        return {"model": "alpha", "input": text, "stream": True}
    messages = [{"role": "user", "content": text}]
    more = {"max_tokens": 9} if path == "/v1/messages" else {}
    return {"model": "alpha", "messages": messages, "stream": True} | more


def readers(stack: ExitStack, socket: str) -> dict[str, Callable[..., str]]:
    """Parsers of each client for it."""
    transport = httpx2.HTTPTransport(uds=socket)
    http = stack.enter_context(openai.DefaultHttpxClient(transport=transport))
    one = openai.OpenAI(base_url="http://localspec/v1", api_key="none", http_client=http)
    other = anthropic.Anthropic(base_url="http://localspec", api_key="none", http_client=http)
    third = ollama.Client("http://localspec", transport=httpx.HTTPTransport(uds=socket))
    stack.enter_context(third)

    def chat(**asked: Any) -> str:
        chunks = one.chat.completions.create(**asked)
        return "".join(chunk.choices[0].delta.content or "" for chunk in chunks)

    def messages(*, stream: bool, **asked: Any) -> str:
        with other.messages.stream(**asked) as events:
            return events.get_final_text() if stream else ""

    def responses(*, stream: bool, **asked: Any) -> str:
        with one.responses.stream(**asked) as events:
            return events.get_final_response().output_text if stream else ""

    def lines(**asked: Any) -> str:
        return "".join(part.message.content or "" for part in third.chat(**asked))

    return dict(zip(SIGNS, (chat, messages, responses, lines), strict=True))


def test_streams_send_keepalives_that_clients_accept(tmp_path: Path) -> None:
    """Some before the first text, on the wire; then through the clients' own parsers."""
    harness = DaemonHome(tmp_path, scripted_model.build(tmp_path / "scripted.gguf"))
    harness.add("alpha")
    harness.configure(engine={"context": 4096, "slots": 1})

    async def scene() -> None:
        async with run_daemon(harness, COMMAND, silence_seconds=SILENCE_SECONDS) as it:
            read = readers(stack, str(harness.socket))
            for path, sign in SIGNS.items():
                async with it.http.post(path, json=body(path, path + LONG)) as response:
                    lines = (await response.text()).splitlines()
                assert sum(line.startswith(sign) for line in lines) > 3, (path, lines)
                asked = body(path, f"client of {path}{LONG}")
                assert await asyncio.to_thread(read[path], **asked) == "".join(
                    scripted_model.SPEECH
                ), path

    with ExitStack() as stack:
        asyncio.run(scene())
