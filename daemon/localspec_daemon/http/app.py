"""The HTTP application: the table of routes, and the middleware that makes errors responses."""

from __future__ import annotations

import asyncio
import re
import secrets
from functools import partial
from pathlib import Path

from aiohttp import web
from aiohttp.typedefs import Handler

from localspec.errors import LocalSpecError, RequestError
from localspec_daemon.http import openapi
from localspec_daemon.http.access import access_control
from localspec_daemon.http.origins import sharing
from localspec_daemon.http.output import json_response
from localspec_daemon.http.route import ANTHROPIC, OPENAI, family
from localspec_daemon.http.routes import TABLE
from localspec_daemon.http.serve import SILENCE_SECONDS, SUPERVISOR, internal_error
from localspec_daemon.page import colours, memory, routes
from localspec_daemon.page.passes import Passes
from localspec_daemon.supervisor.supervisor import VERSION, Supervisor

MAX_REQUEST_ID = 128
FORBIDDEN = 403


class NoSuchPath(RequestError):
    """The path is not served."""

    status, code = 404, "not_found"


class WrongMethod(RequestError):
    """The path is served for other methods."""

    status, code = 405, "method_not_allowed"


def create_app(
    supervisor: Supervisor,
    token_hash: bytes | None = None,
    *,
    silence_seconds: float = 10.0,
    pages: Path | None = None,
) -> web.Application:
    """The application on one supervisor. `token_hash` is the SHA-256 of the token of TCP callers.

    `pages` is the file that remembers, across restarts, which browsers have opened the page. A
    stream sends a comment after `silence_seconds` without an event.
    """
    passes = Passes(memory.load(pages)) if pages else Passes()
    front = access_control(token_hash, lambda: supervisor.config.server.origins, passes)
    app = web.Application(middlewares=[error_responses, front])
    app[SUPERVISOR] = supervisor
    app[SILENCE_SECONDS] = silence_seconds
    app[colours.ONE_AT_A_TIME] = asyncio.Semaphore(1)
    app[routes.PASSES] = passes
    app[routes.KEEP_PASSES] = partial(memory.keep, pages) if pages else lambda _: None
    app.on_response_prepare.append(_add_headers)
    app[openapi.ROUTES] = TABLE
    for route in TABLE:
        app.router.add_route(
            route.method, route.path, route.handler, expect_handler=_continue_later
        )
        if route.method == "GET":
            app.router.add_route("HEAD", route.path, route.handler, expect_handler=_continue_later)
    app.router.add_route("*", "/{path:.*}", not_found, expect_handler=_continue_later)
    return app


@web.middleware
async def error_responses(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Makes every error a response. The outermost middleware."""
    try:
        return await handler(request)
    except LocalSpecError as error:
        return _failure(request, error)
    except web.HTTPException as error:
        return _failure(request, RequestError(f"{error.reason}."), error.status)
    except ConnectionError:
        raise  # the client has gone
    except Exception:  # noqa: BLE001 - a bug must not take the connection's other requests along
        return _failure(request, internal_error())


async def not_found(request: web.Request) -> web.StreamResponse:
    """The handler of all other paths and methods. Raises NoSuchPath, WrongMethod."""
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


async def _continue_later(_request: web.Request) -> None:
    """Leave `Expect: 100-continue` to `access.body`, which answers it once the token was seen."""


async def _add_headers(request: web.Request, response: web.StreamResponse) -> None:
    """Add the Server header, the request's id (the client's or a new one) and the CORS headers."""
    response.headers["Server"] = f"localspec/{VERSION}"
    given = request.headers.get("X-Request-Id", "")
    known = re.fullmatch(rf"[!-~]{{1,{MAX_REQUEST_ID}}}", given)
    response.headers["X-Request-Id"] = given if known else f"req-{secrets.token_hex(12)}"
    if response.status != FORBIDDEN:
        response.headers.update(sharing(request.headers))


def _failure(
    request: web.Request, error: LocalSpecError, status_: int | None = None
) -> web.Response:
    """The error in the shape of the path's API; a page for a browser."""
    status = status_ or error.status
    if (page := routes.browser_refusal(request, status)) is not None:
        return page
    default = ANTHROPIC if "anthropic-version" in request.headers else OPENAI
    shown = family(request.path, default).errors(error)
    response = json_response(shown, status)
    if isinstance(error, WrongMethod):
        response.headers["Allow"] = str(error.details["allow"])
    return response
