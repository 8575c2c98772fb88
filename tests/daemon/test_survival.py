"""Streams outlive workers: real processes and sockets, a scripted worker that dies on demand."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
from typing import Any

import pytest
import tiny


def texts(lines: list[str]) -> str:
    """Returns the text of a stream."""
    chunks = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
    return "".join(chunk["choices"][0]["delta"].get("content", "") for chunk in chunks)


def test_an_answer_goes_on_over_three_workers(
    harness: Any, daemon: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Each word comes once, whole or as a stream, whose comments give the reasons of pauses."""
    caplog.set_level("INFO")

    async def scene() -> None:
        async with daemon(harness) as it:
            async with it.streaming("die one two three") as stream:
                lines = await stream.rest()
            assert texts(lines) == "onetwothree"
            assert lines[-1] == "data: [DONE]"
            told = [line for line in lines if line.startswith(": going on")]
            assert told == [": going on with another worker after SIGKILL"] * 2
            it.server.supervisor.pool.retire(it.model())
            status, answer = await it.ask("die one two")
            assert (status, answer["choices"][0]["message"]["content"]) == (200, "onetwo")
            assert answer["usage"]["completion_tokens"] == 2
            async with it.http.get("/metrics") as response:
                assert 'localspec_resumes_total{model="alpha"} 3.0' in await response.text()

    asyncio.run(scene())
    assert "resumes=2" in caplog.text


@pytest.mark.parametrize("kind", ["target", "adapter"])
def test_an_answer_never_goes_on_with_another_file(harness: Any, daemon: Any, kind: str) -> None:
    """One was replaced under its name, and then the worker died; the next question is answered."""
    harness.add("swapped")
    adapter = tiny.lora(harness.root / "style.gguf", seed=7)
    harness.configure(models={"adapters": {"swapped": {str(adapter): 1.0}}})
    file = adapter if kind == "adapter" else harness.models / "swapped.gguf"

    async def scene() -> None:
        async with daemon(harness) as it:
            async with it.streaming("wait", model="swapped") as stream:
                await stream.next("data: {")
                (other := file.with_suffix(".new")).write_bytes(file.read_bytes())
                other.replace(file)
                os.kill(it.model("swapped").worker.pid, signal.SIGKILL)
                lines = await stream.rest()
            error = json.loads(lines[-1][6:])["error"]
            assert error["code"] == "model_error"
            assert "was replaced while it answered" in error["message"]
            assert (await it.ask("say hello", model="swapped"))[0] == 200

    asyncio.run(scene())


def test_an_answer_goes_on_with_another_draft(harness: Any, daemon: Any) -> None:
    """The target says the same with any of them."""
    harness.add("small")
    (harness.models / "drafts.json").write_text('{"alpha": "small"}')
    file = harness.models / "small.gguf"

    async def scene() -> None:
        async with daemon(harness) as it, it.streaming("wait") as stream:
            await stream.next("data: {")
            (other := file.with_suffix(".new")).write_bytes(file.read_bytes())
            other.replace(file)
            os.kill(it.model().worker.pid, signal.SIGKILL)
            assert "going on" in await stream.next(": going on")

    asyncio.run(scene())


def test_a_third_death_is_the_end_of_an_answer(harness: Any, daemon: Any) -> None:
    """Two resumes are the limit; a request killed only from outside is not refused later."""

    async def scene() -> None:
        async with daemon(harness) as it:
            async with it.streaming("die one two three four") as stream:
                lines = await stream.rest()
            assert json.loads(lines[-1][6:])["error"]["code"] == "worker_crashed"
            assert (await it.ask("say hello"))[0] == 200
            assert it.model().fallbacks.smaller == 0

    asyncio.run(scene())


def test_a_broken_file_spoils_no_request_for_others(harness: Any, daemon: Any) -> None:
    """Its requests are refused there, but served by other models and by a replaced file."""
    harness.add("brittle")

    async def scene() -> None:
        async with daemon(harness) as it:
            status, answer = await it.ask("say hello", model="brittle")
            assert (status, answer["error"]["code"]) == (422, "poisonous")
            assert (await it.ask("say hello", model="brittle"))[0] == 422
            assert it.model("brittle").crashes.streak == 1
            assert (await it.ask("say hello"))[0] == 200
            refused = it.server.supervisor.pool.refused_requests
            assert len(refused) == 1
            os.utime(harness.models / "brittle.gguf", ns=(1, 1))
            await it.server.supervisor.reload(changed=False)
            await it.ask("say hello", model="brittle")
            assert len(refused) == 2

    asyncio.run(scene())


def test_a_poisonous_request_is_found_refused_and_punishes_nobody(
    harness: Any, daemon: Any
) -> None:
    """Of three streams one kills the worker: it is refused from then on, the others continue."""
    harness.configure(engine={"slots": 4})

    async def scene() -> None:
        async with daemon(harness) as it, contextlib.AsyncExitStack() as stack:
            others = [await stack.enter_async_context(it.streaming("wait")) for _ in range(2)]
            for other in others:
                await other.next("data: ")
            async with it.streaming("crash") as stream:
                lines = await stream.rest()
            error = json.loads(lines[-1][6:])["error"]
            assert error["code"] == "poisonous"
            assert "SIGSEGV" in error["message"]
            for other in others:
                assert await other.next(": going on")
            assert (await it.ask("say hello"))[0] == 200
            worker = it.model().worker
            assert (await it.ask("crash"))[0] == 422
            assert it.model().worker is worker
            assert len(it.model().crashes.times) == 1
            assert it.model().requests == 2

    asyncio.run(scene())


def test_an_answer_outlives_a_load_that_is_killed(harness: Any, daemon: Any) -> None:
    """As often as a model may crash, without safe kernels or a smaller plan afterwards."""
    harness.add("hunted")
    shots = harness.models / "hunted.gguf.shots"
    shots.write_bytes(b"")

    async def scene() -> None:
        async with daemon(harness) as it:
            async with it.streaming("wait", model="hunted") as stream:
                await stream.next("data: ")
                shots.write_bytes(b"..")
                os.kill(it.model("hunted").worker.pid, signal.SIGKILL)
                await stream.next(": going on")
                await it.until(lambda: it.model("hunted").worker)
                assert len(it.model("hunted").crashes.times) == 3
                assert not it.model("hunted").fallbacks.safe_kernels
                assert it.model("hunted").fallbacks.smaller == 0
            assert (await it.ask("say hello", model="hunted"))[0] == 200

    asyncio.run(scene())


def test_a_replay_is_asked_again_and_may_be_poison(harness: Any, daemon: Any) -> None:
    """A replay is resumed and refused as a request is."""

    async def scene() -> None:
        async with daemon(harness) as it:
            for _ in range(2):
                status, told = await it.post("/v1/replay", {"prompt": "crash", "text": "a"})
                assert (status, told["error"]["code"]) == (422, "poisonous")
            assert len(it.model().crashes.times) == 1

    asyncio.run(scene())
