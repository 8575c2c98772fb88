"""POST /web/key: the page's script exchanges the code in its address for its origin's key."""

from __future__ import annotations

import asyncio

import msgspec
from aiohttp import web

from localspec.errors import Forbidden
from localspec_daemon.api.types.shape import Shape
from localspec_daemon.http.output import json_response
from localspec_daemon.http.route import Route
from localspec_daemon.http.tokens import decoded
from localspec_daemon.page.routes import KEEP_PASSES, KEY_PATH, PASSES


class Claim(msgspec.Struct):
    """The code that stood behind the address of the page."""

    code: str


class Key(Shape):
    """The value that the page sends with each request."""

    key: str


async def claim(request: web.Request) -> web.Response:
    """POST /web/key. Raises Forbidden for a code that is not good any more."""
    asked = await decoded(request, Claim)
    key = request.app[PASSES].claim(asked.code, asyncio.get_running_loop().time())
    if key is None:
        raise Forbidden("This address was good once, for a minute.", fix="Run: localspec web")
    await asyncio.to_thread(request.app[KEEP_PASSES], request.app[PASSES].kept())
    response = json_response({"key": key})
    response.headers["Cache-Control"] = "no-store"
    return response


ROUTES = (Route("POST", KEY_PATH, claim, "A code for the page's key.", Claim, Key),)
