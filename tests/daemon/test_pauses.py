"""A silent stream sends keep-alives, which its clients' parsers skip."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import pytest

from localspec_daemon.http.pauses import with_pauses

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
            assert await second.next(":") == ": waiting for its turn"

    asyncio.run(scene())
