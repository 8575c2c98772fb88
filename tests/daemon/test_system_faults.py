"""A daemon on a system without descriptors, and whose own look at the workers fails: it goes on."""

from __future__ import annotations

import asyncio
import os
import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import pytest

from localspec.errors import EngineError
from localspec_daemon.supervisor.worker import COMMAND, Exit
from localspec_daemon.supervisor.workers import Workers


@contextmanager
def descriptors(free: int) -> Iterator[None]:
    """Leaves this process so many descriptors, from the lowest free one on, or fewer."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    os.close(lowest := os.dup(0))
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest + free, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.timeout(60)
def test_nothing_that_goes_wrong_in_a_tick_ends_the_daemon(
    harness: Any, daemon: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Each failure is logged, the next tick comes, and requests are answered."""

    async def scene() -> None:
        async with daemon(harness, tick_seconds=0.01) as it:
            pool = it.server.supervisor.pool
            await it.ask("say hello")
            server = msgspec.structs.replace(pool.config.server, keep_alive="no span of time")
            pool.config = msgspec.structs.replace(pool.config, server=server)
            while caplog.text.count("tick_failed") < 2:
                assert not it.running.done()
                assert (await it.ask("say hello"))[0] == 200

    asyncio.run(scene())


def test_every_signal_that_ends_a_worker_has_a_cause() -> None:
    """A real-time signal without a name is named by its number."""
    names = {int(each): each.name for each in signal.Signals}
    for number in range(1, signal.NSIG):
        cause = Exit(goodbye=False, returncode=-number).cause
        assert cause == names.get(number, f"signal {number}")


@pytest.mark.parametrize("free", range(6))
def test_without_descriptors_for_a_worker_the_error_says_how_to_get_some(
    harness: Any, daemon: Any, free: int
) -> None:
    """It needs two for its channel, and more for its process."""

    async def scene() -> None:
        async with daemon(harness) as it:
            load = (await it.server.supervisor.model(None)).load
            with descriptors(free), pytest.raises(EngineError) as caught:
                await Workers(COMMAND).spawn(load)
            assert "ulimit -n" in caught.value.fix

    asyncio.run(scene())
