"""Streams outlive their workers: real processes, real llama.cpp, kills at random phases."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from pathlib import Path
from random import Random

import pytest
from storm.chaos_daemon import ChaosDaemon, Flat
from storm.kills import STREAMS, Scene, play, request
from storm.ledger import LEDGER, dice

KILLS = int(os.environ.get("LOCALSPEC_STORM_KILLS", "300"))


async def scene(chaos: ChaosDaemon, random: Random, *, exact: bool) -> Scene:
    """Three streams and kills: every stream comes to its own end, which is that of a calm day."""
    asked = [request(random) for _ in range(STREAMS)]
    calm = [await chaos.stream(body) for body in asked]
    scene = await play(chaos, random, asked)
    for body, told, expected in zip(asked, scene.told, calm, strict=True):
        assert told.done, f"{body}\n{told}\n{chaos.last_words()}"
        if exact:
            assert told.answer == expected.answer, (body, told, expected)
    await chaos.post("/v1/models/unload", {})
    return scene


def test_streams_outlive_kills(tmp_path: Path) -> None:
    """In strict mode every answer is that of a calm daemon, byte for byte."""

    async def once() -> None:
        random, kills = Random(1), 0
        async with ChaosDaemon(tmp_path) as chaos:
            while kills < 2:
                kills += (await scene(chaos, random, exact=True)).kills

    asyncio.run(once())


@pytest.mark.storm
@pytest.mark.timeout(14400)
@pytest.mark.parametrize("exactness", ["strict", "standard"])
def test_streams_outlive_hundreds_of_kills(tmp_path: Path, exactness: str) -> None:
    """The same, for long; in standard mode an answer may go on otherwise, but it goes on."""

    async def many() -> None:
        async with ChaosDaemon(tmp_path, exactness) as chaos:
            flat = Flat(chaos)
            while LEDGER.total(program, "kills") < KILLS:
                random = dice(LEDGER.turns(program))
                played = await scene(chaos, random, exact=exactness == "strict")
                counts = Counter(kills=played.kills, streams=STREAMS)
                LEDGER.add(program, counts, flat.held())

    program = f"kills, {exactness}"
    asyncio.run(many())
