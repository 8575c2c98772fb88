"""Access control: the checks of a request before its handler.

| caller | identity | Host | Origin, Sec-Fetch-Site | body |
| --- | --- | --- | --- | --- |
| Unix socket | the kernel's uid, by `listen.Listener` | any | refused | limits of size and time |
| TCP on loopback | bearer token or API key | this address and port | refused | also no form |
| the page of `localspec web` | cookie and key | the same | its own | the same |

Any web page in a browser can send requests to a local port. So a request with an Origin is refused
before it is routed, without a CORS header, unless `server.origins` names the origin.
"""

from __future__ import annotations

import asyncio
import codecs
import hashlib
import hmac
import os
import socket
from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias

from aiohttp import HttpVersion10, HttpVersion11, web
from aiohttp.typedefs import Handler, Middleware
from multidict import CIMultiDictProxy

from localspec.errors import Forbidden, RequestError, TooLarge
from localspec_daemon.api.dialect import Caller
from localspec_daemon.http.body_limits import check_values, off_loop
from localspec_daemon.http.origins import allowed
from localspec_daemon.http.raw_errors import ENCODINGS, HttpConnection, wrong_encoding
from localspec_daemon.page.passes import Passes, cookie_names
from localspec_daemon.page.routes import ENTRY, FILES, KEY_PATH, PRIVATE, port

RECEIPT_SECONDS = 10.0
"""The longest time for a body to arrive; on a local socket 8 MiB take milliseconds."""

Headers: TypeAlias = CIMultiDictProxy[str]

FORMS = frozenset({"application/x-www-form-urlencoded", "multipart/form-data", "text/plain"})
"""Content types that web pages can send to any address without a preflight."""

OPEN_PATHS = frozenset({"/health", "/v1/health"})
"""Paths that need no token: they show nothing private, and process supervisors use them."""

SESSION_HEADERS = ("x-session-id", "session-id", "x-session-affinity")
"""Headers by which agents name a conversation."""
MAX_SESSION_CHARS = 128

_BODY: web.RequestKey[bytes] = web.RequestKey("body", bytes)
CLIENT: web.RequestKey[str] = web.RequestKey("client", str)
"""The principal of a request, for caches and statistics: from the kernel or the token."""
KNOWN: web.RequestKey[bool] = web.RequestKey("known", bool)
"""Whether the caller is the user's own; on paths that need no token it may be anybody."""


class Unauthorized(Forbidden):
    """The request has no token, or a wrong one."""

    status, code, kind = 401, "invalid_api_key", "authentication_error"


class WrongContentType(RequestError):
    """The body has a content type that web pages can send without a preflight."""

    status = 415


class WrongExpectation(RequestError):
    """The request has an `Expect` other than 100-continue."""

    status = 417


def access_control(
    token_hash: bytes | None, origins: Callable[[], Sequence[str]], passes: Passes
) -> Middleware:
    """The middleware before every route, also before unknown paths.

    `origins` gives the current patterns of allowed web pages, `passes` knows the browsers that have
    opened the daemon's own page.
    """

    @web.middleware
    async def middleware(request: web.Request, handler: Handler) -> web.StreamResponse:
        sock = request.transport.get_extra_info("socket") if request.transport else None
        on_socket = sock is not None and sock.family == socket.AF_UNIX
        cookies = _cookies(request) if not on_socket and _of_one_page(request) else []
        own = passes.admits(cookies, request.headers)
        visits = own or passes.visits(cookies, request.headers)
        if not visits and not allowed(request.headers, origins()):
            raise Forbidden(
                "Web pages may not speak to this daemon.",
                fix="Use a local client, or name the page's origin in server.origins.",
            )
        if request.version < HttpVersion10:
            raise RequestError("This is not valid HTTP/1.1.")
        request[PRIVATE] = own or on_socket
        request[CLIENT] = f"uid:{os.getuid()}" if on_socket else "token"
        request[KNOWN] = on_socket or own or _has_token(request.headers, token_hash)
        if not on_socket:
            check_host(request.headers, *(sock.getsockname()[:2] if sock else ("", 0)))
            if _preflight(request):
                return web.Response(status=204)
            if own or not _opens(request, visits=visits):
                if not request[KNOWN]:
                    check_token(request.headers, token_hash)
                if isinstance(request.protocol, HttpConnection):
                    request.protocol.admit()
            check_type(request)
        if request.headers.get("Expect", "100-continue").lower() != "100-continue":
            raise WrongExpectation("This Expect is not served.", fix="Leave the header out.")
        return await handler(request)

    return middleware


def _of_one_page(request: web.Request) -> bool:
    """Whether a request has at most one Origin: with two, the wrong one could be checked."""
    return len(request.headers.getall("Origin", [])) <= 1


def _cookies(request: web.Request) -> list[str]:
    """The values of the page's cookie, under each of its names."""
    found = map(request.cookies.get, cookie_names(port(request)))
    return [value for value in found if value is not None]


def _opens(request: web.Request, *, visits: bool) -> bool:
    """Whether the path needs no token, or only the cookie."""
    if request.path in OPEN_PATHS or request.path.startswith(ENTRY):
        return True
    return visits and (request.path in FILES or request.path == KEY_PATH)


def _preflight(request: web.Request) -> bool:
    """Whether it is a CORS preflight of an allowed page."""
    asks = "Access-Control-Request-Method" in request.headers
    return request.method == "OPTIONS" and asks and "Origin" in request.headers


def check_type(request: web.Request) -> None:
    """Raises WrongContentType for a form: a web page can send one without a preflight."""
    if request.method == "POST" and request.content_type in FORMS:
        raise WrongContentType(
            "The body says that it is a form.",
            fix="Send the header Content-Type: application/json.",
        )


def check_host(headers: Headers, address: str, port: int) -> None:
    """Raises Forbidden unless the one Host header names this loopback port (DNS rebinding).

    `address` is the local one of the connection: any of 127.0.0.0/8 may be in use.
    """
    hosts = headers.getall("Host", [])
    own = f"[{address}]" if ":" in address else address
    names = {f"{name}:{port}" for name in ("127.0.0.1", "localhost", "[::1]", own)}
    if len(hosts) != 1 or hosts[0].lower() not in names:
        raise Forbidden(
            "The Host header does not name this daemon.", fix=f"Use http://{own}:{port}/."
        )


def _has_token(headers: Headers, token_hash: bytes | None) -> bool:
    """Whether Authorization or X-Api-Key carries the secret, and neither another one."""
    schemes = (value.partition(" ") for value in headers.getall("Authorization", []))
    given = [secret for scheme, _, secret in schemes if scheme.lower() == "bearer"]
    given += headers.getall("X-Api-Key", [])
    right = [token_hash is not None and _matches(secret, token_hash) for secret in given]
    return bool(right) and all(right)


def check_token(headers: Headers, token_hash: bytes | None) -> None:
    """Raises Unauthorized without the token."""
    if not _has_token(headers, token_hash):
        raise Unauthorized(
            "TCP callers need the token.",
            fix="Send Authorization: Bearer, or X-Api-Key, with the content of the file `token` in "
            "the state directory, or use the Unix socket.",
        )


def caller(request: web.Request) -> Caller:
    """The caller: its principal, and the conversation that the headers name."""
    given = filter(None, map(request.headers.get, SESSION_HEADERS))
    return Caller(request[CLIENT], next(given, "")[:MAX_SESSION_CHARS])


def _matches(secret: str, token_hash: bytes) -> bool:
    found = hashlib.sha256(secret.strip().encode("utf-8", "surrogateescape")).digest()
    return hmac.compare_digest(found, token_hash)


async def body(request: web.Request, limit_bytes: int) -> bytes:
    """The whole body; it is read once and kept.

    Raises TooLarge, also for too many values, and RequestError when it does not arrive in time.
    """
    if request.get(_BODY) is None:
        data = await _received(request, limit_bytes)
        await off_loop(partial(check_values, data), data)
        request[_BODY] = data.removeprefix(codecs.BOM_UTF8)  # some editors and shells write it
    return request[_BODY]


async def _received(request: web.Request, limit_bytes: int) -> bytes:
    too_large = TooLarge(
        f"The body is over {limit_bytes} bytes.", fix="Raise server.max_body_bytes."
    )
    if request.headers.get("Content-Encoding", "").strip().lower() not in ENCODINGS:
        raise wrong_encoding()
    if (request.content_length or 0) > limit_bytes:
        raise too_large
    if "Expect" in request.headers and request.version >= HttpVersion11:
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        request.writer.output_size = 0
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
        raise RequestError(
            "The body is not as its head says, or it is cut.", fix="Send all of it."
        ) from error
    return bytes(received)
