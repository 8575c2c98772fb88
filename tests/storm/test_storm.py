"""Everything at once, for as long as one likes; the same dice give the same storm."""

from __future__ import annotations

import asyncio
import os
import secrets
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest
from storm.kills import request
from storm.town import Body, Told, Town
from storm.weather import BROKEN, EVENTS, Event, Storm

SECONDS = float(os.environ.get("LOCALSPEC_STORM_SECONDS", "600"))
SEED = int(os.environ.get("LOCALSPEC_STORM_SEED", secrets.randbits(32)))
WARM_TURNS = 10
"""Before what a daemon holds is taken for its measure."""
MORE_FDS = 8
MORE_BYTES = 32 << 20


async def bystander(storm: Storm, asked: Body) -> Told | None:
    """A stream during an event; None if it was cut by the end of its daemon.

    Whoever waits for a load that somebody unloads is told to ask again, and does.
    """
    try:
        told = await storm.town.stream(asked)
        while told.error.get("code") == "loading" and not told.text:
            told = await storm.town.stream(asked)
    except BROKEN:
        if not storm.supervisor_killed:
            raise
        return None
    return None if storm.supervisor_killed and not told.done else told


async def turn(storm: Storm, event: Event) -> None:
    """One event beside two streams, and what must hold after it."""
    town = storm.town
    storm.supervisor_killed, kills = False, storm.counts["kills"]
    asked = [request(storm.random) for _ in range(2)]
    calm = [await town.stream(body) for body in asked]
    where = f"seed {SEED}, {event.__name__}"
    async with asyncio.TaskGroup() as group:
        streams = [group.create_task(bystander(storm, body)) for body in asked]
        await event(storm)
    for body, task, expected in zip(asked, streams, calm, strict=True):
        if (told := task.result()) is not None:
            assert told.done, f"{where}: {body} ended with {told}\n{town.last_words()}"
            assert told.answer == expected.answer, f"{where}: {body}\n{told}\n{expected}"
    await town.until(town.idle)
    again = await asyncio.gather(*(town.stream(body) for body in asked))
    for told, expected in zip(again, calm, strict=True):
        assert told.done, f"{where}: afterwards {told}\n{town.last_words()}"
        assert told.answer == expected.answer, f"{where}: {told}\n{expected}"
    if storm.counts["kills"] > kills:  # a model may not crash as often as a storm wants it to
        await town.post("/v1/models/unload", {"model": "alpha"})
    storm.counts[event.__name__] += 1


async def blow(storm: Storm, events: Sequence[Event], seconds: float) -> None:
    """Each event once, then any of them while there is time."""
    ends_at, turns = time.monotonic() + seconds, 0
    pending, size = list(events), (0, 0)
    async with storm.town as town:
        while pending or time.monotonic() < ends_at:
            await turn(storm, pending.pop() if pending else storm.random.choice(events))
            turns += 1
            if storm.supervisor_killed or turns < WARM_TURNS:
                size = town.size()
            fds, rss = town.size()
            assert fds <= size[0] + MORE_FDS, f"seed {SEED}: {fds} fds were {size[0]}"
            assert rss <= size[1] + MORE_BYTES, f"seed {SEED}: {rss} bytes were {size[1]}"


def report(storm: Storm, seconds: float) -> str:
    """What the storm was."""
    lines = [f"| {what} | {count} |" for what, count in sorted(storm.counts.items())]
    head = (
        f"Storm of seed {SEED}, {seconds:.0f} s: nothing fell.\n\n| what | how often |\n|---|---|"
    )
    return "\n".join([head, *lines, ""])


SHORT = {"kill_worker", "rude_client", "full_disk", "json_fuzz"}


def test_a_short_storm_passes(tmp_path: Path) -> None:
    """A few of the events, by the same dice each time."""
    short = [event for event in EVENTS if event.__name__ in SHORT]
    asyncio.run(blow(Storm(Town(tmp_path), Random(7)), short, 0))


@pytest.mark.storm
@pytest.mark.timeout(7200)
def test_a_long_storm_passes(tmp_path: Path) -> None:
    """As long as LOCALSPEC_STORM_SECONDS says; LOCALSPEC_STORM_SEED repeats one."""
    began = time.monotonic()
    storm = Storm(Town(tmp_path), Random(SEED), many=200)
    try:
        asyncio.run(blow(storm, EVENTS, SECONDS))
    finally:
        sys.stdout.write(f"seed {SEED}: {dict(storm.counts)}\n")
    sys.stdout.write(report(storm, time.monotonic() - began))
