"""Real processes, real sockets, a scripted worker: what the daemon does when workers misbehave."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from pathlib import Path
from typing import Any

from localspec_daemon.supervisor.pool import KILL_SECONDS
from localspec_daemon.supervisor.restarts import INACTIVE_SECONDS, PATIENCE_SECONDS

ROOM_FOR_ONE = 100 << 20
"""Bytes: a process with a tiny model is counted as 75 MB."""


def test_an_answer_comes_whole_or_as_a_stream(harness: Any, daemon: Any) -> None:
    """Both have the same text, and the first request loads the model."""

    async def scene() -> None:
        async with daemon(harness) as it:
            status, answer = await it.ask("say one two three")
            assert status == 200
            assert answer["choices"][0]["message"]["content"] == "onetwothree"
            async with it.streaming("say one two three") as stream:
                lines = await stream.rest()
            chunks = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
            texts = [chunk["choices"][0]["delta"].get("content", "") for chunk in chunks]
            assert "".join(texts) == "onetwothree"
            assert lines[-1] == "data: [DONE]"

    asyncio.run(scene())


def test_a_request_that_kills_ends_with_an_error_and_the_next_one_is_answered(
    harness: Any, daemon: Any
) -> None:
    """A stream gets a last error event, others a status; then a new worker starts."""

    async def scene() -> None:
        async with daemon(harness) as it:
            await it.ask("say hello")
            old = it.model().worker.pid
            async with it.streaming("crash") as stream:
                ended = (await stream.rest())[-1]
            assert "SIGSEGV" in ended
            assert ended.startswith('data: {"error":{')
            status, answer = await it.ask("say again")
            assert (status, answer["choices"][0]["message"]["content"]) == (200, "again")
            assert it.model().worker.pid != old
            status, answer = await it.ask("leave")
            assert (status, answer["error"]["code"]) == (422, "poisonous")
            models = (await it.get("/v1/status"))["models"]
            assert models[0]["last_crash"] == "exit code 0"

    asyncio.run(scene())


def test_a_worker_killed_from_outside_is_replaced_before_anybody_asks(
    harness: Any, daemon: Any
) -> None:
    """After the first crash a new worker starts at once, before the next request."""

    async def scene() -> None:
        async with daemon(harness) as it:
            await it.ask("say hello")
            old = it.model().worker
            os.kill(old.pid, signal.SIGKILL)
            await it.until(lambda: it.model().worker not in {None, old})
            assert (await it.ask("say hello"))[0] == 200

    asyncio.run(scene())


def test_a_worker_that_sends_rubbish_is_killed(harness: Any, daemon: Any) -> None:
    """An invalid frame ends the worker, not the daemon."""

    async def scene() -> None:
        async with daemon(harness) as it:
            status, answer = await it.ask("rubbish")
            assert status == 422
            assert "killed after A frame does not fit the protocol" in answer["error"]["message"]
            assert (await it.ask("say hello"))[0] == 200

    asyncio.run(scene())


def test_crashing_kernels_are_avoided_from_the_second_try_on(harness: Any, daemon: Any) -> None:
    """A fatal signal during loading leads to one try with safe kernels, which are kept."""
    harness.add("mortal")

    async def scene() -> None:
        async with daemon(harness) as it:
            assert (await it.ask("say hello", model="mortal"))[0] == 200
            assert it.model("mortal").worker.ready.safe_kernels
            os.kill(it.model("mortal").worker.pid, signal.SIGKILL)
            await it.until(lambda: not it.model("mortal").worker)
            assert (await it.ask("say hello", model="mortal"))[0] == 200
            assert len(it.model("mortal").crashes.times) == 2

    asyncio.run(scene())


def test_a_load_without_memory_is_followed_by_smaller_plans(harness: Any, daemon: Any) -> None:
    """llama.cpp reports it before it aborts, so its CPU kernels are not blamed."""
    harness.add("hungry")

    async def scene() -> None:
        async with daemon(harness) as it:
            assert (await it.ask("say hello", model="hungry"))[0] == 200
            assert it.model("hungry").fallbacks.smaller == 2
            assert not it.model("hungry").fallbacks.safe_kernels

    asyncio.run(scene())


def test_a_model_that_keeps_crashing_is_given_up_while_others_serve(
    harness: Any, daemon: Any
) -> None:
    """After more than three crashes within a minute the model fails with the reason."""
    harness.add("doomed")

    async def scene() -> None:
        async with daemon(harness) as it:
            for _ in range(3):
                status, answer = await it.ask("say hello", model="doomed")
                assert (status, answer["error"]["code"]) == (502, "worker_crashed")
            status, answer = await it.ask("say hello", model="doomed")
            assert "crashed 4 times" in answer["error"]["message"]
            assert "SIGILL" in answer["error"]["message"]
            assert it.model("doomed").state == "failed"
            assert (await it.ask("say hello"))[0] == 200

    asyncio.run(scene())


def test_a_refused_model_says_why(harness: Any, daemon: Any) -> None:
    """A refusal is the client's error, and a later request may load again."""
    harness.add("refused")

    async def scene() -> None:
        async with daemon(harness) as it:
            status, answer = await it.ask("say hello", model="refused")
            assert (status, answer["error"]["code"]) == (422, "bad_gguf")
            assert answer["error"]["fix"] == "Laugh."
            (harness.models / "broken.gguf").write_bytes(b"GGUF, or so it says")
            status, answer = await it.ask("say hello", model="broken")
            assert (status, answer["error"]["code"]) == (422, "bad_gguf")
            assert not it.model("broken").resident

    asyncio.run(scene())


def test_a_signal_that_is_no_fault_blames_no_kernels(harness: Any, daemon: Any) -> None:
    """The load fails, and the next one has the fast kernels."""
    harness.add("stopped")

    async def scene() -> None:
        async with daemon(harness) as it:
            status, answer = await it.ask("say hello", model="stopped")
            assert (status, answer["error"]["code"]) == (502, "worker_crashed")
            assert "SIGUSR1" in answer["error"]["message"]
            assert not it.model("stopped").fallbacks.safe_kernels

    asyncio.run(scene())


def test_safe_kernels_are_forgotten_with_the_worker(harness: Any, daemon: Any) -> None:
    """After an idle unload the fast kernels are tried again."""
    harness.add("mortal")

    async def scene() -> None:
        async with daemon(harness, tick_seconds=3600) as it:
            await it.ask("say hello", model="mortal")
            model = it.model("mortal")
            assert model.fallbacks.safe_kernels
            it.server.supervisor.pool.tick(asyncio.get_running_loop().time() + 601)
            assert not model.fallbacks.safe_kernels
            await it.until(lambda: not model.resident)

    asyncio.run(scene())


def _gated(harness: Any) -> Path:
    """The default model's load waits until this FIFO is opened."""
    harness.add("gated")
    harness.configure(models={"default": "gated"}, engine={"slots": 1})
    fifo = Path(harness.models / "gated.gguf.fifo")
    os.mkfifo(fifo)
    return fifo


def test_a_stopped_load_is_noticed(harness: Any, daemon: Any) -> None:
    """After a minute of SIGSTOP the load is killed, and waiting requests get an error."""
    _gated(harness)
    others = _children()

    async def scene() -> None:
        async with (
            daemon(harness, tick_seconds=3600) as it,
            it.streaming("say hello", return_progress=True) as stream,
        ):
            await stream.next(": loading target 42%")
            (pid,) = _children() - others
            os.kill(pid, signal.SIGSTOP)
            now = asyncio.get_running_loop().time()
            for second in range(int(INACTIVE_SECONDS) + 2):
                it.server.supervisor.pool.tick(now + second)
            assert "killed after standing still for 6" in (await stream.rest())[-1]
            assert not it.model("gated").fallbacks.safe_kernels

    asyncio.run(scene())


def _children() -> set[int]:
    """Returns process ids of this process's children: workers, and those of other tests."""
    return {int(pid) for pid in Path("/proc/thread-self/children").read_text().split()}


def test_unloading_ends_a_load(harness: Any, daemon: Any) -> None:
    """Also a stopped one: waiting requests get an error, and the process ends."""
    fifo = _gated(harness)
    others = _children()

    async def scene() -> None:
        async with daemon(harness) as it:
            async with it.streaming("say hello", return_progress=True) as stream:
                await stream.next(": loading target 42%")
                model = it.model("gated")
                queued = asyncio.create_task(it.ask("say hello"))
                await it.until(lambda: model.requests == 2)
                (pid,) = _children() - others
                os.kill(pid, signal.SIGSTOP)
                assert (await it.post("/v1/models/unload", {}))[0] == 200
                assert "was unloaded while it was loading" in (await stream.rest())[-1]
            assert (await queued)[1]["error"]["code"] == "loading"
            await it.until(lambda: not model.resident)
            assert pid not in _children()
            again = asyncio.create_task(it.ask("say hello"))
            await asyncio.to_thread(fifo.write_bytes, b"")
            assert (await again)[0] == 200

    asyncio.run(scene())


def test_loading_is_visible_to_who_waits_and_to_who_asks(harness: Any, daemon: Any) -> None:
    """The stream has comments, the status a stage, health 503; then the answer comes."""
    fifo = _gated(harness)

    async def scene() -> None:
        async with daemon(harness) as it:
            async with it.streaming("say hello", return_progress=True) as stream:
                await stream.next(": loading target 42%")
                stage = (await it.get("/v1/status"))["loading"]
                assert stage == {"model": "gated", "stage": "target", "fraction": 0.42}
                async with it.http.get("/health") as response:
                    assert response.status == 503
                    assert response.headers["Retry-After"]
                    error = json.loads(await response.read())["error"]
                    assert (error["code"], error["message"]) == (503, "Loading model")
                await asyncio.to_thread(fifo.write_bytes, b"")
                assert (await stream.rest())[-1] == "data: [DONE]"
            assert await it.get("/health") == {"status": "ok"}

    asyncio.run(scene())


def test_a_client_that_leaves_is_cancelled_in_every_phase(harness: Any, daemon: Any) -> None:
    """Streaming, not streaming, in the queue, waiting for the model: nothing is left."""
    harness.configure(engine={"slots": 2})

    async def scene() -> None:
        async with daemon(harness) as it:
            async with it.streaming("wait") as stream:
                await stream.next("data: ")
                whole = asyncio.create_task(it.ask("wait"))
                await it.until(lambda: it.model().requests == 2)
                queued = asyncio.create_task(it.ask("wait"))
                await it.until(lambda: it.model().requests == 3)
                assert it.model().queued == 1
                queued.cancel()
                await it.until(lambda: it.model().requests == 2)
                whole.cancel()
                await it.until(lambda: it.model().requests == 1)
            await it.until(lambda: it.model().requests == 0)
            _, answer = await it.ask("cancelled")
            assert answer["choices"][0]["message"]["content"] == "2"

    asyncio.run(scene())


def test_a_full_queue_says_so_and_the_next_turn_comes(harness: Any, daemon: Any) -> None:
    """Over slots and queue: 429 with Retry-After. A queued request gets the next free slot."""
    harness.configure(engine={"slots": 1}, server={"max_queue": 1})

    async def scene() -> None:
        async with daemon(harness) as it:
            async with it.streaming("wait") as stream:
                await stream.next("data: ")
                waiting = asyncio.create_task(it.ask("say patience"))
                await it.until(lambda: it.model().requests == 2)
                body = {"messages": [{"role": "user", "content": "say no"}]}
                async with it.http.post("/v1/chat/completions", json=body) as response:
                    assert response.status == 429
                    assert int(response.headers["Retry-After"]) >= 1
                    assert json.loads(await response.read())["error"]["code"] == "busy"
            status, answer = await waiting
            assert (status, answer["choices"][0]["message"]["content"]) == (200, "patience")

    asyncio.run(scene())


def test_who_waits_in_the_queue_survives_a_crash(harness: Any, daemon: Any) -> None:
    """A queued request gets the next worker."""
    harness.configure(engine={"slots": 1})

    async def scene() -> None:
        async with daemon(harness) as it:
            async with it.streaming("wait") as stream:
                await stream.next("data: ")
                waiting = asyncio.create_task(it.ask("say alive"))
                await it.until(lambda: it.model().requests == 2)
                os.kill(it.model().worker.pid, signal.SIGABRT)
                assert "SIGABRT" in await stream.next(": going on")
                assert not waiting.done()
            assert (await waiting)[1]["choices"][0]["message"]["content"] == "alive"

    asyncio.run(scene())


def test_a_hung_worker_is_killed_and_replaced(harness: Any, daemon: Any) -> None:
    """Health reports it first; then its stream continues on a new worker.

    One that outlived even SIGKILL would be a reason to restart the daemon.
    """

    async def scene() -> None:
        async with daemon(harness, tick_seconds=3600) as it:
            pool, clock = it.server.supervisor.pool, asyncio.get_running_loop().time
            async with it.streaming("wait") as stream:
                await stream.next("data: ")
                old = it.model().worker
                now = clock()
                for second in range(int(PATIENCE_SECONDS * 0.7)):
                    pool.tick(now + second)
                async with it.http.get("/health") as response:
                    assert response.status == 503
                assert pool.can_recover(clock() + 3600)
                for second in range(int(PATIENCE_SECONDS * 0.7), int(PATIENCE_SECONDS) + 3):
                    pool.tick(now + second)
                assert pool.can_recover(clock())
                assert not pool.can_recover(clock() + KILL_SECONDS)
                assert "no sign of life" in await stream.next(": going on")
            await it.until(lambda: it.model().worker not in {None, old})
            assert pool.can_recover(clock() + 3600)
            assert await it.get("/health") == {"status": "ok"}

    asyncio.run(scene())


def test_a_worker_that_cannot_be_started_is_an_error_of_the_request(
    harness: Any, daemon: Any
) -> None:
    """Without even a process: 500 with the reason, and the daemon goes on."""

    async def scene() -> None:
        async with daemon(harness, ["/nowhere/python"]) as it:
            status, answer = await it.ask("say hello")
            assert (status, answer["error"]["code"]) == (500, "engine_error")
            assert "/nowhere/python" in answer["error"]["message"]
            assert not it.model().resident
            assert (await it.get("/v1/status"))["models"][0]["state"] == "failed"

    asyncio.run(scene())


def test_a_daemon_may_end_at_any_moment_of_a_load(harness: Any, daemon: Any) -> None:
    """Its process and its sockets are gone afterwards, at any progress of the load."""

    async def scene(turns: int) -> None:
        async with daemon(harness) as it:
            await it.post("/v1/models/load", {})
            for _ in range(turns):
                await asyncio.sleep(0)

    for turns in range(0, 60, 4):
        asyncio.run(scene(turns))


def test_the_least_recently_used_model_makes_room(harness: Any, daemon: Any) -> None:
    """With memory for one, an idle model is evicted at once, a busy one after its last request."""
    harness.add("beta")
    harness.configure(server={"memory_bytes": ROOM_FOR_ONE})

    async def scene() -> None:
        async with daemon(harness) as it:
            await it.ask("say hello")
            async with it.streaming("say hello", model="beta", return_progress=True) as stream:
                told = await stream.next(": beta loaded in")
                assert told.endswith("made room by unloading alpha")
            assert it.model("alpha").state == "unloaded"
            async with it.streaming("wait", model="beta") as stream:
                await stream.next("data: ")
                async with it.streaming("say hi", model="alpha", return_progress=True) as waiting:
                    assert await waiting.next(": w") == ": waiting for memory: beta is answering"
                    assert "beta" not in it.server.supervisor.pool.models
                    await stream.response.release()
                    assert (await waiting.rest())[-1] == "data: [DONE]"

    asyncio.run(scene())


def test_an_idle_model_is_unloaded_after_keep_alive(harness: Any, daemon: Any) -> None:
    """Its process ends, a busy one stays, and the next request loads it again."""
    harness.configure(server={"keep_alive": "10m"})

    async def scene() -> None:
        async with daemon(harness, tick_seconds=3600) as it:
            pool = it.server.supervisor.pool
            await it.ask("say hello")
            worker = it.model().worker
            later = asyncio.get_running_loop().time() + 601
            async with it.streaming("wait") as stream:
                await stream.next("data: ")
                pool.tick(later)
                assert it.model().worker is worker
            await it.until(lambda: it.model().requests == 0)
            pool.tick(later)
            await it.until(lambda: not it.model().resident)
            assert worker.exited.result().goodbye
            assert (await it.ask("say hello"))[0] == 200

    asyncio.run(scene())
