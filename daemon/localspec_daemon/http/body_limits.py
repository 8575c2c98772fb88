"""Bounds large bodies, and parses them so that no stream waits meanwhile.

To make objects of JSON is one instruction to Python, in which the event loop stands still. What it
costs depends on how many objects there are, and hardly on how long their texts are.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from localspec.errors import TooLarge

MAX_VALUES = 1 << 20
"""Of one body: a prompt may be as many tokens."""
MAX_TEXTS = 1 << 18
"""Names and strings of one body."""
MAX_CONTAINERS = 1 << 16
"""Lists and objects of one body."""
LONG_BYTES = 1 << 17
"""A body up to this size is read at once: it is too short to hold too much."""

_Made = TypeVar("_Made")
_POOL = ThreadPoolExecutor(1, "reading")  # two would double what the event loop waits for each


def check_values(body: bytes) -> None:
    """Refuse a JSON text that would become too many objects. Raises TooLarge."""
    if len(body) <= LONG_BYTES:
        return
    plain = body.replace(b"\\\\", b"").replace(b'\\"', b"")  # only the ends of texts are quoted
    if plain.count(b'"') > 2 * MAX_TEXTS:
        raise _too_many(MAX_TEXTS, "texts")
    outside = b"".join(plain.split(b'"')[::2])
    if outside.count(b",") > MAX_VALUES:
        raise _too_many(MAX_VALUES, "values")
    if outside.count(b"[") + outside.count(b"{") > MAX_CONTAINERS:
        raise _too_many(MAX_CONTAINERS, "lists and objects")


async def off_loop(make: Callable[[], _Made], body: bytes) -> _Made:
    """The result of `make` on a body; a long one is parsed on a thread beside the event loop.

    Raises what `make` raises.
    """
    if len(body) <= LONG_BYTES:
        return make()
    return await asyncio.get_running_loop().run_in_executor(_POOL, make)


def _too_many(most: int, what: str) -> TooLarge:
    return TooLarge(f"The body holds more than {most} {what}.", fix="Send a smaller request.")
