"""Unloading, while the same model is already being unloaded."""

from __future__ import annotations

import asyncio
from typing import Any


def test_the_end_of_an_unload_is_not_taken_for_that_of_a_later_one(
    harness: Any, daemon: Any
) -> None:
    """Whoever loads afterwards waits for the later one too."""

    async def scene() -> None:
        async with daemon(harness) as it:
            await it.ask("say hello")
            model = it.model()
            first = model.unload()
            loading = model.start_loading()
            await asyncio.sleep(0)
            second = model.unload()
            await first
            assert model.unload() is second
            await second
            assert loading.cancelled()
            assert (await it.ask("say hello"))[0] == 200
            assert model.resident

    asyncio.run(scene())
