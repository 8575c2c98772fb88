"""Bounds the number of values in a body, and parses long ones on a thread.

Parsing JSON blocks the event loop. Its time depends on the number of objects, hardly on the length
of their strings.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from localspec.errors import TooLarge

MAX_VALUES = 1 << 20
"""The most values of one body: a prompt may have as many tokens."""
MAX_TEXTS = 1 << 18
"""Names and strings of one body."""
MAX_CONTAINERS = 1 << 16
"""Lists and objects of one body."""
LONG_BYTES = 1 << 17
"""A body up to this size is parsed on the event loop: it is too short for many values."""

_Made = TypeVar("_Made")
_POOL = ThreadPoolExecutor(
    1, "reading"
)  # a second thread would double the time that the event loop waits


def check_values(body: bytes) -> None:
    """Raises TooLarge for a JSON text with too many values."""
    if len(body) <= LONG_BYTES:
        return
    plain = body.replace(b"\\\\", b"").replace(
        b'\\"', b""
    )  # now every quote is the end of a string
    if plain.count(b'"') > 2 * MAX_TEXTS:
        raise _too_many(MAX_TEXTS, "texts")
    outside = b"".join(plain.split(b'"')[::2])
    if outside.count(b",") > MAX_VALUES:
        raise _too_many(MAX_VALUES, "values")
    if outside.count(b"[") + outside.count(b"{") > MAX_CONTAINERS:
        raise _too_many(MAX_CONTAINERS, "lists and objects")


async def off_loop(make: Callable[[], _Made], body: bytes) -> _Made:
    """The result of `make` on a body; for a long body it runs on a thread.

    Raises the errors of `make`.
    """
    if len(body) <= LONG_BYTES:
        return make()
    return await asyncio.get_running_loop().run_in_executor(_POOL, make)


def _too_many(most: int, what: str) -> TooLarge:
    return TooLarge(f"The body holds more than {most} {what}.", fix="Send a smaller request.")
