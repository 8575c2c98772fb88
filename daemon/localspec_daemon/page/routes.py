"""The page's routes: its address with a code, the entry, its files, and the page of a refusal."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from importlib import resources
from typing import TypeAlias

from aiohttp import web

from localspec.errors import Forbidden
from localspec_daemon.http.output import json_response
from localspec_daemon.http.route import Route
from localspec_daemon.page.passes import Kept, Passes, cookie_names

PREFIX = "/web/"
ENTRY = "/web/enter/"
KEY_PATH = "/web/key"

OpenPort: TypeAlias = Callable[[], Awaitable[str]]
"""Opens the page's port if it is not open, and returns its address."""
PASSES: web.AppKey[Passes] = web.AppKey("passes", Passes)
OPEN_PORT: web.AppKey[OpenPort] = web.AppKey("open_port")
KEEP_PASSES: web.AppKey[Callable[[Kept], None]] = web.AppKey("keep")
"""Saves which browsers were let in, for the daemon after a restart."""
PRIVATE: web.RequestKey[bool] = web.RequestKey("private", bool)
"""Whether a request came from this user: on the socket, or from the page opened over it."""

_FILES = {
    "": ("index.html", "text/html"),
    "page.css": ("page.css", "text/css"),
    "key.js": ("key.js", "text/javascript"),
    "page.js": ("page.js", "text/javascript"),
    "left.js": ("left.js", "text/javascript"),
    "tools.js": ("tools.js", "text/javascript"),
}
FILES = frozenset(PREFIX + name for name in _FILES)
"""Paths that need only the cookie: browsers fetch them without the key. None is private."""
_HEADERS = {
    "Cache-Control": "no-store",
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
_REFUSED = frozenset({401, 403})
_REFUSAL_PAGE = """<!doctype html>
<meta charset="utf-8"><meta name="color-scheme" content="light dark"><title>LocalSpec</title>
<p>LocalSpec runs here, and this browser has not been let in yet.
<p>Type <code>localspec web</code> in a terminal: it opens the page.
"""


async def visit(request: web.Request) -> web.Response:
    """POST /v1/web: an address that opens the page once, on a loopback port.

    Raises Forbidden for a caller with the token: the page shows conversations, which the token does
    not open.
    """
    if not request[PRIVATE]:
        raise Forbidden("The page is opened over the socket.", fix="Run: localspec web")
    address = await request.app[OPEN_PORT]()
    code = request.app[PASSES].issue(asyncio.get_running_loop().time())
    return json_response({"url": f"http://{address}{ENTRY}{code}"})


async def enter(request: web.Request) -> web.Response:
    """GET /web/enter/{code}: give a cookie for the code, redirect to the page. Raises Forbidden.

    The page's address ends in a fragment with a second code for the script; browsers send fragments
    to no server. A HEAD uses up no code, and its answer is the same for invalid codes.
    """
    if request.method == "HEAD":
        return web.Response(status=303, headers={**_HEADERS, "Location": PREFIX})
    now = asyncio.get_running_loop().time()
    visit = request.app[PASSES].redeem(request.match_info["code"], now)
    if visit is None:
        raise Forbidden("This address was good once, for a minute.", fix="Run: localspec web")
    await asyncio.to_thread(request.app[KEEP_PASSES], request.app[PASSES].kept())
    headers = {**_HEADERS, "Location": f"{PREFIX}#{visit.code}"}
    response = web.Response(status=303, headers=headers)
    guarded, plain = cookie_names(port(request))
    for name, secure in ((guarded, True), (plain, False)):
        response.set_cookie(
            name, visit.cookie, httponly=True, samesite="Strict", path="/", secure=secure
        )
    return response


def port(request: web.Request) -> int:
    """The TCP port that a request came to; 0 on the Unix socket."""
    name = request.transport.get_extra_info("sockname") if request.transport else None
    return int(name[1]) if isinstance(name, tuple) else 0


def browser_refusal(request: web.Request, status: int) -> web.Response | None:
    """The page for a browser that was refused; None for clients that speak JSON.

    The page is the same for all: it holds nothing of the request.
    """
    if status not in _REFUSED or "text/html" not in request.headers.get("Accept", ""):
        return None
    return web.Response(
        text=_REFUSAL_PAGE, status=status, content_type="text/html", headers=_HEADERS
    )


def _file(path: str, name: str, kind: str) -> Route:
    body = resources.files("localspec_daemon.page").joinpath("static", name).read_bytes()

    async def serve(_request: web.Request) -> web.Response:
        return web.Response(body=body, content_type=kind, charset="utf-8", headers=_HEADERS)

    return Route("GET", path, serve, "A file of the page.", gives=kind)


def gets() -> list[Route]:
    """The GET routes of the page: the entry, and its files."""
    way_in = Route("GET", ENTRY + "{code}", enter, "A code for a cookie, and on to the page.")
    return [way_in, *(_file(PREFIX + path, *file) for path, file in _FILES.items())]
