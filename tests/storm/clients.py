"""Misbehaving clients: each opens a connection and does what no library would."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random
from typing import Any

Client = Callable[[Path, Random], Awaitable[None]]

BODY = json.dumps(
    {"prompt": "hello", "max_tokens": 400, "stream": True, "ignore_eos": True}
).encode()


LONG: dict[str, Any] = {"stream": True, "ignore_eos": True, "max_tokens": 300}
ASKED: list[tuple[str, dict[str, Any]]] = [
    ("/v1/completions", LONG | {"prompt": "hello"}),
    ("/v1/completions", LONG | {"prompt": "hello " * 60, "max_tokens": 20}),
    ("/v1/completions", LONG | {"prompt": "hello", "n": 3, "speculation": {"mode": "always"}}),
    ("/v1/completions", LONG | {"prompt": "hello", "temperature": 0.9, "stream": False}),
    ("/v1/completions", LONG | {"prompt": "1", "response_format": {"type": "json_object"},
                                "ignore_eos": False}),
    ("/v1/chat/completions", LONG | {"messages": [{"role": "user", "content": "hi " * 30}]}),
    ("/v1/messages", LONG | {"messages": [{"role": "user", "content": "hi"}]}),
    ("/api/generate", {"prompt": "hello", "options": {"num_predict": 300}}),
    ("/v1/replay", {"prompt": "hello", "text": "world, " * 40}),
    ("/tokenize", {"content": "hello " * 5000}),
]  # fmt: skip
"""Requests that take a while in one place or another."""


def head(length: object, *, more: str = "", path: str = "/v1/completions") -> bytes:
    """The head of a request that announces so many bytes."""
    return (
        f"POST {path} HTTP/1.1\r\nHost: localspec\r\nContent-Type: application/json\r\n"
        f"Content-Length: {length}\r\n{more}\r\n"
    ).encode()


async def _say(
    socket: Path, *parts: bytes, pause_seconds: float = 0.0, listen: int = 0, to_hear: int = 0
) -> bytes:
    """Send the parts, read so many bytes at most, and disconnect in the middle of the rest."""
    reader, writer = await asyncio.open_unix_connection(str(socket))
    heard = b""
    try:
        for part in parts:
            writer.write(part)
            await writer.drain()
            await asyncio.sleep(pause_seconds)
        if listen:
            async with asyncio.timeout(30):
                heard = await reader.read(listen)
        while len(heard) < to_hear and not reader.at_eof():
            heard += await reader.read(to_hear)
    except (ConnectionError, TimeoutError):
        pass
    finally:
        writer.transport.abort()
    return heard


async def vanishes(socket: Path, random: Random) -> None:
    """Disconnects while it is answered."""
    await _say(socket, head(len(BODY)) + BODY, listen=random.randrange(1, 4000))


async def leaves_early(socket: Path, random: Random) -> None:
    """Disconnects before its request is complete."""
    whole = head(len(BODY)) + BODY
    await _say(socket, whole[: random.randrange(1, len(whole))])


async def never_reads(socket: Path, random: Random) -> None:
    """Sends a request and reads nothing of the answer."""
    await _say(socket, head(len(BODY)) + BODY, pause_seconds=random.uniform(0.2, 1.0))


async def dribbles(socket: Path, random: Random) -> None:
    """Sends a byte now and then."""
    whole = head(len(BODY)) + BODY
    pieces = [whole[place : place + 1] for place in range(random.randrange(20, 60))]
    await _say(socket, *pieces, pause_seconds=0.01)


async def lies(socket: Path, random: Random) -> None:
    """Announces another length than it sends, or none that is a number."""
    length = random.choice((0, 1, len(BODY) - 7, len(BODY) + 7, 10**12, -1, "abc", "1, 2", ""))
    twice = random.choice(("", "Content-Length: 3\r\n", "Transfer-Encoding: chunked\r\n"))
    await _say(socket, head(length, more=twice) + BODY, pause_seconds=0.05, listen=100)


async def babbles(socket: Path, random: Random) -> None:
    """Sends something that is not HTTP."""
    await _say(socket, random.randbytes(random.randrange(1, 3000)), listen=100)


async def cancels(socket: Path, random: Random) -> None:
    """Starts a long request and disconnects at a random moment."""
    path, asked = random.choice(ASKED)
    body = json.dumps(asked | {"seed": random.randrange(9)}).encode()
    whole = head(len(body), path=path, more="Connection: close\r\n") + body
    if random.random() < 0.5:
        await _say(socket, whole, pause_seconds=random.expovariate(100))
    else:
        await _say(socket, whole, to_hear=random.randrange(1, 20_000))


CLIENTS: list[Client] = [vanishes, leaves_early, never_reads, dribbles, lies, babbles]
