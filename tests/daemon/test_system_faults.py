"""A daemon on a system without descriptors, and whose own look at the workers fails: it goes on."""

from __future__ import annotations

import asyncio
import signal
from typing import Any

import msgspec
import pytest

from localspec_daemon.supervisor.worker import Exit


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
