"""Clients without manners: each takes a connection and does what no library would."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from random import Random

Client = Callable[[Path, Random], Awaitable[None]]

BODY = json.dumps(
    {"prompt": "hello", "max_tokens": 400, "stream": True, "ignore_eos": True}
).encode()


def head(length: object, *, more: str = "") -> bytes:
    """The head of a completion that announces so many bytes."""
    return (
        f"POST /v1/completions HTTP/1.1\r\nHost: localspec\r\nContent-Type: application/json\r\n"
        f"Content-Length: {length}\r\n{more}\r\n"
    ).encode()


async def _say(socket: Path, *parts: bytes, pause_seconds: float = 0.0, listen: int = 0) -> bytes:
    """Send the parts, hear at most so many bytes, and hang up in the middle of whatever follows."""
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
    except (ConnectionError, TimeoutError):
        pass
    finally:
        writer.transport.abort()
    return heard


async def vanishes(socket: Path, random: Random) -> None:
    """Leaves while it is answered."""
    await _say(socket, head(len(BODY)) + BODY, listen=random.randrange(1, 4000))


async def leaves_early(socket: Path, random: Random) -> None:
    """Leaves before its request is whole."""
    whole = head(len(BODY)) + BODY
    await _say(socket, whole[: random.randrange(1, len(whole))])


async def never_reads(socket: Path, random: Random) -> None:
    """Asks, and takes nothing of the answer."""
    await _say(socket, head(len(BODY)) + BODY, pause_seconds=random.uniform(0.2, 1.0))


async def dribbles(socket: Path, random: Random) -> None:
    """Sends a byte now and then."""
    whole = head(len(BODY)) + BODY
    pieces = [whole[place : place + 1] for place in range(random.randrange(20, 60))]
    await _say(socket, *pieces, pause_seconds=0.01)


async def lies(socket: Path, random: Random) -> None:
    """Says another length than it sends, or none that is one."""
    length = random.choice((0, 1, len(BODY) - 7, len(BODY) + 7, 10**12, -1, "abc", "1, 2", ""))
    twice = random.choice(("", "Content-Length: 3\r\n", "Transfer-Encoding: chunked\r\n"))
    await _say(socket, head(length, more=twice) + BODY, pause_seconds=0.05, listen=100)


async def babbles(socket: Path, random: Random) -> None:
    """Does not speak HTTP."""
    await _say(socket, random.randbytes(random.randrange(1, 3000)), listen=100)


CLIENTS: list[Client] = [vanishes, leaves_early, never_reads, dribbles, lies, babbles]
