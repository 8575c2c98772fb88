"""Defines a dialect of the API and the values that pass through one. Pure, no HTTP.

A dialect is one endpoint of one family of APIs: a file with a `Dialect` in it and a line in the
table of `http/routes.py`. Its types for the OpenAPI document are in `types/`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeAlias

import msgspec

from localspec.config import Config
from localspec.errors import LocalSpecError
from localspec.wire.messages import Delta, Finished, Generate, Reading, Started
from localspec.wire.values import TokenLogprob
from localspec_daemon.api.framing import Framing

Json: TypeAlias = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Caller:
    """The origin of a request, from its connection and its headers.

    `client` is the principal that the kernel or the token established. `session` is the name of the
    conversation in the client's headers, or "".
    """

    client: str
    session: str = ""


@dataclass(frozen=True, slots=True)
class ParsedRequest:
    """A request whose body was read.

    `generates` are its choices in the order in which they are answered: one for each prompt and
    each of `n`. `body` is the decoded body, for the `Reply` of the same dialect. `aliases` False
    takes the model's name literally; `progress` asks for all events of loading. A stream that is
    silent for `silence_seconds` gets a keep-alive; a number below 0 means none, None the daemon's
    default. `names` maps fields of `Generate` to their names in the body, for error messages.
    """

    model: str
    generates: tuple[Generate, ...]
    stream: bool
    body: Any = None
    aliases: bool = True
    progress: bool = False
    silence_seconds: float | None = None
    names: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Call:
    """One tool call; `arguments` is a JSON object as text."""

    id: str
    name: str
    arguments: str = ""

    @property
    def parsed(self) -> Json | None:
        """The arguments as an object; None if the call was cut short."""
        try:
            return msgspec.json.decode(self.arguments, type=Json)
        except msgspec.MsgspecError:
            return None


@dataclass(slots=True)
class Answer:
    """One choice so far; `finished` is set once it is complete."""

    finished: Finished | None = None
    reasoning: str = ""
    calls: list[Call] = field(default_factory=list)
    origins: list[tuple[int, str]] = field(default_factory=list)
    logprobs: list[TokenLogprob] = field(default_factory=list)
    started: Started | None = None
    tokens: list[int] = field(default_factory=list)
    _texts: list[str] = field(default_factory=list)

    @property
    def text(self) -> str:
        """The text so far."""
        return "".join(self._texts)

    def take(self, event: Started | Delta | Finished) -> None:
        """Adds the next event of this choice."""
        if isinstance(event, Started):
            self.started = event
        elif isinstance(event, Delta):
            self._texts.append(event.text)
            self.reasoning += event.reasoning
            for part in event.calls:
                if part.name:
                    self.calls.append(Call(part.id, part.name))
                self.calls[part.index].arguments += part.arguments
            self.origins += event.origins
            self.tokens += event.tokens
            self.logprobs += event.logprobs
        elif isinstance(event, Finished):
            self.finished = event

    @property
    def end(self) -> Finished:
        """The last event. Raises RuntimeError before it has come."""
        if self.finished is None:
            raise RuntimeError("a request ended without its last event")
        return self.finished


class Reply(Protocol):
    """Turns the events of one request into objects of its dialect. Lives as long as the request.

    A stream is the objects of `begin`, of each choice's `delta` and `finish`, and of `end`, in that
    order, one frame each. `whole` is the answer without a stream.
    """

    def begin(self, started: Started) -> Iterable[Json]:
        """Called before the first text, when the first choice has its slot."""

    def waiting(self) -> Iterable[Json]:
        """A keep-alive, also before `begin`; empty where the framing's comment is enough."""

    def reading(self, choice: int, reading: Reading) -> Iterable[Json]:
        """Progress of a choice's prompt; called only if the request wants it."""

    def delta(self, choice: int, delta: Delta) -> Iterable[Json]:
        """New text of a choice."""

    def finish(self, choice: int, finished: Finished) -> Iterable[Json]:
        """The end of a choice."""

    def end(self) -> Iterable[Json]:
        """The end of all choices."""

    def broken(self, error: LocalSpecError) -> Iterable[Json]:
        """The error that ends a stream."""

    def whole(self, answers: Sequence[Answer]) -> Any:
        """The whole answer, to a request without a stream."""


class ReplyDefaults:
    """A `Reply` with nothing before its first text and nothing after its last choice."""

    __slots__ = ()

    def begin(self, _started: Started) -> Iterable[Json]:
        """Returns nothing."""
        return ()

    def waiting(self) -> Iterable[Json]:
        """Returns nothing: a comment keeps the stream alive."""
        return ()

    def reading(self, _choice: int, _reading: Reading) -> Iterable[Json]:
        """Returns nothing."""
        return ()

    def end(self) -> Iterable[Json]:
        """Returns nothing."""
        return ()


@dataclass(frozen=True, slots=True)
class Dialect:
    """One endpoint of one family of APIs, as functions.

    `read` parses a body, or raises RequestError. `reply` takes the request and the name of the
    answering model. `framing` encodes the objects of a stream. `endpoint` is the path below an
    upstream's base URL that takes the same bodies, or "". Bodies of errors are those of the path's
    family (`http/route.py`).
    """

    read: Callable[[bytes, Config, Caller], ParsedRequest]
    reply: Callable[[ParsedRequest, str], Reply]
    framing: Framing
    endpoint: str = ""
