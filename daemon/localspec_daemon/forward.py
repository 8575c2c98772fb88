"""Requests for models that are elsewhere: answered by an upstream, in our response."""

from __future__ import annotations

import asyncio
import secrets
from contextlib import aclosing

import msgspec
from aiohttp import web

from localspec.errors import Busy, LocalSpecError
from localspec_daemon.dialects import openai, relay
from localspec_daemon.dialects.relay import Call, Route
from localspec_daemon.journal import Record
from localspec_daemon.sse import EventStream
from localspec_daemon.supervisor import Supervisor
from localspec_daemon.wall import CLIENT

FORWARDED = "forwarded"
"""The outcome of an answer that came to its end elsewhere, in the log and in the counts."""


async def answer(
    request: web.Request, supervisor: Supervisor, to: Route, endpoint: str, data: bytes
) -> web.StreamResponse:
    """Ask an upstream for what `data` asks, and pass on what it says; logged and counted.

    Args:
        request: The client's; none of its headers goes further.
        supervisor: The daemon.
        to: From `Supervisor.elsewhere`.
        endpoint: "chat/completions" or "completions".
        data: The body.

    Raises:
        RequestError: the body is not what it should be, or the upstream refuses it.
        DaemonError: too many are open, or the upstream is away or fails.
    """
    clock = asyncio.get_running_loop().time
    asked = relay.asked(data)
    record = Record(f"fwd-{secrets.token_hex(12)}", to.model, request[CLIENT], clock())
    call = Call(to, endpoint, relay.body(data, to.model))
    try:
        if supervisor.upstreams.open >= supervisor.config.server.max_queue:
            raise Busy(
                f"{supervisor.upstreams.open} requests are forwarded already.",
                fix="Try again in a moment, or raise server.max_queue.",
            )
        if asked.stream:
            return await _stream(request, supervisor, call, record)
        async with supervisor.request():
            whole = await supervisor.upstreams.whole(call)
        record.outcome = FORWARDED
        return web.Response(body=whole, content_type="application/json")
    except LocalSpecError as error:
        record.outcome = error.code
        raise
    finally:
        supervisor.tallies[to.model].requests[record.outcome] += 1
        record.write(clock())


async def _stream(
    request: web.Request, supervisor: Supervisor, call: Call, record: Record
) -> web.StreamResponse:
    """Chunk by chunk; an error after the first one is the stream's last event."""
    clock = asyncio.get_running_loop().time
    stream = EventStream(request)
    try:
        async with supervisor.request(), aclosing(supervisor.upstreams.stream(call)) as chunks:
            async for chunk in chunks:
                record.ttft_seconds = record.ttft_seconds or clock() - record.came_at
                await stream.data(msgspec.Raw(chunk))
    except LocalSpecError as error:
        if not stream.begun:
            raise
        record.outcome = error.code
        await stream.data(openai.error_body(error))
        return await stream.end()
    response = await stream.done()
    record.outcome = FORWARDED
    return response
