"""Who may speak, and how much: the checks between a connection and a handler.

| caller | identity | Host | Origin, Sec-Fetch-Site | body |
| --- | --- | --- | --- | --- |
| Unix socket | the kernel's uid, checked by `listen.Door` | any | refused | JSON, capped, in time |
| TCP on loopback | bearer token | this address and port only | refused | the same |

Browsers are the danger of a local port: any web page may send requests to it. There are therefore
no CORS headers at all, and what carries an Origin is refused before it is routed.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import os
import socket
from typing import TypeAlias

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware
from multidict import CIMultiDictProxy

from localspec.errors import Forbidden, RequestError, TooLarge
from localspec_daemon.dialects.dialect import Caller

RECEIPT_SECONDS = 10.0
"""A body that takes longer is one that never ends; on a local socket 8 MiB take milliseconds."""

Headers: TypeAlias = CIMultiDictProxy[str]

SESSION_HEADERS = ("x-session-id", "session-id", "x-session-affinity")
"""What agents call a conversation by."""
MAX_SESSION_CHARS = 128

CLIENT: web.RequestKey[str] = web.RequestKey("client", str)
"""Who speaks, as the kernel or the token says it: the principal of caches and statistics."""


class Unauthorized(Forbidden):
    """No token, or a wrong one: HTTP has a status of its own for that."""

    status, kind = 401, "authentication_error"


class WrongContentType(RequestError):
    """A body that does not say that it is JSON; forms are what web pages can send unasked."""

    status = 415


def wall(token_hash: bytes | None) -> Middleware:
    """The middleware that stands before every route, the unknown ones included."""

    @web.middleware
    async def middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
        refuse_browsers(request.headers)
        sock = request.transport.get_extra_info("socket") if request.transport else None
        if sock is not None and sock.family == socket.AF_UNIX:
            request[CLIENT] = f"uid:{os.getuid()}"
        else:
            port = sock.getsockname()[1] if sock is not None else 0
            check_host(request.headers, port)
            check_token(request.headers, token_hash)
            request[CLIENT] = "token"
        if request.method == "POST" and request.content_type != "application/json":
            raise WrongContentType(
                f"The body is {request.content_type}, not JSON.",
                fix="Send the header Content-Type: application/json.",
            )
        return await handler(request)

    return middleware


def refuse_browsers(headers: Headers) -> None:
    """Raises Forbidden for what a web page sent."""
    if "Origin" in headers or headers.get("Sec-Fetch-Site", "none") not in {"none", "same-origin"}:
        raise Forbidden("Web pages may not speak to this daemon.", fix="Use a local client.")


def check_host(headers: Headers, port: int) -> None:
    """Raises Forbidden unless the one Host header names this loopback port: DNS can be rebound."""
    hosts = headers.getall("Host", [])
    allowed = {f"{name}:{port}" for name in ("127.0.0.1", "localhost", "[::1]")}
    if len(hosts) != 1 or hosts[0].lower() not in allowed:
        raise Forbidden(
            "The Host header does not name this daemon.", fix=f"Use http://127.0.0.1:{port}/."
        )


def check_token(headers: Headers, token_hash: bytes | None) -> None:
    """Raises Unauthorized unless the one Authorization header carries the secret."""
    given = headers.getall("Authorization", [])
    scheme, _, secret = given[0].partition(" ") if len(given) == 1 else ("", "", "")
    found = hashlib.sha256(secret.strip().encode("utf-8", "surrogateescape")).digest()
    right = token_hash is not None and hmac.compare_digest(found, token_hash)
    if scheme.lower() != "bearer" or not right:
        raise Unauthorized(
            "TCP callers need the token.",
            fix="Send Authorization: Bearer with the content of the file `token` in the state "
            "directory, or use the Unix socket.",
        )


def caller(request: web.Request) -> Caller:
    """Who asks: the principal, and the conversation that the headers name."""
    given = filter(None, map(request.headers.get, SESSION_HEADERS))
    return Caller(request[CLIENT], next(given, "")[:MAX_SESSION_CHARS])


async def body(request: web.Request, limit_bytes: int) -> bytes:
    """The whole body. Raises TooLarge, and RequestError when it does not come in time."""
    too_large = TooLarge(
        f"The body is over {limit_bytes} bytes.", fix="Raise server.max_body_bytes."
    )
    if (request.content_length or 0) > limit_bytes:
        raise too_large
    received = bytearray()
    try:
        async with asyncio.timeout(RECEIPT_SECONDS):
            async for part in request.content.iter_any():
                received += part
                if len(received) > limit_bytes:
                    raise too_large
    except TimeoutError as error:
        raise RequestError(
            f"The body did not arrive within {RECEIPT_SECONDS:g} s.", fix="Send it at once."
        ) from error
    except web.RequestPayloadError as error:
        raise RequestError(f"The body is broken: {error}.") from error
    return bytes(received)
