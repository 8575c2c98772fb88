"""The HTTP application: one table of routes, one edge where errors become responses."""

from __future__ import annotations

from contextlib import aclosing
from typing import Any

import msgspec
from aiohttp import web
from aiohttp.typedefs import Handler

from localspec.catalog.registry import Model as Entry
from localspec.errors import LocalSpecError, RequestError
from localspec.protocol import Replayed
from localspec_daemon import metrics
from localspec_daemon.dialects import openai, own
from localspec_daemon.dialects.bodies import decode
from localspec_daemon.dialects.openai_errors import errors
from localspec_daemon.dialects.relay import Route
from localspec_daemon.model import Model
from localspec_daemon.serve import SUPERVISOR, bug, spoken
from localspec_daemon.supervisor import Supervisor
from localspec_daemon.wall import body, caller, wall
from localspec_daemon.wire import json_response

DIALECTS = {
    "/v1/chat/completions": openai.CHAT,
    "/v1/completions": openai.COMPLETION,
}


class NamedModel(msgspec.Struct):
    """The body of POST /v1/models/load and /v1/models/unload."""

    model: str | None = None


def create_app(supervisor: Supervisor, token_hash: bytes | None = None) -> web.Application:
    """The application on one supervisor. `token_hash` is what TCP callers have to match."""
    app = web.Application(middlewares=[edge, wall(token_hash)])
    app[SUPERVISOR] = supervisor
    app.add_routes(
        [
            *(web.post(path, spoken(dialect)) for path, dialect in DIALECTS.items()),
            web.post("/v1/replay", replayed),
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
        return _failure(bug())


async def replayed(request: web.Request) -> web.Response:
    """POST /v1/replay: what target and drafters think of a text that is there already."""
    supervisor = request.app[SUPERVISOR]
    data = await body(request, supervisor.config.server.max_body_bytes)
    asked, replay = own.replay(data, supervisor.config, caller(request))
    found = await supervisor.model(asked.model, aliases=asked.aliases)
    async with supervisor.request(), aclosing(supervisor.generate(found, replay)) as events:
        async for event in events:
            if isinstance(event, Replayed):
                return json_response(own.replayed(event))
    raise RuntimeError("a replay ended without its last event")


async def models(request: web.Request) -> web.Response:
    """GET /v1/models: what a request may name. Loads nothing."""
    supervisor = request.app[SUPERVISOR]
    cards = [_card(supervisor, entry) for entry in await supervisor.entries()]
    cards += [_upstream_card(to) for to in await supervisor.upstream_models()]
    return json_response({"object": "list", "data": cards})


async def model(request: web.Request) -> web.Response:
    """GET /v1/models/{id}: one of them; the id may contain slashes and colons."""
    supervisor, name = request.app[SUPERVISOR], request.match_info["id"]
    if to := await supervisor.elsewhere(name):
        return json_response(_upstream_card(to))
    return json_response(_card(supervisor, await supervisor.entry(name)))


async def load(request: web.Request) -> web.Response:
    """POST /v1/models/load: begin to load and return; /v1/status shows how far it is."""
    found = await _named(request)
    if not found.worker:
        found.start_loading()
    return json_response({"model": found.name, "status": found.state})


async def unload(request: web.Request) -> web.Response:
    """POST /v1/models/unload: give the memory back once the open requests are finished.

    A loading ends at once, and the requests that wait for it are told.
    """
    found = await _named(request)
    request.app[SUPERVISOR].pool.retire(found)
    found.give_up()
    return json_response({"model": found.name, "status": "unloading"})


async def status(request: web.Request) -> web.Response:
    """GET /v1/status: everything that `localspec status` shows."""
    return json_response(await request.app[SUPERVISOR].status())


async def health(request: web.Request) -> web.Response:
    """GET /health: whether requests make progress, not whether a port answers."""
    ailment = request.app[SUPERVISOR].ailment()
    if not ailment:
        return json_response({"status": "ok"})
    fields = {"code": 503, "message": ailment, "type": "unavailable_error"}
    return json_response({"error": fields}, 503)


async def prometheus(request: web.Request) -> web.Response:
    """GET /metrics."""
    supervisor = request.app[SUPERVISOR]
    text = metrics.exposition(supervisor.tallies, supervisor.pool.models.values())
    return web.Response(body=text, headers={"Content-Type": "text/plain; version=0.0.4"})


async def _named(request: web.Request) -> Model:
    supervisor = request.app[SUPERVISOR]
    data = await body(request, supervisor.config.server.max_body_bytes)
    return await supervisor.model(decode(data, NamedModel).model, aliases=False)


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


def _failure(error: LocalSpecError, status_: int | None = None) -> web.Response:
    return json_response(errors(error), status_ or error.status)


def _refusal(error: web.HTTPException) -> RequestError:
    """What aiohttp itself refused: no such path, no such method."""
    return RequestError(f"{error.reason}.", fix="docs/api.md has every path.")
