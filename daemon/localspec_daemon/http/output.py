"""Writes responses: bodies of JSON, and streams frame by frame."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from aiohttp import web

from localspec_daemon.api.framing import EVENTS, Framing

STALLED_SECONDS = 60.0
"""A client that reads nothing for this long has hung: its slot is freed."""

RETRY_SECONDS = {429: "1", 503: "2"}


def json_response(value: Any, status: int = 200) -> web.Response:
    """A JSON response. Compact: one editor drops answers with spaces between tokens."""
    retry = {"Retry-After": RETRY_SECONDS[status]} if status in RETRY_SECONDS else None
    body = msgspec.json.encode(value)
    return web.Response(body=body, status=status, headers=retry, content_type="application/json")


class FrameStream:
    """One response that is written frame by frame: never batched, never compressed.

    The response begins with the first frame, so that an error before it has its own status. Raises
    ConnectionError when the client has left or hangs.
    """

    def __init__(self, request: web.Request, framing: Framing = EVENTS) -> None:
        self.response = web.StreamResponse(
            headers={"Content-Type": framing.media_type, "Cache-Control": "no-cache"}
        )
        self._request = request
        self._framing = framing

    @property
    def begun(self) -> bool:
        """Whether the status has been sent."""
        return self.response.prepared

    async def data(self, value: Any) -> None:
        """Write one frame."""
        await self._write(self._framing.frame(value))

    async def comment(self, text: str) -> None:
        """Write a comment, which parsers skip."""
        if comment := self._framing.comment(text):
            await self._write(comment)

    async def done(self) -> web.StreamResponse:
        """Write the last frame, and end the response."""
        if self._framing.done:
            await self._write(self._framing.done)
        return await self.end()

    async def end(self) -> web.StreamResponse:
        """End the response."""
        async with self._bounded():
            await self.response.write_eof()
        return self.response

    async def _write(self, data: bytes) -> None:
        async with self._bounded():
            if not self.begun:
                await self.response.prepare(self._request)
            await self.response.write(data)

    @asynccontextmanager
    async def _bounded(self) -> AsyncIterator[None]:
        """Bounds the time that the client may take to read."""
        try:
            async with asyncio.timeout(STALLED_SECONDS):
                yield
        except TimeoutError as error:
            if self._request.transport:
                self._request.transport.abort()
            raise ConnectionResetError("the client reads nothing") from error
