"""Generates the choices of one request concurrently: several prompts, or one several times."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any, TypeAlias

from localspec.errors import LocalSpecError
from localspec.wire.messages import Generate, Progress
from localspec_daemon.api.dialect import ParsedRequest
from localspec_daemon.supervisor.model import Model
from localspec_daemon.supervisor.resumption import Resumed
from localspec_daemon.supervisor.supervisor import Supervisor
from localspec_daemon.supervisor.worker import StreamEvent

ChoiceEvent: TypeAlias = tuple[int, Progress | Resumed | StreamEvent]


async def choice_events(
    supervisor: Supervisor, found: Model, asked: ParsedRequest
) -> AsyncGenerator[ChoiceEvent]:
    """The events of all choices, each with the number of its choice.

    `found` answers a single choice. With several the model is looked up for each, because it may be
    retired in between. At most as many run at once as there are slots. Closing the iterator cancels
    all. Raises the errors of `Supervisor.generate`, with the body's own names of fields.
    """
    several = len(asked.generates) > 1
    events = _all(supervisor, found, asked) if several else _only(supervisor, found, asked)
    try:
        async with aclosing(events):
            async for event in events:
                yield event
    except LocalSpecError as error:
        error.param = asked.names.get(error.param or "", error.param)
        raise


async def _only(
    supervisor: Supervisor, found: Model, asked: ParsedRequest
) -> AsyncGenerator[ChoiceEvent]:
    """The events of the only choice."""
    async with aclosing(supervisor.generate(found, asked.generates[0])) as events:
        async for event in events:
            yield 0, event


async def _all(
    supervisor: Supervisor, found: Model, asked: ParsedRequest
) -> AsyncGenerator[ChoiceEvent]:
    """The events of several choices, which are generated concurrently."""
    queue: asyncio.Queue[ChoiceEvent | None] = asyncio.Queue()
    turns = asyncio.Semaphore(found.load.config.engine.slots)

    async def one(choice: int, generate: Generate) -> None:
        async with turns:
            model = await supervisor.model(asked.model, aliases=asked.aliases)
            async with aclosing(supervisor.generate(model, generate)) as events:
                async for event in events:
                    queue.put_nowait((choice, event))

    def over(done: asyncio.Future[Any]) -> None:
        if not done.cancelled():
            done.exception()  # retrieves it, so that asyncio logs nothing if the client has left
        queue.put_nowait(None)

    tasks = [asyncio.create_task(one(*numbered)) for numbered in enumerate(asked.generates)]
    everything = asyncio.gather(*tasks)
    everything.add_done_callback(over)
    try:
        while (numbered := await queue.get()) is not None:
            yield numbered
        await everything
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
