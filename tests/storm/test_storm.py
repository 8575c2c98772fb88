"""All faults in random order, for a given time; a seed repeats a run."""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from random import Random

import pytest
from storm.chaos_daemon import Body, ChaosDaemon, Flat, StreamResult
from storm.faults import BROKEN, EVENTS, Event, Storm, cancels, json_fuzz, spoilt_model
from storm.kills import request
from storm.records import RECORDS, SEED, dice

SECONDS = float(os.environ.get("LOCALSPEC_STORM_SECONDS", "600"))
MANY = int(os.environ.get("LOCALSPEC_STORM_MANY", "0"))
"""How much of each thing is counted in long runs; 0 for what fits into some minutes."""


async def bystander(storm: Storm, asked: Body, over: asyncio.Event) -> list[StreamResult]:
    """Streams one after the other during a fault; not those that a killed supervisor cut off.

    A request that waits for a load is refused when the model is unloaded; it is then sent again.
    """
    heard: list[StreamResult] = []
    while not heard or not over.is_set():
        try:
            result = await storm.chaos.stream(asked)
            while result.error.get("code") == "loading" and not result.text:
                result = await storm.chaos.stream(asked)
        except BROKEN:
            if not storm.supervisor_killed:
                raise
            return heard
        if result.done or not storm.supervisor_killed:
            heard.append(result)
        if not result.done:
            return heard
    return heard


async def turn(storm: Storm, event: Event) -> None:
    """Run one fault beside two streams, and check the daemon afterwards."""
    chaos = storm.chaos
    storm.supervisor_killed, kills = False, storm.counts["kills"]
    asked = [request(storm.random) for _ in range(2)]
    undisturbed = [await chaos.stream(body) for body in asked]
    where, over = f"seed {SEED}, {event.__name__}", asyncio.Event()
    async with asyncio.TaskGroup() as group:
        streams = [group.create_task(bystander(storm, body, over)) for body in asked]
        try:
            await event(storm)
        finally:
            over.set()
    for body, task, expected in zip(asked, streams, undisturbed, strict=True):
        for result in task.result():
            assert result.done, f"{where}: {body} ended with {result}\n{chaos.last_words()}"
            assert result.answer == expected.answer, f"{where}: {body}\n{result}\n{expected}"
            storm.counts["bystanders"] += 1
    await chaos.until(chaos.idle)
    again = await asyncio.gather(*(chaos.stream(body) for body in (*asked, asked[0])))
    for result, expected in zip(
        again, (*undisturbed, undisturbed[0]), strict=True
    ):  # in every slot
        assert result.done, f"{where}: afterwards {result}\n{chaos.last_words()}"
        assert result.answer == expected.answer, f"{where}: {result}\n{expected}"
    if storm.counts["kills"] > kills:  # a model may not crash as often as a storm wants it to
        await chaos.post("/v1/models/unload", {"model": "alpha"})
    storm.counts[event.__name__] += 1


async def blow(storm: Storm, events: Sequence[Event], seconds: float) -> None:
    """Each event once, then any of them while there is time."""
    ends_at, pending = time.monotonic() + seconds, list(events)
    async with storm.chaos as chaos:
        flat = Flat(chaos)
        while pending or time.monotonic() < ends_at:
            storm.counts = Counter()
            await turn(storm, pending.pop() if pending else storm.random.choice(events))
            RECORDS.add("storm", storm.counts, flat.held(anew=storm.supervisor_killed))


SHORT = {"kill_worker", "rude_client", "full_disk", "json_fuzz", "cancels"}


def test_a_short_storm_passes(tmp_path: Path) -> None:
    """A few of the faults, with a fixed seed."""
    short = [event for event in EVENTS if event.__name__ in SHORT]
    asyncio.run(blow(Storm(ChaosDaemon(tmp_path), Random(7)), short, 0))


def test_a_long_body_leaves_no_memory_behind(tmp_path: Path) -> None:
    """Of six to twelve megabytes, refused; glibc would keep 27 by itself."""

    async def scene() -> None:
        async with ChaosDaemon(tmp_path) as chaos:
            await chaos.stream({"prompt": "hi", "max_tokens": 4})
            before = chaos.resident_mib()
            for megabytes in (6, 12, 8):
                prompt = "a" * (megabytes << 20)
                status, _ = await chaos.post("/v1/completions", {"prompt": prompt})
                assert status in {400, 413}
            assert chaos.resident_mib() <= before + 4

    asyncio.run(scene())


@pytest.mark.storm
@pytest.mark.timeout(14400)
def test_a_long_storm_passes(tmp_path: Path) -> None:
    """For LOCALSPEC_STORM_SECONDS; LOCALSPEC_STORM_SEED repeats a run."""
    storm = Storm(ChaosDaemon(tmp_path), dice(RECORDS.turns("storm")), many=200)
    asyncio.run(blow(storm, EVENTS, SECONDS))


@pytest.mark.storm
@pytest.mark.timeout(14400)
@pytest.mark.parametrize(
    ("event", "what", "each", "wanted"),
    [
        (cancels, "cancels", 100, 2_000),
        (json_fuzz, "mutated requests", 1_000, 20_000),
        (spoilt_model, "spoilt files", 500, 4_000),
    ],
)
def test_many_of_one_kind(tmp_path: Path, event: Event, what: str, each: int, wanted: int) -> None:
    """Turn by turn until all runs together have counted enough of it."""

    async def many() -> None:
        async with ChaosDaemon(tmp_path) as chaos:
            flat = Flat(chaos)
            while RECORDS.total(what, what) < (MANY or wanted):
                storm = Storm(chaos, dice(RECORDS.turns(what)), many=each)
                await turn(storm, event)
                RECORDS.add(what, storm.counts, flat.held())

    asyncio.run(many())
