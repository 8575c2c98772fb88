"""Adds the pauses of a stream to its events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import TypeVar

_Event = TypeVar("_Event")


async def with_pauses(
    events: AsyncGenerator[_Event], seconds: float
) -> AsyncGenerator[_Event | None]:
    """The events, and None after every `seconds` without one.

    Closing the iterator closes `events`, also while one of them is waited for.
    """
    async with aclosing(events):
        while True:
            coming = asyncio.create_task(_next(events))
            try:
                while not (await asyncio.wait({coming}, timeout=seconds))[0]:
                    yield None
            finally:
                if not coming.done():
                    coming.cancel()
                    await asyncio.wait({coming})
            if (event := coming.result()) is None:
                return
            yield event


async def _next(events: AsyncGenerator[_Event]) -> _Event | None:
    async for event in events:
        return event
    return None
