"""Reports the daemon's state to the service manager (sd_notify(3)), and feeds its watchdog."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager

from localspec_daemon.supervisor.model import Model
from localspec_daemon.supervisor.sd_notify import notify, watchdog_seconds
from localspec_daemon.supervisor.supervisor import Supervisor

_log = logging.getLogger("localspec.service_manager")

FEEDS_PER_INTERVAL = 4
"""How often the watchdog is fed within its time limit."""
LEAVING_SECONDS = 20.0
"""The time workers and connections take to end after the drain."""
DRAINING = "Letting answers finish"


class ServiceManager:
    """Reports to the service manager, if there is one. Lives on the event loop's thread.

    A task of the event loop feeds the watchdog, so a daemon whose event loop hangs is restarted. A
    daemon with a worker that outlives its SIGKILL does not feed it, and is restarted too.
    """

    def __init__(self, supervisor: Supervisor) -> None:
        self._supervisor = supervisor
        self._reported = ""
        self._feed_at = 0.0
        seconds = watchdog_seconds()
        self._interval_seconds = seconds / FEEDS_PER_INTERVAL if seconds else None

    def ready(self) -> None:
        """Report that requests are answered from now on."""
        self._report("READY=1")

    @asynccontextmanager
    async def reloading(self) -> AsyncIterator[None]:
        """Report a reload for the duration of a `with`; `systemctl reload` waits for its end."""
        notify("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")
        try:
            yield
        finally:
            self._report("READY=1")

    def stopping(self, drain_seconds: float) -> None:
        """Report the drain, and ask systemd for the time that it may take."""
        extend = int((drain_seconds + LEAVING_SECONDS) * 1e6)
        notify("STOPPING=1", f"STATUS={DRAINING}", f"EXTEND_TIMEOUT_USEC={extend}")

    async def run(self) -> None:
        """Report changes, and feed the watchdog, for ever."""
        while True:
            if status_line(self._supervisor) != self._reported:
                self._report()
            self._feed(asyncio.get_running_loop().time())
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._interval_seconds):
                    await self._supervisor.pool.changed.wait()

    def _feed(self, now: float) -> None:
        if not self._interval_seconds or now < self._feed_at:
            return
        self._feed_at = now + self._interval_seconds / 2
        if self._supervisor.pool.can_recover(now):
            notify("WATCHDOG=1")
        else:
            _log.error("watchdog_not_fed reason='a worker outlives its end'")

    def _report(self, *states: str) -> None:
        self._reported = status_line(self._supervisor)
        notify(*states, f"STATUS={self._reported}")


def status_line(supervisor: Supervisor) -> str:
    """The line of `systemctl status` about the models and the configuration."""
    if supervisor.draining:
        return DRAINING
    states = [*_of_models(supervisor.pool.models.values())] or ["no model is loaded"]
    if supervisor.config_error:
        states.append("the configuration has a mistake, the last good one is in force")
    return f"Listening on {supervisor.socket}; {'; '.join(states)}"


def _of_models(models: Iterable[Model]) -> Iterable[str]:
    for model in models:
        if model.state == "loading":
            done = f" ({model.progress.fraction:.0%})" if model.progress else ""
            yield f"loading {model.name}{done}"
        elif model.state != "unloaded":
            open_requests = f", {model.requests} open" if model.requests else ""
            yield f"{model.name} is {model.state}{open_requests}"
