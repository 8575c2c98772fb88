"""What aiohttp answers before any route is asked, in our words: no echo, no page of HTML."""

from __future__ import annotations

import asyncio
import logging
import re
import socket
from typing import Any

from aiohttp import web
from aiohttp.http_exceptions import LineTooLong
from aiohttp.web_protocol import RequestHandler

from localspec.errors import RequestError
from localspec_daemon.connections import Connections
from localspec_daemon.route import family
from localspec_daemon.wire import json_response

_log = logging.getLogger("localspec.http")


_REQUEST_LINE = re.compile(rb"[A-Z]{3,7} (/[!-~]{0,255})")


class HeadTooLarge(RequestError):
    """A line of the head, or all of it, is over what a client has to say."""

    status, code = 431, "head_too_large"


class HttpConnection(RequestHandler):
    """One connection. `_asked` is the path of its latest request, where a piece began with that."""

    __slots__ = ("_asked", "_patience", "_room")
    _asked: str

    def __init__(self, room: Connections, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._room = room
        self._patience: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """It was accepted. One by TCP has seconds to show the token."""
        super().connection_made(transport)
        on_socket = transport.get_extra_info("socket").family == socket.AF_UNIX
        self._room.enter(self, on_socket=on_socket)
        if not on_socket:
            self._wait()

    def connection_lost(self, exc: BaseException | None) -> None:
        """It was closed."""
        self._room.leave(self)
        if self._patience:
            self._patience.cancel()
        super().connection_lost(exc)

    def admit(self) -> None:
        """A request on it had the token. Raises Busy where there is no room for it."""
        self._room.admit(self)

    def turn_away(self) -> None:
        """Close it now."""
        self.force_close()

    def _wait(self) -> None:
        self._patience = self._loop.call_later(self._room.unknown_seconds, self._look)

    def _look(self) -> None:
        """Its time is over, but for an answer that needs no token and is on its way."""
        if not self._room.is_unknown(self):
            return
        if self._request_in_progress:
            self._wait()
        else:
            self.force_close()

    def data_received(self, data: bytes) -> None:
        """A piece of what the client sends. Of a head that cannot be read aiohttp keeps nothing."""
        if line := _REQUEST_LINE.match(data):
            self._asked = line[1].decode("ascii", "replace")
        super().data_received(data)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """The answer to what is no HTTP; `message` would repeat what the client sent."""
        _log.debug("refused status=%d what=%s", status, type(exc).__name__)
        if request.writer.output_size > 0:
            raise ConnectionError("a response has begun already") from exc
        error = RequestError("This is not valid HTTP/1.1.")
        if isinstance(exc, LineTooLong) or "Too many headers" in (message or ""):
            error = HeadTooLarge("The head of the request is too large.", fix="Send fewer headers.")
        response = json_response(family(getattr(self, "_asked", "")).errors(error), error.status)
        response.force_close()
        return response


class _Doorman(web.Server):
    """aiohttp's server with our handler for each connection."""

    room: Connections

    def __call__(self) -> RequestHandler:
        """A connection was accepted."""
        return HttpConnection(self.room, self, loop=self._loop, **self._kwargs)


class Runner(web.AppRunner):
    """aiohttp's runner of an application, with the doorman before it."""

    def __init__(self, app: web.Application, room: Connections, **kwargs: Any) -> None:
        super().__init__(app, **kwargs)
        self._room = room

    async def _make_server(self) -> Any:
        made = await super()._make_server()
        server = _Doorman(
            made.request_handler,
            request_factory=made.request_factory,
            handler_cancellation=made.handler_cancellation,
            loop=made._loop,  # noqa: SLF001 - aiohttp has no other door for this
            **made._kwargs,  # noqa: SLF001
        )
        server.room = self._room
        return server
