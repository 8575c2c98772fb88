"""A request of any dialect, from its body to its last byte."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Iterable
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from typing import TypeAlias

from aiohttp import web
from aiohttp.typedefs import Handler

from localspec.errors import LocalSpecError
from localspec.wire.messages import Delta, Finished, Started
from localspec_daemon.api import relay
from localspec_daemon.api.dialect import Answer, Dialect, Json, ParsedRequest, Reply
from localspec_daemon.api.openai_errors import errors
from localspec_daemon.http import forward
from localspec_daemon.http.access import CLIENT, body, caller
from localspec_daemon.http.body_limits import off_loop
from localspec_daemon.http.choices import choice_events
from localspec_daemon.http.event_writer import EventWriter
from localspec_daemon.http.named import named
from localspec_daemon.http.output import FrameStream, json_response
from localspec_daemon.http.pauses import with_pauses
from localspec_daemon.supervisor.adapted import adapted
from localspec_daemon.supervisor.model import Model
from localspec_daemon.supervisor.supervisor import Supervisor

_log = logging.getLogger("localspec.serve")

SUPERVISOR: web.AppKey[Supervisor] = web.AppKey("supervisor", Supervisor)

SILENCE_SECONDS: web.AppKey[float] = web.AppKey("silence_seconds", float)
"""A stream that is silent for this long sends a keep-alive: clients and proxies give up after
minutes. Keep-alives are rare, because some clients take every comment for a sign of text."""

EAGER_SILENCE_SECONDS = 0.5
"""The same for a client that asks for progress: people watch it, and a second is long."""

Pump: TypeAlias = Callable[[FrameStream], Awaitable[None]]
Broken: TypeAlias = Callable[[LocalSpecError], Iterable[Json]]


def text_handler(dialect: Dialect) -> Handler:
    """The handler of an endpoint of this dialect."""
    return partial(_generate, dialect=dialect)


def internal_error() -> LocalSpecError:
    """The error for an unexpected exception, called while it is being handled."""
    _log.exception("bug")
    return LocalSpecError("The daemon has a bug.", fix="`localspec logs` has the details.")


async def _generate(request: web.Request, dialect: Dialect) -> web.StreamResponse:
    supervisor = request.app[SUPERVISOR]
    config = supervisor.config
    data = await body(request, config.server.max_body_bytes)
    if config.upstream and dialect.endpoint:
        wanted = await off_loop(partial(relay.relayed_fields, data), data)
        if to := await supervisor.upstream_route(named(request, wanted.model)):
            sent = await off_loop(partial(relay.body, data, to.model), data)
            call = relay.Call(to, dialect.endpoint, sent)
            return await _forward(request, call, streams=bool(wanted.stream))
    asked = await off_loop(partial(dialect.read, data, config, caller(request)), data)
    asked = replace(asked, model=named(request, asked.model) or "")
    found = await supervisor.model(asked.model, aliases=asked.aliases)
    scaled = (adapted(one, found.load.adapters, found.lora) for one in asked.generates)
    asked = replace(asked, generates=tuple(scaled))
    reply = dialect.reply(asked, found.name)
    if not asked.stream:
        return await _whole(request, asked, found, reply)
    stream = FrameStream(request, dialect.framing)
    pump = partial(_pump, request, asked, found, reply)
    return await _streamed(request, stream, pump, reply.broken)


async def _forward(request: web.Request, call: relay.Call, *, streams: bool) -> web.StreamResponse:
    supervisor, client = request.app[SUPERVISOR], request[CLIENT]
    if streams:
        pump = partial(forward.pump, supervisor, call, client, request.app[SILENCE_SECONDS])
        return await _streamed(request, FrameStream(request), pump, _broken)
    async with supervisor.request():
        answer = await forward.whole(supervisor, call, client)
    return web.Response(body=answer, content_type="application/json")


def _broken(error: LocalSpecError) -> list[Json]:
    return [errors(error)]


async def _whole(
    request: web.Request, asked: ParsedRequest, found: Model, reply: Reply
) -> web.StreamResponse:
    answers = [Answer() for _ in asked.generates]
    supervisor = request.app[SUPERVISOR]
    async with supervisor.request(), aclosing(choice_events(supervisor, found, asked)) as events:
        async for choice, event in events:
            if isinstance(event, Started | Delta | Finished):
                answers[choice].take(event)
    response = json_response(reply.whole(answers))
    response.headers.update(_relaxed_header(answers[0].started))
    return response


def _relaxed_header(started: Started | None) -> dict[str, str]:
    """The header that names the keys of the schema that the answer may violate."""
    relaxed = started.relaxed if started else []
    return {"X-LocalSpec-Relaxed": ", ".join(relaxed)} if relaxed else {}


async def _streamed(
    request: web.Request, stream: FrameStream, pump: Pump, broken: Broken
) -> web.StreamResponse:
    try:
        async with request.app[SUPERVISOR].request():
            await pump(stream)
    except ConnectionError:
        raise
    except Exception as error:
        if not stream.begun:
            raise
        for frame in broken(error if isinstance(error, LocalSpecError) else internal_error()):
            await stream.data(frame)
        return await stream.end()
    return await stream.done()


def _silence_seconds(request: web.Request, asked: ParsedRequest) -> float:
    """How long a stream may be silent."""
    if asked.silence_seconds is None:
        return request.app[SILENCE_SECONDS]
    return max(1.0, asked.silence_seconds) if asked.silence_seconds >= 0 else math.inf


async def _pump(
    request: web.Request, asked: ParsedRequest, found: Model, reply: Reply, stream: FrameStream
) -> None:
    """Write the engine's events as frames, and the pauses between them as comments."""
    clock, silence = asyncio.get_running_loop().time, _silence_seconds(request, asked)
    if asked.progress and asked.silence_seconds is None:
        silence = min(silence, EAGER_SILENCE_SECONDS)
    writer = EventWriter(reply, silence, asked.progress, quiet_until=clock() + silence)
    answers = choice_events(request.app[SUPERVISOR], found, asked)
    async with aclosing(with_pauses(answers, silence)) as events:
        async for event in events:
            if event and isinstance(event[1], Started):
                stream.response.headers.update(_relaxed_header(event[1]))
            for output in writer.output(event, clock()):
                await (stream.comment(output) if isinstance(output, str) else stream.data(output))
    for frame in reply.end():
        await stream.data(frame)
