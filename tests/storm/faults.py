"""Faults of a daemon. Each ends with the daemon as it was before, unless it has a bug."""

from __future__ import annotations

import asyncio
import json
import resource
import signal
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from random import Random

import aiohttp
import tiny
from storm import clients, hostile
from storm.chaos_daemon import ChaosDaemon
from storm.clients import CLIENTS

from localspec.catalog import header
from localspec.errors import BadGGUF, LocalSpecError

CROWD = 8
"""Clients at once."""

UNDECLARED = {"internal_error", "engine_error"}
"""Codes of unintended errors."""


def _statuses(kind: type[LocalSpecError]) -> set[int]:
    return {kind.status}.union(*map(_statuses, kind.__subclasses__()))


DECLARED = {405, *_statuses(LocalSpecError)} - {500}


@dataclass
class Storm:
    """State of one run of faults: its daemon, random numbers and counts."""

    chaos: ChaosDaemon
    random: Random
    many: int = 10
    """Mutated requests or files of one event."""
    counts: Counter[str] = field(default_factory=Counter)
    supervisor_killed: bool = False
    """In the present turn: then streams may break off, because no process continues them."""


Event = Callable[[Storm], Awaitable[None]]


def check(storm: Storm, status: int, answer: object, asked: object) -> None:
    """Assert that this response is an intended one."""
    storm.counts[f"status {status}"] += 1
    if status < 400:
        return
    assert status in DECLARED, (status, answer, asked)
    error = answer.get("error") if isinstance(answer, dict) else None
    assert error, (status, answer, asked)
    code = error.get("code", "") if isinstance(error, dict) else ""
    assert code not in UNDECLARED, (status, answer, asked)


async def kill_worker(storm: Storm) -> None:
    """SIGKILL for every worker, after a moment."""
    await asyncio.sleep(storm.random.uniform(0, 0.3))
    storm.counts["kills"] += sum(
        storm.chaos.kill(pid, signal.SIGKILL) for pid in storm.chaos.workers()
    )


async def stop_worker(storm: Storm) -> None:
    """SIGSTOP for a while."""
    pids = storm.chaos.workers()
    for pid in pids:
        storm.chaos.kill(pid, signal.SIGSTOP)
    await asyncio.sleep(storm.random.uniform(0, 1))
    for pid in pids:
        storm.chaos.kill(pid, signal.SIGCONT)


async def stop_supervisor(storm: Storm) -> None:
    """SIGSTOP for a while; clients wait."""
    assert storm.chaos.daemon is not None
    storm.chaos.kill(storm.chaos.daemon.pid, signal.SIGSTOP)
    await asyncio.sleep(storm.random.uniform(0, 1))
    storm.chaos.kill(storm.chaos.daemon.pid, signal.SIGCONT)


async def kill_supervisor(storm: Storm) -> None:
    """SIGKILL: no worker outlives it, and the next daemon starts where it was."""
    chaos = storm.chaos
    workers = chaos.workers()
    storm.supervisor_killed = True
    await asyncio.sleep(storm.random.uniform(0, 0.3))
    assert chaos.daemon is not None
    chaos.kill(chaos.daemon.pid, signal.SIGKILL)
    await asyncio.to_thread(chaos.daemon.wait)
    await chaos.start()
    for pid in workers:
        assert not chaos.alive(pid), f"worker {pid} outlived its supervisor"


async def unload(storm: Storm) -> None:
    """Unload and load, in any order and while others are answered."""
    for _ in range(storm.random.randrange(1, 4)):
        what = storm.random.choice(("load", "unload"))
        status, answer = await storm.chaos.post(f"/v1/models/{what}", {"model": "alpha"})
        check(storm, status, answer, what)


async def rewrite_config(storm: Storm) -> None:
    """Write nonsense, then other settings, then the original."""
    chaos = storm.chaos
    good = chaos.config.read_text()
    for _ in range(3):
        text = storm.random.choice(
            (
                "[modles]\n",
                "\0\0",
                "",
                good.replace("prefill_rows = 32", "prefill_rows = 48"),
                good.replace("drain_seconds = 5", "drain_seconds = 6"),
                good.replace("slots = 3", "slots = -3"),
            )
        )
        chaos.config.write_text(text)
        await asyncio.sleep(storm.random.uniform(0, 0.2))
    chaos.config.write_text(good)

    async def settled() -> bool:
        status = await chaos.get("/v1/status")
        return status["config_error"] is None and status["default_model"] == "alpha"

    await chaos.until(settled)


async def full_disk(storm: Storm) -> None:
    """No process of the daemon may write a byte to a file; then they may again."""
    chaos = storm.chaos
    assert chaos.daemon is not None
    pids = [chaos.daemon.pid, *chaos.workers()]
    _, most = resource.prlimit(chaos.daemon.pid, resource.RLIMIT_FSIZE)
    for limit in (0, most):
        for pid in pids:
            if chaos.alive(pid):
                resource.prlimit(pid, resource.RLIMIT_FSIZE, (limit, most))
        if not limit:
            await unload(storm)
            await json_fuzz(storm)


async def rude_client(storm: Storm) -> None:
    """Run some misbehaving clients at once."""
    clients = storm.random.choices(CLIENTS, k=storm.random.randrange(1, 6))
    storm.counts["rude clients"] += len(clients)
    await asyncio.gather(*(client(storm.chaos.socket, storm.random) for client in clients))


async def cancels(storm: Storm) -> None:
    """Requests that are left unread, waiting, in the middle of a prompt or of an answer."""
    chaos = storm.chaos

    async def some() -> None:
        while storm.counts["cancels"] < storm.many:
            storm.counts["cancels"] += 1
            await clients.cancels(chaos.socket, storm.random)

    await asyncio.gather(*(some() for _ in range(CROWD)))


async def json_fuzz(storm: Storm) -> None:
    """Mutated bodies over every route, some at once."""

    async def some() -> None:
        while storm.counts["mutated requests"] < storm.many:
            storm.counts["mutated requests"] += 1
            await mutated(storm)

    await asyncio.gather(*(some() for _ in range(CROWD)))


async def mutated(storm: Storm) -> None:
    """Send one mutated request."""
    method, path = storm.random.choice(hostile.routes())
    data = hostile.mutated(storm.random, path) if method == "POST" else None
    kind = {"Content-Type": "application/json"}
    async with storm.chaos.http.request(method, path, data=data, headers=kind) as response:
        data_read = await response.read()
        if response.status >= 400:
            check(storm, response.status, json.loads(data_read), (method, path, data))
        else:
            storm.counts[f"status {response.status}"] += 1


async def prompt_bomb(storm: Storm) -> None:
    """Send a prompt that takes long to parse."""
    asked = hostile.bomb(storm.random)
    status, answer = await storm.chaos.post("/v1/completions", asked)
    check(storm, status, answer, str(asked)[:100])


async def hostile_template(storm: Storm) -> None:
    """Load a model whose template never ends or reads other objects."""
    chaos = storm.chaos
    template = storm.random.choice(hostile.TEMPLATES)
    path = chaos.folder / "evil.gguf"
    tiny.build(chaos.root / "evil.part", template=template).replace(path)
    asked = {"model": "evil", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 2}
    status, answer = await chaos.post("/v1/chat/completions", asked)
    check(storm, status, answer, template)
    path.unlink()


async def spoilt_model(storm: Storm) -> None:
    """Read damaged model files, and load one that passes as a model."""
    chaos = storm.chaos
    good = (chaos.folder / "alpha.gguf").read_bytes()
    path, data = chaos.folder / "spoilt.gguf", b""
    for _ in range(storm.many):
        spoilt = hostile.spoilt(storm.random, good)
        hostile.write(path, spoilt)
        storm.counts["spoilt files"] += 1
        try:
            header.read(path)
        except BadGGUF:
            storm.counts["spoilt files refused"] += 1
        else:
            data = spoilt
    hostile.write(path, data or spoilt)
    asked = {"model": "spoilt", "prompt": "hi", "max_tokens": 2}
    status, answer = await chaos.post("/v1/completions", asked)
    storm.counts["spoilt files loaded"] += 1
    if status != 500:  # what llama.cpp itself cannot do with such a file has that code
        check(storm, status, answer, "a spoilt file")
    path.unlink()


async def overload(storm: Storm) -> None:
    """Send more requests than there are slots: all are answered or refused for now."""
    asked = {"prompt": "hello", "max_tokens": 8, "seed": 1}
    for status, answer in await asyncio.gather(
        *(storm.chaos.post("/v1/completions", asked) for _ in range(storm.random.randrange(4, 40)))
    ):
        check(storm, status, answer, asked)


EVENTS: list[Event] = [
    kill_worker, stop_worker, stop_supervisor, kill_supervisor, unload, rewrite_config, full_disk,
    rude_client, cancels, json_fuzz, prompt_bomb, hostile_template, spoilt_model, overload,
]  # fmt: skip

BROKEN = (aiohttp.ClientError, ConnectionError, asyncio.TimeoutError)
"""How a connection ends whose daemon was killed."""
