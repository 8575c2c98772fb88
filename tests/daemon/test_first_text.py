"""When what a worker says stands in a terminal: through daemon, socket, client and drawing.

`pytest -m terminal -s` prints what it takes here. The worker is scripted and says what time it is,
in nanoseconds of the clock that all processes of a machine share.
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
    """From its program's start to its first prompt, and to a key that was typed at once."""

    async def scene() -> list[tuple[float, float]]:
        async with daemon(harness) as it:
            return [await asyncio.to_thread(opening, it, tmp_path) for _ in range(CHATS)]

    prompts, keys = zip(*asyncio.run(scene()), strict=True)
    sys.stdout.write(f"\nopen: {figures(prompts)}; a key of then: {figures(keys)}\n")


def opening(it: Any, home: Path) -> tuple[float, float]:
    """Seconds until a chat's first prompt, and until a key typed there is shown."""
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
    """Of warm answers, and of the first one, for which the terminal first loads what draws it."""

    def converse(terminal: Terminal) -> list[float]:
        terminal.until(PROMPT)
        return [behind(terminal) for _ in range(QUESTIONS)]

    first, *warm = asyncio.run(in_a_chat(harness, daemon, tmp_path, converse))
    assert len(warm) == QUESTIONS - 1
    sys.stdout.write(f"\nfirst text: {figures(warm)}; of the first answer {1e3 * first:.1f} ms\n")


def test_when_a_key_stands_in_the_terminal(harness: Any, daemon: Any, tmp_path: Path) -> None:
    """The first of them while the chat loads the model and what draws answers."""

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
    """Seconds from an answer's first text to the terminal that shows it."""
    terminal.type("clock \r")  # the blank, because a scripted worker joins what was asked
    said, shown_at = terminal.until(STAMP)
    terminal.until(PROMPT)
    return shown_at - int(said) / 1e9


def figures(seconds: Sequence[float]) -> str:
    """Of many times."""
    named = {"least": min(seconds), "median": median(seconds), "most": max(seconds)}
    return ", ".join(f"{name} {1e3 * value:.1f} ms" for name, value in named.items())


def environment(it: Any, home: Path) -> dict[str, str]:
    """Of somebody with an empty home who talks to that daemon."""
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
    """What is measured in a chat with a daemon."""
    async with daemon(harness) as it:
        terminal = Terminal(environment(it, home))
        try:
            return await asyncio.to_thread(talk, terminal)
        finally:
            await asyncio.to_thread(terminal.leave)
