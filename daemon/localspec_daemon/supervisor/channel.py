"""The supervisor's end of the socketpair to one worker."""

from __future__ import annotations

import asyncio
import contextlib

from localspec.wire import frames
from localspec.wire.messages import Command, Event


class Channel:
    """Sends commands and receives events. An event is checked against the closed schema."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def receive(self) -> Event | None:
        """The next event; None when the worker has closed its end. Raises EngineError."""
        try:
            length = frames.body_bytes(await self._reader.readexactly(frames.HEADER_BYTES))
            return frames.event(await self._reader.readexactly(length))
        except (asyncio.IncompleteReadError, ConnectionError):
            return None

    def send(self, command: Command) -> None:
        """Queue one command. Raises TooLarge; a dead worker is noticed by `receive`."""
        self._writer.write(frames.pack(command))

    async def close(self) -> None:
        """Close this end; the worker reads an end of file and exits."""
        self._writer.close()
        with contextlib.suppress(ConnectionError):  # the worker was faster
            await self._writer.wait_closed()
