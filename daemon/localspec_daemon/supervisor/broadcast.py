"""Wakes all waiting tasks at each change of a state."""

from __future__ import annotations

import asyncio


class Broadcast:
    """Waiters check the state after each wake-up, with no `await` between the check and `wait`."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def notify_all(self) -> None:
        """Wake all tasks that wait now."""
        self._event.set()
        self._event.clear()

    async def wait(self) -> None:
        """Wait until the next `notify_all`."""
        await self._event.wait()
