"""What aiohttp answers before any route is asked, in our words: no echo, no page of HTML."""

from __future__ import annotations

import logging
import re
from typing import Any

from aiohttp import web
from aiohttp.http_exceptions import LineTooLong
from aiohttp.web_protocol import RequestHandler

from localspec.errors import RequestError
from localspec_daemon.route import family
from localspec_daemon.wire import json_response

_log = logging.getLogger("localspec.http")


_REQUEST_LINE = re.compile(rb"[A-Z]{3,7} (/[!-~]{0,255})")


class HeadTooLarge(RequestError):
    """A line of the head, or all of it, is over what a client has to say."""

    status, code = 431, "head_too_large"


class _Handler(RequestHandler):
    """One connection. `_asked` is the path of its latest request, where a piece began with that."""

    __slots__ = ("_asked",)
    _asked: str

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

    def __call__(self) -> RequestHandler:
        """A connection was accepted."""
        return _Handler(self, loop=self._loop, **self._kwargs)


class Runner(web.AppRunner):
    """aiohttp's runner of an application, with the doorman before it."""

    async def _make_server(self) -> Any:
        made = await super()._make_server()
        return _Doorman(
            made.request_handler,
            request_factory=made.request_factory,
            handler_cancellation=made.handler_cancellation,
            loop=made._loop,  # noqa: SLF001 - aiohttp has no other door for this
            **made._kwargs,  # noqa: SLF001
        )
