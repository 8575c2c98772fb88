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
from storm.records import RECORDS, dice

KILLS = int(os.environ.get("LOCALSPEC_STORM_KILLS", "300"))


async def scene(chaos: ChaosDaemon, random: Random, *, exact: bool) -> Scene:
    """Three streams and kills: every stream ends with the answer of an undisturbed daemon."""
    asked = [request(random) for _ in range(STREAMS)]
    undisturbed = [await chaos.stream(body) for body in asked]
    scene = await play(chaos, random, asked)
    for body, result, expected in zip(asked, scene.result, undisturbed, strict=True):
        assert result.done, f"{body}\n{result}\n{chaos.last_words()}"
        if exact:
            assert result.answer == expected.answer, (body, result, expected)
    await chaos.post("/v1/models/unload", {})
    return scene


def test_streams_outlive_kills(tmp_path: Path) -> None:
    """In strict mode every answer equals that of an undisturbed daemon, byte for byte."""

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
    """The same for long; in standard mode an answer may differ after a kill, but it ends."""

    async def many() -> None:
        async with ChaosDaemon(tmp_path, exactness) as chaos:
            flat = Flat(chaos)
            while RECORDS.total(program, "kills") < KILLS:
                random = dice(RECORDS.turns(program))
                played = await scene(chaos, random, exact=exactness == "strict")
                counts = Counter(kills=played.kills, streams=STREAMS)
                RECORDS.add(program, counts, flat.held())

    program = f"kills, {exactness}"
    asyncio.run(many())
