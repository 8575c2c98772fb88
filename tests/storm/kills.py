"""Workers are killed while three streams are open: every stream comes to its end."""

from __future__ import annotations

import asyncio
import signal
from dataclasses import dataclass
from random import Random

from storm.chaos_daemon import PRINTABLE, Body, ChaosDaemon, StreamResult

STREAMS = 3
KILLS = 2
"""As often as each of three streams may go on."""
LOAD_SECONDS = 2.0
"""About as long as a worker takes until it is ready."""

SCHEMA = {"type": "array", "items": {"type": "integer"}}
NUMBERS = {"type": "json_schema", "json_schema": {"schema": SCHEMA}}
CASES: list[Body] = [
    {"temperature": 0},
    {"temperature": 0.9, "logit_bias": PRINTABLE},
    {"temperature": 0.9, "speculation": {"mode": "always"}},
    {"temperature": 0.8, "frequency_penalty": 0.5, "presence_penalty": 0.3},
    {"temperature": 0.9, "logit_bias": PRINTABLE, "stop": ["~~", "zq", "QQ"]},
    {"temperature": 1.2, "response_format": NUMBERS},
    {"temperature": 1.0, "logit_bias": {"261": 2.0}, "ignore_eos": False},
]  # fmt: skip
PROMPTS = ("hello world, hello world, hello", "def add(a, b):\n    return a + b\n" * 4, "a")


@dataclass
class Scene:
    """Result of one round: requests, answers, and the number of processes that died."""

    asked: list[Body]
    result: list[StreamResult]
    kills: int


def request(random: Random) -> Body:
    """Completion that an undisturbed daemon answers the same way each time."""
    case = dict(random.choice(CASES))
    case.setdefault("ignore_eos", "response_format" not in case)
    tokens = random.choice((40, 150, 300))
    return {
        "prompt": random.choice(PROMPTS),
        "seed": random.randrange(99),
        "max_tokens": tokens,
    } | case


async def play(chaos: ChaosDaemon, random: Random, asked: list[Body]) -> Scene:
    """Send all requests at once, and kill the current worker up to `KILLS` times at random phases.

    One in three kills looks like a crash of native code to the supervisor; more than one for the
    same stream would mark it as poison.
    """
    received, moved = 0, asyncio.Event()

    def hear(text: str) -> None:
        nonlocal received
        received += len(text)
        moved.set()

    async def after(characters: int) -> None:
        while received < characters:
            moved.clear()
            await moved.wait()

    async def killer() -> None:
        fault = random.random() < 1 / 3
        for _ in range(KILLS):
            midway = random.random() < 2 / 3
            if midway:
                await after(received + random.randrange(1, 120))
            else:
                await asyncio.sleep(random.uniform(0, LOAD_SECONDS))
            number = signal.SIGSEGV if fault and midway else signal.SIGKILL
            fault = fault and not midway
            kills.extend(pid for pid in chaos.workers() if chaos.kill(pid, number))

    kills: list[int] = []
    killing = asyncio.create_task(killer())
    result = await asyncio.gather(*(chaos.stream(body, hear) for body in asked))
    killing.cancel()
    await asyncio.gather(killing, return_exceptions=True)
    return Scene(asked, result, len(kills))
