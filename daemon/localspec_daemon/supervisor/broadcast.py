"""Wakes all waiting tasks each time it is rung."""

from __future__ import annotations

import asyncio


class Broadcast:
    """Waiters look at the state again after each ring; no `await` may be between look and wait."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def notify_all(self) -> None:
        """Wake all who wait now."""
        self._event.set()
        self._event.clear()

    async def wait(self) -> None:
        """Until the next ring."""
        await self._event.wait()
