"""A client that reads nothing: the stream for it ends, also at its last byte."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from aiohttp import web

from localspec_daemon.http.output import STALLED_SECONDS, FrameStream


class Clock(asyncio.SelectorEventLoop):
    """An event loop whose time can be put forward."""

    ahead_seconds = 0.0

    def time(self) -> float:
        """The time, in seconds."""
        return super().time() + self.ahead_seconds

    def pass_by(self) -> None:
        """Put it forward by more than a client may take."""
        self.ahead_seconds += STALLED_SECONDS + 1


async def more(stream: FrameStream) -> None:
    """Goes on until the client should have read."""
    while True:
        await stream.data("x" * 9999)


@pytest.mark.timeout(60)
@pytest.mark.parametrize("go_on", [more, FrameStream.end, FrameStream.done])
def test_a_client_that_reads_nothing_is_waited_for_so_long_and_no_longer(
    tmp_path: Path, go_on: Callable[[FrameStream], Awaitable[object]]
) -> None:
    """In the middle of a response and at its end."""
    loop = Clock()
    over: asyncio.Future[BaseException | None] = loop.create_future()

    async def handler(request: web.Request) -> web.StreamResponse:
        assert request.transport
        request.transport.set_write_buffer_limits(0)
        request.transport.get_extra_info("socket").setsockopt(
            socket.SOL_SOCKET, socket.SO_SNDBUF, 1
        )
        stream = FrameStream(request)
        await stream.data("x" * 50_000)  # more than the system takes, less than aiohttp waits for
        loop.call_soon(loop.pass_by)
        try:
            await go_on(stream)
        except ConnectionError as error:
            over.set_result(error)
        return stream.response

    async def scene() -> None:
        app = web.Application()
        app.router.add_get("/", handler)
        runner = web.AppRunner(app, shutdown_timeout=0)
        await runner.setup()
        await web.UnixSite(runner, str(tmp_path / "s")).start()
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(tmp_path / "s"))
            client.sendall(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
            assert "reads nothing" in str(await over)
        await runner.cleanup()

    with asyncio.Runner(loop_factory=lambda: loop) as runner:
        runner.run(scene())
