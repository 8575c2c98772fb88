"""The daemon's life: startup, run, shutdown."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import socket
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import monotonic
from typing import Any

from aiohttp import web

from localspec import config as settings
from localspec import paths
from localspec.errors import AlreadyRunning
from localspec_daemon.http import listen, socket_activation
from localspec_daemon.http.app import create_app
from localspec_daemon.http.connections import (
    MOST_ON_SOCKET,
    UNKNOWN_SECONDS,
    Connections,
    descriptors,
    shares,
)
from localspec_daemon.http.raw_errors import Runner
from localspec_daemon.page import routes
from localspec_daemon.supervisor.reload import Watcher
from localspec_daemon.supervisor.service_manager import ServiceManager
from localspec_daemon.supervisor.supervisor import Supervisor
from localspec_daemon.supervisor.worker import COMMAND

_log = logging.getLogger("localspec.server")

ACCEPTS = 4
"""Connections of one listener that are accepted before the event loop does anything else."""
MAX_HEADER_LINE_BYTES = 4096
MAX_HEADER_LINES = 64
CLEANUP_SECONDS = 0.5
LINGERING_SECONDS = 3.0
"""How long the rest of a refused body is read: otherwise the client gets a reset, and no answer."""
FOLLOW_SECONDS = 25.0
"""The longest wait for the daemon before this one to end. Less than the unit's TimeoutStartSec, so
that the reason is reported before systemd gives up."""
FOLLOW_POLL_SECONDS = 0.05
PAGE_ADDRESS = ("127.0.0.1", 14447)


@dataclass(frozen=True, slots=True)
class Options:
    """Options of the command line, and limits that are not configured.

    `idle_seconds` bounds the wait for a complete request head, at a slow start and between two
    requests; `unknown_seconds` bounds the time of a TCP connection until a request has the token.
    `max_connections` is for the Unix socket; the limit of open files may lower it. A stream sends
    a comment after `silence_seconds` without an event.
    """

    config_path: Path
    socket_path: Path | None = None
    worker_command: Sequence[str] = COMMAND
    tick_seconds: float = 1.0
    idle_seconds: float = 20.0
    unknown_seconds: float = UNKNOWN_SECONDS
    max_connections: int = MOST_ON_SOCKET
    silence_seconds: float = 10.0


class Server:
    """One daemon. `run` returns after an orderly shutdown, when the socket is removed.

    The first SIGTERM or SIGINT drains, the second ends at once; SIGHUP reloads.
    """

    def __init__(self, options: Options) -> None:
        """Raises ConfigError."""
        self.supervisor = Supervisor(
            options.config_path, command=options.worker_command, tick_seconds=options.tick_seconds
        )
        chosen = self.supervisor.config.server.socket
        default = paths.expanded(chosen) if chosen else paths.socket_path()
        self.socket_path = options.socket_path or default
        self.supervisor.socket = str(self.socket_path)
        self._options = options
        limits = shares(descriptors(), options.max_connections)
        self._connections = Connections(limits, options.unknown_seconds)
        self.ready = asyncio.Event()
        """Set once requests on the socket are answered."""
        self._stop = asyncio.Event()
        self._now = asyncio.Event()

    async def run(self) -> None:
        """Serve until `stop`. Raises AlreadyRunning, ConfigError, Forbidden."""
        service_manager = ServiceManager(self.supervisor)
        watcher = Watcher(self._places, partial(self._reload, service_manager))
        self.supervisor.reloads = lambda: watcher.answered
        handlers = {
            signal.SIGTERM: self.stop,
            signal.SIGINT: self.stop,
            signal.SIGHUP: watcher.force,
        }
        async with AsyncExitStack() as stack:
            stack.enter_context(
                signals(handlers)
            )  # entered first, left last: signals also work while closing
            runner = await self._startup(stack, await self._listeners(stack))
            stack.enter_context(watcher)
            tasks = [
                asyncio.create_task(watcher.run()),
                asyncio.create_task(self.supervisor.tick()),
                asyncio.create_task(service_manager.run()),
            ]
            stack.push_async_callback(_cancel, tasks)
            _log.info("ready socket=%s", self.socket_path)
            service_manager.ready()
            self.ready.set()
            await self._until_stopped(tasks)
            await self._shutdown(runner, service_manager)

    def stop(self) -> None:
        """Drain and end; a second call ends at once."""
        if self._stop.is_set():
            self._now.set()
        self._stop.set()

    async def _listeners(self, stack: AsyncExitStack) -> list[listen.Listener]:
        """The sockets that systemd passed and those of the configuration, TCP last.

        The lock is taken in both cases, so that only one of two daemons on a path serves.
        """
        listeners = [stack.enter_context(listener) for listener in socket_activation.listeners()]
        self.supervisor.activated = bool(listeners)
        here = [listener.getsockname() for listener in listeners]
        if str(self.socket_path) in here:
            await self._follow(stack.enter_context(listen.lock(self.socket_path)))
        else:
            listeners.insert(0, stack.enter_context(listen.unix(self.socket_path)))
        wanted = self.supervisor.config.server.tcp
        if wanted and settings.tcp_address(wanted) not in [name[:2] for name in here]:
            listeners.append(stack.enter_context(listen.tcp(settings.tcp_address(wanted))))
        return sorted(listeners, key=lambda listener: listener.family != socket.AF_UNIX)

    async def _follow(self, taken: Callable[[], bool]) -> None:
        """Wait for the lock of a daemon that ends; connections queue on systemd's socket meanwhile.

        Raises AlreadyRunning.
        """
        deadline = monotonic() + FOLLOW_SECONDS
        while not taken():
            if self._stop.is_set() or monotonic() > deadline:
                raise listen.already_running(self.socket_path)
            await asyncio.sleep(FOLLOW_POLL_SECONDS)

    async def _startup(
        self, stack: AsyncExitStack, listeners: Sequence[listen.Listener]
    ) -> web.AppRunner:
        tcp = listeners[-1].family != socket.AF_UNIX
        token_hash = listen.token(paths.state_dir() / "token") if tcp else None
        runner = Runner(
            create_app(
                self.supervisor,
                token_hash,
                silence_seconds=self._options.silence_seconds,
                pages=paths.state_dir() / "page.json",
            ),
            self._connections,
            access_log=None,
            handler_cancellation=True,
            keepalive_timeout=self._options.idle_seconds,
            lingering_time=LINGERING_SECONDS,
            shutdown_timeout=CLEANUP_SECONDS,
            max_line_size=MAX_HEADER_LINE_BYTES,
            max_field_size=MAX_HEADER_LINE_BYTES,
            max_headers=MAX_HEADER_LINES,
        )
        page_address: routes.OpenPort = partial(self._page_address, stack, runner)
        runner.app[routes.OPEN_PORT] = page_address
        await runner.setup()
        stack.push_async_callback(self.supervisor.close)
        self.supervisor.pool.workers.open()
        stack.push_async_callback(runner.cleanup)
        if tcp:
            self.supervisor.tcp = listen.address(listeners[-1])
        for each in listeners:
            await self._open(runner, each)
        if runner.app[routes.PASSES].kept().keys:  # open tabs of the page reconnect
            with contextlib.suppress(AlreadyRunning):
                await page_address()
        return runner

    async def _open(self, runner: web.AppRunner, listener: listen.Listener) -> None:
        if listener.family == socket.AF_UNIX:
            listener.full = lambda: self._connections.full
        await web.SockSite(runner, listener, backlog=ACCEPTS).start()

    async def _page_address(self, stack: AsyncExitStack, runner: web.AppRunner) -> str:
        """The loopback address for the page: that of server.tcp, else one opened for the page.

        Its port is the same at every start where it is free, because a browser's storage is kept
        for each port.
        """
        if not self.supervisor.tcp:
            try:
                listener = listen.tcp(PAGE_ADDRESS)
            except AlreadyRunning:
                listener = listen.tcp((PAGE_ADDRESS[0], 0))
            self.supervisor.tcp = listen.address(stack.enter_context(listener))
            await self._open(runner, listener)
        return self.supervisor.tcp

    async def _until_stopped(self, tasks: Sequence[asyncio.Task[None]]) -> None:
        """Wait for `stop`. Raises the exception of a task that ends before: that is a bug."""
        stopped = asyncio.create_task(self._stop.wait())
        await asyncio.wait({stopped, *tasks}, return_when=asyncio.FIRST_COMPLETED)
        if not stopped.done():
            stopped.cancel()
            for task in tasks:
                if task.done():
                    task.result()

    async def _reload(self, service_manager: ServiceManager, changed: bool) -> None:  # noqa: FBT001 - Watcher passes it
        async with service_manager.reloading() if changed else contextlib.nullcontext():
            await self.supervisor.reload(changed)

    async def _shutdown(self, runner: web.AppRunner, service_manager: ServiceManager) -> None:
        for site in list(runner.sites):
            await site.stop()
        seconds = self.supervisor.config.server.drain_seconds
        service_manager.stopping(seconds)
        drained = asyncio.create_task(self.supervisor.drain(seconds))
        now = asyncio.create_task(self._now.wait())
        await asyncio.wait({drained, now}, return_when=asyncio.FIRST_COMPLETED)
        await _cancel([drained, now])
        self.supervisor.end_requests()
        _log.info("stopped")

    def _places(self) -> tuple[Path, Path]:
        return self.supervisor.config_path, self.supervisor.models_directory


@contextmanager
def signals(handlers: Mapping[signal.Signals, Callable[[], None]]) -> Iterator[None]:
    """Installs signal handlers on the running loop for the duration of a `with`."""
    loop = asyncio.get_running_loop()
    for number, handler in handlers.items():
        loop.add_signal_handler(number, handler)
    try:
        yield
    finally:
        for number in handlers:
            loop.remove_signal_handler(number)


async def _cancel(tasks: Sequence[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    for task in tasks:
        with contextlib.suppress(asyncio.CancelledError):
            await task
