"""Answers malformed HTTP with the daemon's own errors, without an echo and without HTML."""

from __future__ import annotations

import asyncio
import logging
import re
import socket
from typing import Any

from aiohttp import StreamReader, web
from aiohttp.http_exceptions import ContentEncodingError, LineTooLong
from aiohttp.web_protocol import RequestHandler

from localspec.errors import RequestError
from localspec_daemon.http.connections import Connections
from localspec_daemon.http.half_closed import reads
from localspec_daemon.http.output import json_response
from localspec_daemon.http.route import family

_log = logging.getLogger("localspec.http")


FIRST_LOOK_SECONDS, LOOK_SECONDS = 0.05, 1.0
"""From an end of stream to the first check whether its sender still reads, and between checks."""
ENCODINGS = frozenset({"", "identity", "gzip", "deflate"})
"""Values of Content-Encoding that are served."""
_REQUEST_LINE = re.compile(rb"[A-Z]{3,7} (/[!-~]{0,255})")


class HeadTooLarge(RequestError):
    """A line of the request's head, or the whole head, is over the limit."""

    status, code = 431, "head_too_large"


class WrongEncoding(RequestError):
    """The body is compressed in a way that is not served."""

    status = 415


def wrong_encoding() -> WrongEncoding:
    """The error for any Content-Encoding but those of `ENCODINGS`."""
    return WrongEncoding(
        "This Content-Encoding is not served.", fix="Send the body as it is, or as gzip or deflate."
    )


class HttpConnection(RequestHandler):
    """One connection. `_path` is that of the latest piece of data that begins with a request."""

    __slots__ = ("_connections", "_latest", "_path", "_reader_timer", "_token_timer")
    _path: str

    def __init__(self, connections: Connections, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._connections = connections
        self._token_timer: asyncio.TimerHandle | None = None
        self._reader_timer: asyncio.TimerHandle | None = None
        self._latest: StreamReader | None = None  # the body of the latest request

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Register a new connection; one over TCP has `unknown_seconds` to show the token."""
        super().connection_made(transport)
        on_socket = transport.get_extra_info("socket").family == socket.AF_UNIX
        self._connections.add(self, on_socket=on_socket)
        if not on_socket:
            self._start_token_timer()

    def connection_lost(self, exc: BaseException | None) -> None:
        """Forget a connection that was closed."""
        self._connections.remove(self)
        for timer in (self._token_timer, self._reader_timer):
            if timer:
                timer.cancel()
        super().connection_lost(exc)

    def eof_received(self) -> bool:  # type: ignore[override]  # asyncio takes one, aiohttp has none
        """Take the client's end of stream. True if it still gets the answers to its requests."""
        waits = self._waiter is not None
        rests = not self._request_count or (waits and not self._messages)
        if rests or not self._latest or not self._is_read():
            return False
        if not self._latest.is_eof():  # the body is cut, and its handler has to know
            self._latest.set_exception(web.RequestPayloadError("the body is cut"))
        if len(self._messages) == waits:
            self.close()  # after the one answer that is left
        self._reader_timer = self._loop.call_later(FIRST_LOOK_SECONDS, self._abort_unread)
        return True

    def _is_read(self) -> bool:
        return self.transport is not None and reads(self.transport.get_extra_info("socket"))

    def _abort_unread(self) -> None:
        """Abort if the client has left, which the event loop does not notice; else check again."""
        if self.transport is None:
            return
        if self._is_read():
            self._reader_timer = self._loop.call_later(LOOK_SECONDS, self._abort_unread)
        else:
            self.transport.abort()

    def admit(self) -> None:
        """Count the connection as known: a request had the token. Raises Busy above the limit."""
        self._connections.admit(self)

    def close_now(self) -> None:
        """Close it now."""
        self.force_close()

    def _start_token_timer(self) -> None:
        self._token_timer = self._loop.call_later(
            self._connections.unknown_seconds, self._close_unknown
        )

    def _close_unknown(self) -> None:
        """Close a connection that showed no token in time, after the answer that is on its way."""
        if not self._connections.is_unknown(self):
            return
        if self._request_in_progress:
            self._start_token_timer()
        else:
            self.force_close()

    def data_received(self, data: bytes) -> None:
        """Take a piece of data. Its path is kept here: aiohttp keeps nothing of an invalid head."""
        if line := _REQUEST_LINE.match(data):
            self._path = line[1].decode("ascii", "replace")
        super().data_received(data)
        if self._messages:
            self._latest = self._messages[-1][1]

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """The answer to malformed HTTP, without `message`, which repeats what the client sent."""
        _log.debug("refused status=%d what=%s", status, type(exc).__name__)
        if request.writer.output_size > 0:
            raise ConnectionError("a response has begun already") from exc
        error = RequestError("This is not valid HTTP/1.1.")
        if isinstance(exc, LineTooLong) or "Too many headers" in (message or ""):
            error = HeadTooLarge("The head of the request is too large.", fix="Send fewer headers.")
        elif isinstance(exc, ContentEncodingError):
            error = wrong_encoding()
        response = json_response(family(getattr(self, "_path", "")).errors(error), error.status)
        response.force_close()
        return response

    def log_exception(self, *args: Any, **kw: Any) -> None:
        """Log a bug, but not a body that differs from its head: its request has been answered."""
        if not isinstance(kw.get("exc_info"), web.RequestPayloadError):
            super().log_exception(*args, **kw)


class _Server(web.Server):
    """aiohttp's server with our handler for each connection."""

    all_connections: Connections

    def __call__(self) -> RequestHandler:
        """The handler of an accepted connection."""
        return HttpConnection(self.all_connections, self, loop=self._loop, **self._kwargs)


class Runner(web.AppRunner):
    """aiohttp's runner of an application, with limits on its connections."""

    def __init__(self, app: web.Application, connections: Connections, **kwargs: Any) -> None:
        super().__init__(app, **kwargs)
        self._connections = connections

    async def _make_server(self) -> Any:
        made = await super()._make_server()
        server = _Server(
            made.request_handler,
            request_factory=made.request_factory,
            handler_cancellation=made.handler_cancellation,
            loop=made._loop,  # noqa: SLF001 - aiohttp has no public name for this
            **made._kwargs,  # noqa: SLF001
        )
        server.all_connections = self._connections
        return server
