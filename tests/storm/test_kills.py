"""Streams outlive their workers: real processes, real llama.cpp, kills at random phases."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path
from random import Random

import pytest
from storm.kills import STREAMS, play, request
from storm.town import Town

KILLS = int(os.environ.get("LOCALSPEC_STORM_KILLS", "300"))


async def rounds(town: Town, random: Random, kills: int, *, exact: bool) -> None:
    """Scenes until so many workers were killed; every stream comes to its own end."""
    done = streams = 0
    async with town:
        while done < kills:
            asked = [request(random) for _ in range(STREAMS)]
            calm = [await town.stream(body) for body in asked]
            scene = await play(town, random, asked)
            for body, told, expected in zip(asked, scene.told, calm, strict=True):
                assert told.done, f"{body}\n{told}\n{town.last_words()}"
                if exact:
                    assert told.answer == expected.answer, (body, told, expected)
            done, streams = done + scene.kills, streams + STREAMS
            await town.post("/v1/models/unload", {})
    sys.stdout.write(f"{done} kills, {streams} streams, all at their end\n")


def test_streams_outlive_kills(tmp_path: Path) -> None:
    """In strict mode every answer is that of a calm daemon, byte for byte."""
    asyncio.run(rounds(Town(tmp_path), Random(1), 2, exact=True))


@pytest.mark.storm
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("exactness", ["strict", "standard"])
def test_streams_outlive_hundreds_of_kills(tmp_path: Path, exactness: str) -> None:
    """The same, for long; in standard mode an answer may go on otherwise, but it goes on."""
    random = Random(int(os.environ.get("LOCALSPEC_STORM_SEED", "1")))
    exact = exactness == "strict"
    asyncio.run(rounds(Town(tmp_path, exactness), random, KILLS, exact=exact))
