"""Measures the time from a worker's text to the terminal, through daemon, socket and client.

`pytest -m terminal -s` prints the times. The worker is scripted and sends the time, in nanoseconds
of the clock that all processes of a machine share.
"""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from terminal import Terminal

pytestmark = pytest.mark.terminal

QUESTIONS = 60
CHATS = 15
PROMPT, STAMP = ">>>", r"\d{9,}"
KEYS = "".join(map(chr, range(0x100, 0x17F)))


def test_how_soon_a_chat_is_open(harness: Any, daemon: Any, tmp_path: Path) -> None:
    """From the program's start to its first prompt, and to the echo of a key typed at once."""

    async def scene() -> list[tuple[float, float]]:
        async with daemon(harness) as it:
            return [await asyncio.to_thread(opening, it, tmp_path) for _ in range(CHATS)]

    prompts, keys = zip(*asyncio.run(scene()), strict=True)
    sys.stdout.write(f"\nopen: {figures(prompts)}; a key of then: {figures(keys)}\n")


def opening(it: Any, home: Path) -> tuple[float, float]:
    """Returns the seconds until a chat's first prompt, and until a key typed there is shown."""
    began = time.monotonic()
    terminal = Terminal(environment(it, home))
    shown_at = terminal.until(PROMPT)[1]
    terminal.type(KEYS[0])
    read_at = terminal.until(KEYS[0])[1]
    terminal.type("\x15")
    terminal.leave()
    return shown_at - began, read_at - began


def test_when_the_first_text_stands_in_the_terminal(
    harness: Any, daemon: Any, tmp_path: Path
) -> None:
    """For warm answers, and for the first one, which loads the terminal's renderer."""

    def converse(terminal: Terminal) -> list[float]:
        terminal.until(PROMPT)
        return [behind(terminal) for _ in range(QUESTIONS)]

    first, *warm = asyncio.run(in_a_chat(harness, daemon, tmp_path, converse))
    assert len(warm) == QUESTIONS - 1
    sys.stdout.write(f"\nfirst text: {figures(warm)}; of the first answer {1e3 * first:.1f} ms\n")


def test_when_a_key_stands_in_the_terminal(harness: Any, daemon: Any, tmp_path: Path) -> None:
    """The first keys are typed while the chat loads the model and its renderer."""

    def converse(terminal: Terminal) -> list[float]:
        terminal.until(PROMPT)
        took = []
        for key in KEYS:
            typed_at = terminal.type(key)
            took.append(terminal.until(key)[1] - typed_at)
        terminal.type("\x15")
        return took

    took = asyncio.run(in_a_chat(harness, daemon, tmp_path, converse))
    sys.stdout.write(f"\na key: {figures(took)}\n")


def behind(terminal: Terminal) -> float:
    """Returns the seconds from an answer's first text to its display."""
    terminal.type("clock \r")  # the blank, because a scripted worker joins what was asked
    said, shown_at = terminal.until(STAMP)
    terminal.until(PROMPT)
    return shown_at - int(said) / 1e9


def figures(seconds: Sequence[float]) -> str:
    """Returns statistics of many times."""
    named = {"least": min(seconds), "median": median(seconds), "most": max(seconds)}
    return ", ".join(f"{name} {1e3 * value:.1f} ms" for name, value in named.items())


def environment(it: Any, home: Path) -> dict[str, str]:
    """Returns the environment of a user with an empty home and that daemon."""
    own = {
        "LOCALSPEC_HOST": f"unix://{it.harness.socket}",
        "TERM": "xterm",
        "PROMPT_TOOLKIT_NO_CPR": "1",
        "HOME": str(home),
    }
    places = {f"XDG_{name}_HOME": str(home / name) for name in ("CONFIG", "STATE", "CACHE")}
    return os.environ | own | places


async def in_a_chat(
    harness: Any, daemon: Any, home: Path, talk: Callable[[Terminal], list[float]]
) -> list[float]:
    """Measures in a chat with a daemon."""
    async with daemon(harness) as it:
        terminal = Terminal(environment(it, home))
        try:
            return await asyncio.to_thread(talk, terminal)
        finally:
            await asyncio.to_thread(terminal.leave)
