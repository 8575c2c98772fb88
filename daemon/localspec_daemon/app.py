"""The HTTP application: one table of routes, one edge where errors become responses."""

from __future__ import annotations

import re
import secrets
from collections.abc import Callable
from contextlib import aclosing

from aiohttp import web
from aiohttp.typedefs import Handler

from localspec.errors import LocalSpecError, RequestError
from localspec.protocol import Replayed
from localspec_daemon import metrics, ollama_api, pickers, questions
from localspec_daemon.dialects import (
    anthropic,
    anthropic_replies,
    infill,
    llama_server,
    ollama,
    openai,
    openai_errors,
    own,
    responses,
)
from localspec_daemon.dialects.dialect import Json
from localspec_daemon.origins import sharing
from localspec_daemon.page import routes
from localspec_daemon.page.passes import Passes
from localspec_daemon.serve import SUPERVISOR, bug, spoken
from localspec_daemon.supervisor import Supervisor
from localspec_daemon.wall import body, caller, wall
from localspec_daemon.wire import json_response

DIALECTS = {
    "/v1/chat/completions": openai.CHAT,
    "/chat/completions": openai.CHAT,
    "/v1/completions": openai.COMPLETION,
    "/v1/responses": responses.RESPONSES,
    "/responses": responses.RESPONSES,
    "/v1/messages": anthropic.MESSAGES,
    "/completion": llama_server.COMPLETION,
    "/completions": llama_server.COMPLETION,
    "/v1/completion": llama_server.COMPLETION,
    "/infill": infill.INFILL,
    "/v1/infill": infill.INFILL,
    "/api/chat": ollama.CHAT,
    "/api/generate": ollama.GENERATE,
}
"""The endpoints that answer with text, by their paths."""

FAMILIES: tuple[tuple[str, Callable[[LocalSpecError], Json]], ...] = (
    ("/api/", ollama.errors),
    ("/v1/messages", anthropic_replies.errors),
)
"""Whose errors a path speaks; OpenAI's where nothing else is said."""

MAX_REQUEST_ID = 128
FORBIDDEN = 403


class NoSuchPath(RequestError):
    """Nothing is served there."""

    status, code = 404, "not_found"


class WrongMethod(RequestError):
    """Something is served there, by other methods."""

    status, code = 405, "method_not_allowed"


def create_app(supervisor: Supervisor, token_hash: bytes | None = None) -> web.Application:
    """The application on one supervisor. `token_hash` is what TCP callers have to match."""
    passes = Passes()
    front = wall(token_hash, lambda: supervisor.config.server.origins, passes)
    app = web.Application(middlewares=[edge, front])
    app[SUPERVISOR] = supervisor
    app[routes.PASSES] = passes
    app.on_response_prepare.append(_sign)
    for path, dialect in DIALECTS.items():
        handler = ollama_api.speaks(dialect) if path.startswith("/api/") else spoken(dialect)
        app.router.add_post(path, handler, expect_handler=_later)
    for path, handler in POSTS.items():
        app.router.add_post(path, handler, expect_handler=_later)
    for path, handler in (GETS | routes.gets()).items():
        app.router.add_get(path, handler, expect_handler=_later)
    app.router.add_delete("/api/delete", ollama_api.delete, expect_handler=_later)
    app.router.add_route("*", "/{path:.*}", nowhere, expect_handler=_later)
    return app


@web.middleware
async def edge(request: web.Request, handler: Handler) -> web.StreamResponse:
    """The one place where an error becomes a response."""
    try:
        return await handler(request)
    except LocalSpecError as error:
        return _failure(request, error)
    except web.HTTPException as error:
        return _failure(request, RequestError(f"{error.reason}."), error.status)
    except ConnectionError:
        raise  # the client has gone: nobody to answer
    except Exception:  # noqa: BLE001 - a bug must not take the connection's other requests along
        return _failure(request, bug())


async def nowhere(request: web.Request) -> web.StreamResponse:
    """Every path and method that nothing else takes. Raises NoSuchPath, WrongMethod."""
    methods: set[str] = set()
    for resource in request.app.router.resources():
        _, allowed = await resource.resolve(request)
        methods |= allowed
    methods.discard("*")
    if not methods:
        raise NoSuchPath("Nothing is served at this path.", fix="docs/api.md has every path.")
    allow = ", ".join(sorted(methods))
    raise WrongMethod(
        "This path does not take that method.", fix=f"Use {allow}.", details={"allow": allow}
    )


async def replay(request: web.Request) -> web.Response:
    """POST /v1/replay: what target and drafters think of a text that is there already."""
    supervisor = request.app[SUPERVISOR]
    data = await body(request, supervisor.config.server.max_body_bytes)
    asked, wanted = own.replay(data, supervisor.config, caller(request))
    found = await supervisor.model(asked.model, aliases=asked.aliases)
    async with supervisor.request(), aclosing(supervisor.generate(found, wanted)) as events:
        async for event in events:
            if isinstance(event, Replayed):
                return json_response(own.replayed(event))
    raise RuntimeError("a replay ended without its last event")


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


POSTS: dict[str, Handler] = {
    "/v1/replay": replay,
    "/v1/web": routes.visit,
    "/v1/models/load": pickers.load,
    "/models/load": pickers.load,
    "/v1/models/unload": pickers.unload,
    "/models/unload": pickers.unload,
    "/v1/messages/count_tokens": questions.count_tokens,
    "/api/show": ollama_api.show,
    "/api/pull": ollama_api.pull,
    "/api/embed": questions.embed,
    "/api/embeddings": questions.embed,
}
GETS: dict[str, Handler] = {
    "/": ollama_api.root,
    "/v1/models": pickers.models,
    "/models": pickers.models,
    "/v1/models/sse": pickers.changes,
    "/models/sse": pickers.changes,
    "/v1/models/{id:.+}": pickers.model,
    "/v1/status": status,
    "/health": health,
    "/v1/health": health,
    "/metrics": prometheus,
    "/props": pickers.props,
    "/v1/props": pickers.props,
    "/slots": pickers.slots,
    "/v1/slots": pickers.slots,
    "/api/version": ollama_api.version,
    "/api/tags": ollama_api.tags,
    "/api/ps": ollama_api.ps,
}
for _path, _handler in {
    "tokenize": questions.tokenize,
    "detokenize": questions.detokenize,
    "apply-template": questions.apply_template,
    "embedding": questions.embed,
    "embeddings": questions.embed,
}.items():
    POSTS |= {f"/{_path}": _handler, f"/v1/{_path}": _handler}


async def _later(_request: web.Request) -> None:
    """`Expect: 100-continue` is answered when the body is read, by `wall.body`: after the token."""


async def _sign(request: web.Request, response: web.StreamResponse) -> None:
    """On every response: the request's id, the caller's own or a new one, and for which page."""
    given = request.headers.get("X-Request-Id", "")
    known = re.fullmatch(rf"[!-~]{{1,{MAX_REQUEST_ID}}}", given)
    response.headers["X-Request-Id"] = given if known else f"req-{secrets.token_hex(12)}"
    if response.status != FORBIDDEN:
        response.headers.update(sharing(request.headers))


def _failure(
    request: web.Request, error: LocalSpecError, status_: int | None = None
) -> web.Response:
    """The error in the shape of the family that asked."""
    shape: Callable[[LocalSpecError], Json] = openai_errors.errors
    if "anthropic-version" in request.headers:
        shape = anthropic_replies.errors
    shape = next((own for prefix, own in FAMILIES if request.path.startswith(prefix)), shape)
    response = json_response(shape(error), status_ or error.status)
    if isinstance(error, WrongMethod):
        response.headers["Allow"] = str(error.details["allow"])
    return response
