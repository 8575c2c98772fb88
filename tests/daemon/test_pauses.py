"""A silent stream sends keep-alives, which its clients' parsers skip."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec_daemon.http.pauses import with_pauses
from localspec_daemon.supervisor.turns import Turns

SILENCE_SECONDS = 0.001


def test_pauses_come_between_events_and_closing_closes_both() -> None:
    """Any number of pauses may come around any event; closing also closes the source."""
    told: list[str] = []

    async def source(gate: asyncio.Event) -> AsyncGenerator[str]:
        try:
            yield "one"
            await gate.wait()
            yield "two"
            await asyncio.Future()
        finally:
            told.append("closed")

    async def scene() -> None:
        gate = asyncio.Event()
        async with aclosing(with_pauses(source(gate), 0.0)) as events:
            async for event in events:
                told.append(event or "-")
                if told[-3:] == ["-"] * 3:
                    gate.set()
                if "two" in told and event is None:
                    break
        assert [each for each in told if each != "-"] == ["one", "two", "closed"]

    asyncio.run(scene())
    assert told.count("-") > 3


def test_what_ends_the_source_ends_the_iterator() -> None:
    """The source's end and its errors are passed on."""

    async def source(error: Exception | None) -> AsyncGenerator[int]:
        yield 1
        if error:
            raise error

    async def scene() -> None:
        assert [each async for each in with_pauses(source(None), 9.0)] == [1]
        with pytest.raises(KeyError):
            assert [each async for each in with_pauses(source(KeyError("x")), 9.0)]

    asyncio.run(scene())


def test_who_waits_for_a_slot_is_told_so(harness: Any, daemon: Any) -> None:
    """A request behind one that never ends gets a comment."""
    harness.configure(engine={"slots": 1})

    async def scene() -> None:
        async with (
            daemon(harness, silence_seconds=SILENCE_SECONDS) as it,
            it.streaming("wait") as first,
            it.streaming("say hello") as second,
        ):
            await first.next("data: ")
            assert await second.next(":") == ": waiting for its turn, 1 in the line"

    asyncio.run(scene())


def test_a_turn_is_spoken_of_only_where_there_is_a_line(harness: Any, daemon: Any) -> None:
    """Who waits for a model that nobody else asked is not told of others."""
    harness.add("gated")
    gate = harness.models / "gated.gguf.fifo"
    os.mkfifo(gate)

    async def scene() -> None:
        async with (
            daemon(harness, silence_seconds=SILENCE_SECONDS) as it,
            it.streaming("say hello", model="gated") as stream,
        ):
            words = [await stream.next(":")]
            while "42%" not in words[-1]:
                words.append(await stream.next(":"))
            assert [each for each in words if "turn" in each] == []
            assert words[0] == ": waiting for the model"
            await asyncio.to_thread(gate.write_text, "")
            assert "hello" in "".join(await stream.rest())

    asyncio.run(scene())


def test_who_waits_sees_the_line_move(harness: Any, daemon: Any) -> None:
    """With `return_progress` at once, and again when the request before has left."""
    harness.configure(engine={"slots": 1})

    async def scene() -> None:
        async with daemon(harness) as it, it.streaming("wait") as first:
            await first.next("data: ")
            second = asyncio.create_task(it.ask("wait"))
            await it.until(lambda: it.model().requests == 2)
            async with it.streaming("say hello", return_progress=True) as third:
                assert await third.next(":") == ": waiting for its turn, 2 in the line"
                second.cancel()
                assert await third.next(":") == ": waiting for its turn, 1 in the line"
                first.response.close()
                assert "hello" in "".join(await third.rest())

    asyncio.run(scene())


@given(st.integers(1, 4), st.lists(st.integers(0, 9), min_size=1, max_size=30))
def test_the_first_that_came_is_the_first_to_go_on(count: int, leaving: list[int]) -> None:
    """Never more than may, places count down to 1, and who leaves early holds nobody up."""

    async def scene() -> None:
        turns = Turns(count)
        told: dict[str, list[str]] = {}
        going: list[str] = []
        leave = {f"{n}": asyncio.Event() for n in range(10)}

        async def request(id_: str) -> None:
            with turns.joined(id_):
                told[id_] = [each.why async for each in turns.places(id_)]
                going.append(id_)
                try:
                    await leave[id_].wait()
                finally:
                    going.remove(id_)

        tasks = {id_: asyncio.create_task(request(id_)) for id_ in leave}
        for number in leaving:
            for _ in range(3):
                await asyncio.sleep(0)
            assert len(going) <= count
            here = [id_ for id_, task in tasks.items() if not task.done()]
            assert going == here[:count]
            tasks[f"{number}"].cancel() if number % 2 else leave[f"{number}"].set()
        for event in leave.values():
            event.set()
        await asyncio.gather(*tasks.values(), return_exceptions=True)
        for id_, words in told.items():
            places = [int("".join(filter(str.isdigit, why))) for why in words]
            assert places == sorted(places, reverse=True)
            assert not places or places[0] <= max(0, int(id_) + 1 - count)

    asyncio.run(scene())
