"""The process that waits for a Load: when there is one, which load takes it, and how it ends."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from machine import children_of
from serving import SCRIPTED

from localspec.cli.launch import Watch
from localspec.config import Config
from localspec.errors import EngineError
from localspec.wire.messages import Load
from localspec_daemon.supervisor.installation import Installation
from localspec_daemon.supervisor.worker import COMMAND, Worker
from localspec_daemon.supervisor.workers import Workers

UNHEARD = """
import os, socket, sys
if socket.socket(fileno=int(sys.argv[3])).recv(1):
    with open(sys.argv[1], "a") as loads:
        loads.write(".")
os._exit(7)
"""
"""A worker that reads its Load, counts it in a file, and ends without a word."""


class Scene:
    """Workers without a daemon, what happens to them, and whether a process has to wait then."""

    def __init__(self, gguf: Path, command: Sequence[str] = SCRIPTED) -> None:
        self.load = Load("alpha", str(gguf), None, Config())
        self.workers = Workers(command)
        self.living: list[Worker] = []
        self.waits = False

    def opens(self) -> None:
        """A process is kept waiting from now on."""
        self.workers.open()
        self.waits = True

    async def pid(self) -> int | None:
        """The process that waits, once it is started; None if there is none."""
        return (await self.workers.waiting).pid if self.workers.waiting else None

    async def loads(self) -> None:
        """A load takes the process that waits."""
        waiting = await self.pid()
        worker = await self.workers.spawn(self.load)
        assert waiting in {None, worker.pid}
        await worker.loaded
        self.living.append(worker)
        self.waits = False

    async def unloads(self) -> None:
        """A worker ends in order."""
        if self.living:
            assert (await self.living.pop().quit()).goodbye
            self.waits = not self.living

    async def crashes(self) -> None:
        """A worker is killed from outside."""
        if self.living:
            worker = self.living.pop()
            os.kill(worker.pid, signal.SIGKILL)
            await worker.exited
            self.waits = not self.living

    async def dies(self) -> None:
        """The process that waits is killed, and that is noticed."""
        if self.workers.waiting:
            process = await self.workers.waiting
            os.kill(process.pid, signal.SIGKILL)
            await process.ended
            self.waits = False

    async def dies_unread(self) -> None:
        """The process that waits is killed when it was sent a Load that it has not read."""
        if self.workers.waiting:
            os.kill((await self.workers.waiting).pid, signal.SIGSTOP)
            worker = await self.workers.spawn(self.load)
            os.kill(worker.pid, signal.SIGKILL)
            await worker.exited
            assert worker.died_unheard
            self.waits = True

    async def happen(self, event: str) -> None:
        """Let one event happen, by its name, and check which processes there are."""
        happens: Callable[[], Coroutine[Any, Any, None]] = getattr(self, event)
        await happens()
        await asyncio.sleep(0)  # callbacks of a process that has ended
        assert (await self.pid() is not None) == self.waits, event
        assert self.workers.living == set(self.living), event

    async def closes(self) -> None:
        """Everything ends."""
        await self.workers.close()
        for worker in self.living:
            await worker.quit()
        await asyncio.sleep(0)
        assert self.workers.waiting is None


EVENTS = ("loads", "loads", "unloads", "crashes", "dies", "dies_unread")
LISTS = [
    ["loads", "unloads", "loads", "crashes", "loads", "unloads"],
    ["dies", "loads", "loads", "unloads", "crashes", "loads"],
    ["dies_unread", "loads", "unloads", "dies", "dies", "loads"],
    *(random.Random(seed).choices(EVENTS, k=8) for seed in range(4)),  # noqa: S311
]


@pytest.mark.timeout(60)
@pytest.mark.parametrize("events", LISTS, ids="-".join)
def test_one_process_waits_while_no_worker_lives(gguf: Path, events: list[str]) -> None:
    """One that died is forgotten until the next worker has ended; none outlives the daemon."""

    async def scene() -> None:
        others, it = set(children_of(os.getpid())), Scene(gguf)
        it.opens()
        for event in events:
            await it.happen(event)
        await it.closes()
        assert set(children_of(os.getpid())) <= others

    asyncio.run(scene())


@pytest.mark.timeout(60)
def test_one_that_is_still_being_started_is_taken_or_ended(gguf: Path) -> None:
    """A load waits for it; a daemon that stops leaves none of it."""

    async def scene() -> None:
        others, it = set(children_of(os.getpid())), Scene(gguf)
        it.opens()
        worker, pid = await asyncio.gather(it.workers.spawn(it.load), it.pid())
        assert worker.pid == pid
        await worker.quit()
        await asyncio.sleep(0)
        assert it.workers.waiting
        await it.closes()
        assert set(children_of(os.getpid())) <= others

    asyncio.run(scene())


def test_two_loads_at_once_get_a_process_each(gguf: Path) -> None:
    """One takes the process that waits, and none waits beside them."""

    async def scene() -> None:
        it = Scene(gguf)
        it.opens()
        pid = await it.pid()
        it.living = list(await asyncio.gather(*(it.workers.spawn(it.load) for _ in range(2))))
        pids = {worker.pid for worker in it.living}
        assert pid in pids
        assert len(pids) == 2
        assert it.workers.waiting is None
        await it.closes()

    asyncio.run(scene())


def test_a_process_that_cannot_be_started_is_an_error_of_loads_alone(gguf: Path) -> None:
    """Keeping one waiting says nothing."""

    async def scene() -> None:
        it = Scene(gguf, ("/nowhere/python",))
        it.workers.open()
        with pytest.raises(EngineError):
            await it.workers.spawn(it.load)
        assert it.workers.waiting is None
        await it.closes()

    asyncio.run(scene())


def test_after_an_update_no_process_of_the_old_files_loads(gguf: Path, tmp_path: Path) -> None:
    """Its imports are of the old files, and late ones would be of the new."""

    async def scene() -> None:
        it = Scene(gguf)
        it.workers = Workers(SCRIPTED, Installation([tmp_path]))
        it.opens()
        pid = await it.pid()
        (tmp_path / "new.py").touch()
        worker = await it.workers.spawn(it.load)
        assert worker.pid != pid
        await worker.quit()
        await asyncio.sleep(0)
        assert it.workers.waiting
        await asyncio.wait({it.workers.waiting})
        assert it.workers.waiting is None
        await it.closes()

    asyncio.run(scene())


def test_a_process_that_died_unheard_is_no_crash(harness: Any, daemon: Any) -> None:
    """Killed while it waited, or just taken and its Load unread: the request is answered."""

    async def scene() -> None:
        async with daemon(harness) as it:
            workers = it.server.supervisor.pool.workers
            for unread in (False, True):
                process = await workers.waiting
                os.kill(process.pid, signal.SIGSTOP if unread else signal.SIGKILL)
                if not unread:
                    await process.ended
                asked = asyncio.create_task(it.ask("say hello"))
                if unread:
                    while not workers.living:
                        await it.get("/health")
                    os.kill(process.pid, signal.SIGKILL)
                assert (await asked)[0] == 200
                assert workers.waiting is None
                assert not it.model().crashes.times
                await it.model().unload()

    asyncio.run(scene())


@pytest.mark.timeout(60)
def test_a_model_that_ends_its_workers_before_a_word_is_tried_once_more(
    harness: Any, daemon: Any, tmp_path: Path
) -> None:
    """The second one counts as a crash, as it did without a process that waits."""
    loads = tmp_path / "loads"

    async def scene() -> None:
        command = (sys.executable, "-c", UNHEARD, str(loads))
        async with daemon(harness, command) as it:
            status, answer = await it.ask("say hello")
            assert (status, answer["error"]["code"]) == (502, "worker_crashed")
            assert "exit code 7" in answer["error"]["message"]
            assert loads.read_text() == ".."
            assert len(it.model().crashes.times) == 1

    asyncio.run(scene())


@pytest.mark.timeout(120)
def test_a_load_takes_the_process_that_waits_and_an_unload_leaves_another(
    harness: Any, daemon: Any
) -> None:
    """The daemon has one child all the time: one that waits, or the model's worker."""
    others = set(children_of(os.getpid()))

    async def scene() -> None:
        async with daemon(harness, COMMAND) as it:
            workers, pids = it.server.supervisor.pool.workers, set()
            for _ in range(2):
                pid = (await workers.waiting).pid
                assert (await it.ask("hello", max_tokens=1))[0] == 200
                (model,) = (await it.get("/v1/status"))["models"]
                assert model["pid"] == pid
                assert workers.waiting is None
                assert set(children_of(os.getpid())) - others == {pid}
                assert (await it.post("/v1/models/unload", {}))[0] == 200
                await it.until(lambda: workers.waiting is not None)
                pids.add(pid)
            pids.add((await workers.waiting).pid)
            assert len(pids) == 3

    asyncio.run(scene())


@contextmanager
def real_daemon(harness: Any) -> Iterator[subprocess.Popen[bytes]]:
    """A daemon as users start it, with workers that are LocalSpec's own."""
    command = [sys.executable, "-P", "-m", "localspec_daemon"]
    chosen = ["--config", harness.config_path, "--socket", harness.socket]
    with subprocess.Popen([*command, *chosen]) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.mark.timeout(120)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_process_that_waits_ends_with_its_daemon(harness: Any, number: signal.Signals) -> None:
    """Also with one that is killed."""
    with real_daemon(harness) as process:
        while not (found := children_of(process.pid)):
            assert process.poll() is None
        with Watch(found[0]) as watch:
            process.send_signal(number)
            assert watch.wait(30)
