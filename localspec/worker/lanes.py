"""Requests are read beside the engine: however long it takes, nobody's next token waits for it."""

from __future__ import annotations

import logging
import queue
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeAlias, TypeVar

from localspec.errors import LocalSpecError
from localspec.protocol import Detokenize, Embed, Generate, Question, Render, Replay, Tokenize
from localspec.worker import process

_log = logging.getLogger("localspec.worker")

LONG_CHARS = 100_000
"""A request with more text waits for others like it, and not before those that are read at once."""
_TOKEN_CHARS, _VALUE_CHARS = 4, 50
"""What takes as long as so many characters: a token, and a message, a function or a part of one."""

Request: TypeAlias = Generate | Replay | Question
_Order = TypeVar("_Order")
_Queue: TypeAlias = queue.SimpleQueue[tuple[Request, float] | None]


@dataclass(frozen=True, slots=True)
class Read(Generic[_Order]):
    """A request that was read: what it asks for, or what is wrong with it.

    `arrived_at` is when it came, by the clock of whoever put it in.
    """

    request: Request
    arrived_at: float
    order: _Order | LocalSpecError


class Lanes(Generic[_Order]):
    """Two threads that read requests, one for short and one for long texts. Model lifetime.

    Everything here is for the engine's thread. What came first on a lane is read first.

    Args:
        read: Makes an order of a request, on the thread of a lane, or raises what is wrong.
        wake: Called from there when something has been read.
    """

    def __init__(self, read: Callable[[Request], _Order], wake: Callable[[], None]) -> None:
        self._read = read
        self._wake = wake
        self._pending: dict[str, Request] = {}
        self._done: queue.SimpleQueue[Read[_Order]] = queue.SimpleQueue()
        self._short, self._long = _Queue(), _Queue()
        self._threads = [
            process.deep_thread("intake", partial(self._work, self._short)),
            process.deep_thread("long-intake", partial(self._work, self._long)),
        ]

    @property
    def pending(self) -> int:
        """Requests that are not read yet."""
        return len(self._pending)

    def ids(self) -> Iterator[str]:
        """Of all requests that are not read yet."""
        yield from self._pending

    def put(self, request: Request, arrived_at: float) -> None:
        """Let it be read. Its id must not be among `ids`."""
        self._pending[request.id] = request
        lane = self._long if _chars(request) > LONG_CHARS else self._short
        lane.put((request, arrived_at))

    def cancel(self, id_: str) -> Request | None:
        """Forget a request that is not read yet; None if there is none."""
        return self._pending.pop(id_, None)

    def taken(self) -> Iterator[Read[_Order]]:
        """What has been read meanwhile and is still wanted."""
        while True:
            try:
                read = self._done.get_nowait()
            except queue.Empty:
                return
            if self._pending.get(read.request.id) is read.request:
                del self._pending[read.request.id]
                yield read

    def close(self) -> None:
        """Read nothing more. Waits for what is being read: the model may be freed then."""
        self._pending.clear()
        for lane in (self._short, self._long):
            lane.put(None)
        for thread in self._threads:
            thread.join()

    def _work(self, lane: _Queue) -> None:
        while (item := lane.get()) is not None:
            request, arrived_at = item
            if self._pending.get(request.id) is request:
                self._done.put(Read(request, arrived_at, self._order(request)))
            self._wake()

    def _order(self, request: Request) -> _Order | LocalSpecError:
        try:
            return self._read(request)
        except LocalSpecError as error:
            return error
        except Exception as error:  # noqa: BLE001 - a bug; the engine is untouched, others go on
            _log.exception("intake failed id=%s", request.id)
            return LocalSpecError(f"A bug: {error!r}.")


def _chars(request: Request) -> int:
    """How much there is to read, as characters of text."""
    match request:
        case Replay(request=inner, text=text):
            return len(text) + _chars(inner)
        case Render(request=inner):
            return _chars(inner)
        case Tokenize(text=text):
            return len(text)
        case Embed(texts=given):
            sizes = (len(one) * (1 if isinstance(one, str) else _TOKEN_CHARS) for one in given)
            return sum(sizes)
        case Detokenize(tokens=tokens):
            return len(tokens) * _TOKEN_CHARS
    texts = [request.prompt or "", request.prediction, request.suffix or "", request.begun]
    texts += [message.content for message in request.messages or ()]
    texts += [snippet.text for snippet in request.extra]
    values = len(texts) + _values(request.tools) + _values(request.template_kwargs)
    ids = len(request.prompt_tokens or ())
    return sum(map(len, texts)) + values * _VALUE_CHARS + ids * _TOKEN_CHARS


def _values(value: object) -> int:
    """How many values something of JSON holds, as far as it matters here."""
    pending: list[object] = [value]
    count = 0
    while pending and count * _VALUE_CHARS <= LONG_CHARS:
        one = pending.pop()
        count += 1
        if isinstance(one, dict):
            pending += one.values()
        elif isinstance(one, list):
            pending += one
    return count
