"""The HTTP application: one table of routes, one edge where errors become responses."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from functools import partial
from typing import Any, TypeAlias

import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler

from localspec.catalog.registry import Model as Entry
from localspec.config import Config
from localspec.errors import LocalSpecError, RequestError
from localspec.protocol import Delta, Finished, Progress, Replayed
from localspec_daemon import forward, metrics
from localspec_daemon.dialects import openai, own, relay
from localspec_daemon.dialects.relay import Route
from localspec_daemon.model import Model
from localspec_daemon.sse import EventStream
from localspec_daemon.supervisor import Supervisor
from localspec_daemon.wall import CLIENT, body, wall

_log = logging.getLogger("localspec.app")

SUPERVISOR: web.AppKey[Supervisor] = web.AppKey("supervisor", Supervisor)
RETRY_SECONDS = {429: "1", 503: "2"}

Reader: TypeAlias = Callable[[bytes, Config, str], openai.Asked]
Pump: TypeAlias = Callable[[EventStream], Awaitable[None]]


class NamedModel(msgspec.Struct):
    """The body of POST /v1/models/load and /v1/models/unload."""

    model: str | None = None


def create_app(supervisor: Supervisor, token_hash: bytes | None = None) -> web.Application:
    """The application on one supervisor. `token_hash` is what TCP callers have to match."""
    app = web.Application(middlewares=[edge, wall(token_hash)])
    app[SUPERVISOR] = supervisor
    app.add_routes(
        [
            web.post("/v1/chat/completions", chat),
            web.post("/v1/completions", completion),
            web.post("/v1/replay", replay),
            web.get("/v1/models", models),
            web.get("/models", models),
            web.post("/v1/models/load", load),
            web.post("/v1/models/unload", unload),
            web.get("/v1/models/{id:.+}", model),
            web.get("/v1/status", status),
            web.get("/health", health),
            web.get("/v1/health", health),
            web.get("/metrics", prometheus),
        ]
    )
    return app


@web.middleware
async def edge(request: web.Request, handler: Handler) -> web.StreamResponse:
    """The one place where an error becomes a response."""
    try:
        return await handler(request)
    except LocalSpecError as error:
        return _failure(error)
    except web.HTTPException as error:
        return _failure(_refusal(error), error.status)
    except ConnectionError:
        raise  # the client has gone: nobody to answer
    except Exception:  # noqa: BLE001 - a bug must not take the connection's other requests along
        return _failure(_bug())


async def chat(request: web.Request) -> web.StreamResponse:
    """POST /v1/chat/completions."""
    return await _generate(request, openai.chat, "chat/completions")


async def completion(request: web.Request) -> web.StreamResponse:
    """POST /v1/completions."""
    return await _generate(request, openai.completion, "completions")


async def replay(request: web.Request) -> web.Response:
    """POST /v1/replay: what target and drafters think of a text that is there already."""
    supervisor = request.app[SUPERVISOR]
    data = await body(request, supervisor.config.server.max_body_bytes)
    name, asked = own.replay(data, supervisor.config, request[CLIENT])
    found = await supervisor.model(name)
    async with supervisor.request(), aclosing(supervisor.generate(found, asked)) as events:
        async for event in events:
            if isinstance(event, Replayed):
                return _json(own.replayed(event))
    raise RuntimeError("a replay ended without its last event")


async def models(request: web.Request) -> web.Response:
    """GET /v1/models: what a request may name. Loads nothing."""
    supervisor = request.app[SUPERVISOR]
    cards = [_card(supervisor, entry) for entry in await supervisor.entries()]
    cards += [_upstream_card(to) for to in await supervisor.upstream_models()]
    return _json({"object": "list", "data": cards})


async def model(request: web.Request) -> web.Response:
    """GET /v1/models/{id}: one of them; the id may contain slashes and colons."""
    supervisor, name = request.app[SUPERVISOR], request.match_info["id"]
    if to := await supervisor.elsewhere(name):
        return _json(_upstream_card(to))
    return _json(_card(supervisor, await supervisor.entry(name)))


async def load(request: web.Request) -> web.Response:
    """POST /v1/models/load: begin to load and return; /v1/status shows how far it is."""
    found = await _named(request)
    if not found.worker:
        found.start_loading()
    return _json({"model": found.name, "status": found.state})


async def unload(request: web.Request) -> web.Response:
    """POST /v1/models/unload: give the memory back once the open requests are finished.

    A loading ends at once, and the requests that wait for it are told.
    """
    found = await _named(request)
    request.app[SUPERVISOR].pool.retire(found)
    found.give_up()
    return _json({"model": found.name, "status": "unloading"})


async def status(request: web.Request) -> web.Response:
    """GET /v1/status: everything that `localspec status` shows."""
    return _json(await request.app[SUPERVISOR].status())


async def health(request: web.Request) -> web.Response:
    """GET /health: whether requests make progress, not whether a port answers."""
    ailment = request.app[SUPERVISOR].ailment()
    if not ailment:
        return _json({"status": "ok"})
    fields = {"code": 503, "message": ailment, "type": "unavailable_error"}
    return _json({"error": fields}, 503)


async def prometheus(request: web.Request) -> web.Response:
    """GET /metrics."""
    supervisor = request.app[SUPERVISOR]
    text = metrics.exposition(supervisor.tallies, supervisor.pool.models.values())
    return web.Response(body=text, headers={"Content-Type": "text/plain; version=0.0.4"})


async def _generate(request: web.Request, read: Reader, endpoint: str) -> web.StreamResponse:
    supervisor = request.app[SUPERVISOR]
    config = supervisor.config
    data = await body(request, config.server.max_body_bytes)
    if config.upstream and (to := await supervisor.elsewhere(relay.asked(data).model)):
        return await _forward(request, relay.Call(to, endpoint, relay.body(data, to.model)), data)
    asked = read(data, config, request[CLIENT])
    found = await supervisor.model(asked.model)
    reply = openai.Reply(asked, found.name)
    if asked.stream:
        return await _stream(request, partial(_pump, request, found, reply))
    return await _whole(request, found, reply)


async def _forward(request: web.Request, call: relay.Call, data: bytes) -> web.StreamResponse:
    supervisor, client = request.app[SUPERVISOR], request[CLIENT]
    if relay.asked(data).stream:
        return await _stream(request, partial(forward.pump, supervisor, call, client))
    async with supervisor.request():
        answer = await forward.whole(supervisor, call, client)
    return web.Response(body=answer, content_type="application/json")


async def _whole(request: web.Request, found: Model, reply: openai.Reply) -> web.StreamResponse:
    supervisor = request.app[SUPERVISOR]
    texts: list[str] = []
    origins: list[tuple[int, str]] = []
    async with (
        supervisor.request(),
        aclosing(supervisor.generate(found, reply.asked.generate)) as events,
    ):
        async for event in events:
            if isinstance(event, Delta):
                texts.append(event.text)
                origins += event.origins
            elif isinstance(event, Finished):
                return _json(reply.whole("".join(texts), event, origins))
    raise RuntimeError("a request ended without its last event")


async def _stream(request: web.Request, pump: Pump) -> web.StreamResponse:
    stream = EventStream(request)
    try:
        async with request.app[SUPERVISOR].request():
            await pump(stream)
    except ConnectionError:
        raise
    except Exception as error:
        if not stream.begun:
            raise
        known = error if isinstance(error, LocalSpecError) else _bug()
        await stream.data(openai.error_body(known))
        return await stream.end()
    return await stream.done()


async def _pump(
    request: web.Request, found: Model, reply: openai.Reply, stream: EventStream
) -> None:
    """Events of the engine into events of the stream, the first chunk before the first of them."""
    first = reply.first()
    async with aclosing(request.app[SUPERVISOR].generate(found, reply.asked.generate)) as events:
        async for event in events:
            if isinstance(event, Progress):
                await stream.comment(f"loading {event.stage} {event.fraction:.0%}")
                continue
            if first:
                await stream.data(first)
                first = None
            if isinstance(event, Delta) and event.text:
                await stream.data(reply.delta(event))
            elif isinstance(event, Finished):
                await stream.data(reply.last(event))
                if reply.asked.include_usage:
                    await stream.data(reply.usage(event))


async def _named(request: web.Request) -> Model:
    supervisor = request.app[SUPERVISOR]
    data = await body(request, supervisor.config.server.max_body_bytes)
    return await supervisor.model(openai.decode(data, NamedModel).model)


def _card(supervisor: Supervisor, entry: Entry) -> dict[str, Any]:
    """One model as llama-server shows it; pickers key on `owned_by`."""
    known = supervisor.pool.models.get(entry.name)
    state = known.state if known else "unloaded"
    meta: dict[str, Any] = {"size": entry.size_bytes}
    if known and known.worker and (ready := known.worker.ready):
        meta |= {
            "n_ctx": ready.context,
            "n_ctx_train": ready.context_train,
            "n_params": ready.parameters,
            "n_vocab": ready.n_vocab,
        }
    return {
        "id": entry.name,
        "object": "model",
        "created": int(entry.modified),
        "owned_by": "llamacpp",
        "aliases": list(entry.aliases),
        "meta": meta,
        "status": {"value": "loaded" if state == "ready" else state},
        "architecture": {"input_modalities": ["text"], "output_modalities": ["text"]},
    }


def _upstream_card(to: Route) -> dict[str, Any]:
    """A model that is elsewhere, in the same shape; it is there for all that is known here."""
    return {
        "id": to.model,
        "object": "model",
        "created": 0,
        "owned_by": f"upstream:{to.name}",
        "aliases": [],
        "meta": {},
        "status": {"value": "loaded"},
        "upstream": {"name": to.name, "url": to.upstream.url},
    }


def _json(value: Any, status_: int = 200) -> web.Response:
    retry = {"Retry-After": RETRY_SECONDS[status_]} if status_ in RETRY_SECONDS else None
    body_ = msgspec.json.encode(value)  # compact: one editor drops answers with spaces in them
    return web.Response(body=body_, status=status_, headers=retry, content_type="application/json")


def _failure(error: LocalSpecError, status_: int | None = None) -> web.Response:
    return _json(openai.error_body(error), status_ or error.status)


def _refusal(error: web.HTTPException) -> RequestError:
    """What aiohttp itself refused: no such path, no such method."""
    return RequestError(f"{error.reason}.", fix="docs/api.md has every path.")


def _bug() -> LocalSpecError:
    """Called while an exception that nobody expected is being handled."""
    _log.exception("bug")
    return LocalSpecError("The daemon has a bug.", fix="`localspec logs` has the details.")
