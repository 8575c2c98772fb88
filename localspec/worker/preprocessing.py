"""Prepares requests beside the engine, so that no session's next token waits for it."""

from __future__ import annotations

import logging
import queue
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, Literal, TypeAlias, TypeVar, get_args

from localspec.errors import LocalSpecError
from localspec.wire.messages import Detokenize, Embed, Generate, Question, Render, Replay, Tokenize
from localspec.worker import process

_log = logging.getLogger("localspec.worker")

LONG_CHARS = 100_000
"""A request with more text waits behind other long ones, so that short ones do not wait for it."""
LONG_GRAMMAR_CHARS = 4_000
"""The same for grammars: one of this size compiles in some 50 ms, one of ten times the size in up
to two seconds."""
_TOKEN_CHARS, _VALUE_CHARS = 4, 50
"""The cost in characters of a token, and of a message, a function or a part of one."""

Request: TypeAlias = Generate | Replay | Question
_Result = TypeVar("_Result")
_Item: TypeAlias = tuple[Request, float]
Name: TypeAlias = Literal["texts", "long texts", "grammars", "long grammars"]
NAMES: tuple[Name, ...] = get_args(Name)


@dataclass(frozen=True, slots=True)
class Prepared(Generic[_Result]):
    """The result of preparing a request, or the error.

    `arrived_at` is its time of arrival, by the caller's clock.
    """

    request: Request
    arrived_at: float
    result: _Result | LocalSpecError


class Turns:
    """Requests that wait for one thread, served round-robin by client. Any thread.

    Here each conversation that a client names counts as a client of its own. Requests of one client
    are served in their order.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._clients: OrderedDict[tuple[str, str], deque[_Item]] = OrderedDict()
        self._closed = False

    def put(self, item: _Item) -> None:
        """Add a request."""
        with self._changed:
            self._clients.setdefault(_client(item[0]), deque()).append(item)
            self._changed.notify()

    def get(self) -> _Item | None:
        """Wait for the next request; None once the queue is closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._clients)
            if self._closed:
                return None
            client, items = self._clients.popitem(last=False)
            item = items.popleft()
            if items:
                self._clients[client] = items
            return item

    def close(self) -> None:
        """Let `get` return None from now on."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()


class Preprocessing(Generic[_Result]):
    """Threads that prepare requests: short and long texts, short and long grammars. Model lifetime.

    A request that takes long waits behind others like it and holds up no short one. All methods
    are for the engine's thread.

    Args:
        read: Prepares a request on one of the threads. Raises LocalSpecError.
        wake: Called on that thread when a request is done.
    """

    def __init__(self, read: Callable[[Request], _Result], wake: Callable[[], None]) -> None:
        self._read = read
        self._wake = wake
        self._pending: dict[str, Request] = {}
        self._done: queue.SimpleQueue[Prepared[_Result]] = queue.SimpleQueue()
        self._turns = {name: Turns() for name in NAMES}
        self._threads = [
            process.deep_thread(name, partial(self._work, turns))
            for name, turns in self._turns.items()
        ]

    @property
    def pending(self) -> int:
        """Requests that are not prepared yet."""
        return len(self._pending)

    def ids(self) -> Iterator[str]:
        """The ids of all requests that are not prepared yet."""
        yield from self._pending

    def put(self, request: Request, arrived_at: float) -> None:
        """Queue a request. Its id must not be among `ids`."""
        self._pending[request.id] = request
        self._turns[queue_of(request)].put((request, arrived_at))

    def cancel(self, id_: str) -> Request | None:
        """Drop a request that is not prepared yet; None if there is none."""
        return self._pending.pop(id_, None)

    def taken(self) -> Iterator[Prepared[_Result]]:
        """The requests prepared meanwhile and still wanted."""
        while True:
            try:
                read = self._done.get_nowait()
            except queue.Empty:
                return
            if self._pending.get(read.request.id) is read.request:
                del self._pending[read.request.id]
                yield read

    def close(self) -> None:
        """End the threads. Waits for requests in work, so that the model may be freed then."""
        self._pending.clear()
        for turns in self._turns.values():
            turns.close()
        for thread in self._threads:
            thread.join()

    def _work(self, turns: Turns) -> None:
        while (item := turns.get()) is not None:
            request, arrived_at = item
            if self._pending.get(request.id) is request:
                self._done.put(Prepared(request, arrived_at, self._result(request)))
            self._wake()

    def _result(self, request: Request) -> _Result | LocalSpecError:
        try:
            return self._read(request)
        except LocalSpecError as error:
            return error
        except Exception as error:  # noqa: BLE001 - a bug; the engine is untouched, others go on
            _log.exception("preprocessing failed id=%s", request.id)
            return LocalSpecError(f"A bug: {error!r}.")


def queue_of(request: Request) -> Name:
    """The thread for a request, by how long preparing it may take: an image takes seconds."""
    asked = request.request if isinstance(request, Replay | Render) else request
    grammar = _grammar_chars(asked) if isinstance(asked, Generate) else 0
    sees = isinstance(asked, Generate) and any(one.images for one in asked.messages or ())
    long = sees or _chars(request) > LONG_CHARS
    if grammar:
        return "long grammars" if long or grammar > LONG_GRAMMAR_CHARS else "grammars"
    return "long texts" if long else "texts"


def _client(request: Request) -> tuple[str, str]:
    """The client and conversation of a request."""
    asked = request.request if isinstance(request, Replay | Render) else request
    return (asked.client, asked.session) if isinstance(asked, Generate) else ("", "")


def _grammar_chars(request: Generate) -> int:
    """The size of an answer's grammar in characters; 0 where there is none to compile."""
    wanted = request.response_format
    if wanted == {"type": "json_object"} or (wanted or {}).get("type", "text") == "text":
        wanted = None
    strict = any(_is_strict(tool) for tool in request.tools)
    if strict or request.tool_choice not in (None, "auto", "none"):
        return _weight([wanted, request.tools])
    return _weight(wanted) if wanted else 0


def _is_strict(tool: dict[str, Any]) -> bool:
    function = tool.get("function")
    return isinstance(function, dict) and bool(function.get("strict"))


def _weight(value: object) -> int:
    """The size of a JSON value in characters, counted up to LONG_GRAMMAR_CHARS."""
    pending: list[object] = [value]
    weight = 0
    while pending and weight <= LONG_GRAMMAR_CHARS:
        one = pending.pop()
        weight += len(one) if isinstance(one, str) else 1
        if isinstance(one, dict):
            pending += one
            pending += one.values()
        elif isinstance(one, list):
            pending += one
    return weight


def _chars(request: Request) -> int:
    """The size of a request, as characters of text."""
    match request:
        case Replay(request=inner, text=text):
            return len(text) + _chars(inner)
        case Render(request=inner):
            return _chars(inner)
        case Tokenize(text=text):
            return len(text)
        case Embed(texts=given, query=query):
            sizes = (len(one) * (1 if isinstance(one, str) else _TOKEN_CHARS) for one in given)
            return sum(sizes) + len(query or "") * len(given)  # each document gets the query
        case Detokenize(tokens=tokens):
            return len(tokens) * _TOKEN_CHARS
    texts = [request.prompt or "", request.prediction, request.suffix or "", request.begun]
    texts += [message.content for message in request.messages or ()]
    texts += [snippet.text for snippet in request.extra]
    texts += [request.prefill, *(text for text, _ in request.biased_texts)]
    texts += [piece for piece in request.prompt_pieces or () if isinstance(piece, str)]
    extras = [message.extra for message in request.messages or () if message.extra]
    values = _value_chars([texts, request.tools, request.template_kwargs, extras])
    ids = len(request.prompt_tokens or request.prompt_pieces or ())
    return values + ids * _TOKEN_CHARS


def _value_chars(value: object) -> int:
    """The size of a JSON value as characters of text, counted up to LONG_CHARS."""
    pending: list[object] = [value]
    chars = 0
    while pending and chars <= LONG_CHARS:
        one = pending.pop()
        chars += _VALUE_CHARS
        if isinstance(one, str):
            chars += len(one)
        elif isinstance(one, dict):
            chars += sum(map(len, one))
            pending += one.values()
        elif isinstance(one, list):
            pending += one
    return chars
