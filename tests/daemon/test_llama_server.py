"""A real upstream: llama-server of the same llama.cpp (`make llama-server`), and its death."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import tiny
from worker_hosts import free_address

LLAMA_SERVER = Path(sys.executable).with_name("llama-server")
ASKED: dict[str, Any] = {
    "model": "far", "temperature": 0, "max_tokens": 24,
    "logit_bias": {str(token): 40 for token in range(32, 127)},  # plain characters alone
}  # fmt: skip

pytestmark = pytest.mark.skipif(
    not LLAMA_SERVER.exists(), reason="there is no llama-server: make llama-server"
)


@pytest.fixture
def llama(tmp_path: Path) -> Iterator[tuple[str, subprocess.Popen[bytes]]]:
    """A llama-server with a tiny model, which may still be loading: its address and process."""
    model = tiny.build(tmp_path / "far.gguf", seed=5)
    address = free_address()
    host, _, port = address.partition(":")
    command = [
        str(LLAMA_SERVER),
        "--model",
        str(model),
        "--host",
        host,
        "--port",
        port,
        "--threads",
        "1",
    ]
    command += ["--ctx-size", "8192", "--parallel", "2", "--threads", "1", "--alias", "far"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        yield f"http://{address}", process
        process.kill()


async def loaded(address: str, process: subprocess.Popen[bytes]) -> None:
    """Waits until it answers."""
    async with aiohttp.ClientSession() as http:
        while process.poll() is None:
            try:
                async with http.get(f"{address}/health") as response:
                    if response.status == 200:
                        return
            except aiohttp.ClientError:
                await asyncio.to_thread(_moment, process)
    raise AssertionError(f"exit code {process.returncode}")


def _moment(process: subprocess.Popen[bytes]) -> None:
    """A pause that ends early when the process does."""
    try:
        process.wait(0.05)
    except subprocess.TimeoutExpired:
        return


def test_a_real_upstream_answers_as_if_it_had_been_asked_itself(
    harness: Any, daemon: Any, llama: Any
) -> None:
    """Chats and completions, whole and streamed, are relayed, and so are its refusals."""
    address, process = llama
    harness.configure(**{"upstream.desk": {"url": f"{address}/v1", "models": ["far"]}})

    async def direct(path: str, body: Any) -> Any:
        async with aiohttp.ClientSession() as http, http.post(address + path, json=body) as got:
            return await got.json()

    async def scene() -> None:
        async with daemon(harness) as it:
            await loaded(address, process)
            chat = ASKED | {"messages": [{"role": "user", "content": "def add(a, b):"}]}
            plain = ASKED | {"prompt": "def add(a, b):"}
            for path, body in (("/v1/chat/completions", chat), ("/v1/completions", plain)):
                status, answer = await it.post(path, body)
                asked = await direct(path, body)
                assert status == 200
                assert answer["choices"] == asked["choices"]
                assert answer["usage"]["completion_tokens"] == 24
            whole = (await it.post("/v1/chat/completions", chat))[1]["choices"][0]["message"]
            async with it.streaming("def add(a, b):", **ASKED) as stream:
                lines = await stream.rest()
            assert lines[-1] == "data: [DONE]"
            chunks = [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]
            parts = [chunk["choices"][0]["delta"].get("content") for chunk in chunks]
            assert "".join(filter(None, parts)) == whole["content"]
            status, answer = await it.ask("x", model="far", temperature="hot")
            assert (status, answer["error"]["code"]) in {
                (400, "invalid_request"), (502, "upstream_failed")
            }  # fmt: skip

    asyncio.run(scene())


def test_an_upstream_that_is_killed_in_mid_stream_ends_it_and_is_named_afterwards(
    harness: Any, daemon: Any, llama: Any
) -> None:
    """The stream gets an error event, later requests 503; local models still answer."""
    address, process = llama
    harness.configure(**{"upstream.desk": {"url": f"{address}/v1", "models": ["far"]}})

    async def scene() -> None:
        async with daemon(harness) as it:
            await loaded(address, process)
            fields = ASKED | {"max_tokens": 3000, "ignore_eos": True}
            async with it.streaming("tell me", **fields) as stream:
                await stream.next("data:")
                process.kill()
                lines = await stream.rest()
            error = json.loads(lines[-1].removeprefix("data: "))["error"]
            assert error["code"] == "upstream_failed"
            assert "upstream desk" in error["message"]
            status, answer = await it.ask("again", model="far")
            assert (status, answer["error"]["code"]) == (503, "upstream_unavailable")
            assert address in answer["error"]["message"]
            assert (await it.ask("say hello"))[0] == 200

    asyncio.run(scene())
