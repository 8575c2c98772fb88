"""Gaps between a stream's texts while requests that take long to parse arrive."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from storm.bombs import Bomb, structures, texts, waited_seconds
from storm.chaos_daemon import ChaosDaemon

BYTES = 7_600_000
"""Of a text: a body of 8 MiB is the largest."""
AT_ONCE = 4
WARM_TEXTS = 8
PATIENCE_SECONDS = 900.0


class Moment(NamedTuple):
    """Time of a text, and how long its threads had waited for a processor so far."""

    at: float
    waited: float


@dataclass
class Gaps:
    """The longest waits between two texts of one stream.

    `own_seconds` is without the time in which a busy machine let the daemon, the engine's thread or
    this one wait for a processor, as the kernel counts it: a bound from below, as `seconds` is one
    from above. On a quiet machine they are the same.
    """

    seconds: float = 0.0
    own_seconds: float = 0.0
    texts: int = 0
    _last: Moment | None = field(default=None, repr=False)

    def next(self, moment: Moment | None) -> None:
        """A text came; None before the first one of a stream."""
        if moment and self._last:
            gap, waited = moment.at - self._last.at, moment.waited - self._last.waited
            self.seconds = max(self.seconds, gap)
            self.own_seconds = max(self.own_seconds, gap - waited)
            self.texts += 1
        self._last = moment


def bombs(context: int) -> dict[str, Bomb]:
    """All kinds, and a prompt that fits: it is read in pieces between the bystander's decodes."""
    found = {f"prompt: {name}": ("/v1/completions", {"prompt": text, "max_tokens": 1})
             for name, text in texts(BYTES).items()}  # fmt: skip
    for name, text in texts(BYTES).items():
        messages = [{"role": "user", "content": text}]
        found[f"chat: {name}"] = ("/v1/chat/completions", {"messages": messages, "max_tokens": 1})
    found["tokens of a text"] = ("/tokenize", {"content": "a b " * 500_000})
    found["a prompt that fits"] = (
        "/v1/completions", {"prompt": "a b " * (context // 6), "max_tokens": 1}
    )  # fmt: skip
    return found | {name: (path, body | {"max_tokens": 8})
                    for name, (path, body) in structures().items()}  # fmt: skip


CALM_SECONDS = 15.0
"""Rounds of long drafts take longer than others: a stream's own longest wait shows only in time."""


async def beside(chaos: ChaosDaemon, thrown: Iterable[Bomb], least_seconds: float = 1.0) -> Gaps:
    """Gaps of a stream while these requests are sent and answered."""
    found, begun = Gaps(), asyncio.Event()
    listening = asyncio.create_task(_listen(chaos, found, begun))
    await begun.wait()
    bodies = [(path, json.dumps(body).encode()) for path, body in thrown]
    calls = [asyncio.to_thread(_post, chaos.socket, *one) for one in bodies for _ in range(AT_ONCE)]
    await asyncio.gather(*calls, asyncio.sleep(least_seconds))
    listening.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await listening
    return found


async def _listen(chaos: ChaosDaemon, found: Gaps, begun: asyncio.Event) -> None:
    """One stream after the other, until it is cancelled."""
    asked = {"prompt": "Once upon a time", "max_tokens": 2000, "ignore_eos": True, "seed": 1}
    assert chaos.daemon is not None
    daemon, own = chaos.daemon.pid, threading.get_native_id()

    def hear(_text: str) -> None:
        engines = chaos.workers()
        waited = sum(waited_seconds(pid, pid) for pid in (daemon, *engines)) + waited_seconds(own)
        found.next(Moment(time.monotonic(), waited))
        if found.texts >= WARM_TEXTS:
            begun.set()

    while True:
        found.next(None)
        result = await chaos.stream(asked, hear)
        assert result.done, result


def _post(path_of_socket: Path, path: str, body: bytes) -> bytes:
    """Send a body from a thread, so this process reads the stream meanwhile; the status."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(PATIENCE_SECONDS)
        connection.connect(str(path_of_socket))
        head = f"POST {path} HTTP/1.1\r\nHost: localspec\r\nConnection: close\r\n"
        head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
        connection.sendall(head.encode() + body)
        first = connection.recv(64)
        while connection.recv(1 << 20):
            pass
        return first.split(b" ")[1]
