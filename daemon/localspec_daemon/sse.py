"""Server-sent events on one response."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
from aiohttp import web

STALLED_SECONDS = 60.0
"""A reader that takes nothing for so long has hung; its slot is worth more."""

_encoder = msgspec.json.Encoder()


class EventStream:
    """One `data:` line per event, written at once: never batched, never compressed.

    The response begins with the first event, so that an error before it still has its own status.
    Raises ConnectionError when the client has gone or hangs.
    """

    def __init__(self, request: web.Request) -> None:
        self.response = web.StreamResponse(
            headers={"Content-Type": "text/event-stream", "Cache-Control": "no-cache"}
        )
        self._request = request

    @property
    def begun(self) -> bool:
        """Whether the status has been sent."""
        return self.response.prepared

    async def data(self, value: Any) -> None:
        """One event, as compact JSON."""
        await self._write(b"data: " + _encoder.encode(value) + b"\n\n")

    async def comment(self, text: str) -> None:
        """What parsers skip and people can read: why there is no text yet."""
        await self._write(f": {text}\n\n".encode())

    async def done(self) -> web.StreamResponse:
        """The end of an orderly stream."""
        await self._write(b"data: [DONE]\n\n")
        return await self.end()

    async def end(self) -> web.StreamResponse:
        """The end of the response."""
        await self.response.write_eof()
        return self.response

    async def _write(self, data: bytes) -> None:
        try:
            async with asyncio.timeout(STALLED_SECONDS):
                if not self.begun:
                    await self.response.prepare(self._request)
                await self.response.write(data)
        except TimeoutError as error:
            if self._request.transport:
                self._request.transport.abort()
            raise ConnectionResetError("the client reads nothing") from error
