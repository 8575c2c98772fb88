"""The seam of the API families: what a dialect is, and what passes through it. Pure, no HTTP.

A dialect is one endpoint of one family of APIs. Adding one is a file with a `Dialect` in it and a
line in the table of `routes.py`; nothing else has to learn its name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
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
    """Who asks, as far as the body does not say.

    `client` is the principal that the kernel or the token established. `session` is what the
    client's own headers call this conversation, "" where they do not.
    """

    client: str
    session: str = ""


@dataclass(frozen=True, slots=True)
class Asked:
    """A request that was understood.

    `generates` are its choices in the order in which they are answered: one for each prompt and
    each of `n`. `body` is the body as the dialect decoded it, for its own `Reply`. `aliases` False
    takes a model's name as it stands; `progress` asks for every word about loading. After
    `silence_seconds` a stream gives a sign of life, never if that is below 0, and by the daemon's
    own number where it is None.
    """

    model: str
    generates: tuple[Generate, ...]
    stream: bool
    body: Any = None
    aliases: bool = True
    progress: bool = False
    silence_seconds: float | None = None


@dataclass(slots=True)
class Call:
    """One call of a function; `arguments` is a JSON object as text."""

    id: str
    name: str
    arguments: str = ""

    @property
    def parsed(self) -> Json | None:
        """The arguments as an object; None of a call that was cut short, which is none."""
        try:
            return msgspec.json.decode(self.arguments, type=Json)
        except msgspec.MsgspecError:
            return None


@dataclass(slots=True)
class Answer:
    """One choice as far as it has come; `finished` once it is over."""

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
        """The next event of this choice."""
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
        """The last event. Raises RuntimeError before it came."""
        if self.finished is None:
            raise RuntimeError("a request ended without its last event")
        return self.finished


class Reply(Protocol):
    """The shapes of one request's answer. Request lifetime; may remember what it has said.

    Whole, it is `whole`. As a stream it is what `begin`, `delta` and `finish` of each choice and
    `end` give, in that order; each object becomes one frame.
    """

    def begin(self, started: Started) -> Iterable[Json]:
        """Before the first text: the first choice has its slot."""

    def waiting(self) -> Iterable[Json]:
        """A sign of life at any time, before `begin` too; nothing where a comment will do."""

    def reading(self, choice: int, reading: Reading) -> Iterable[Json]:
        """How far a choice's prompt is read; only where the request asked to be told."""

    def delta(self, choice: int, delta: Delta) -> Iterable[Json]:
        """New text of a choice."""

    def finish(self, choice: int, finished: Finished) -> Iterable[Json]:
        """The end of a choice."""

    def end(self) -> Iterable[Json]:
        """The end of all choices."""

    def broken(self, error: LocalSpecError) -> Iterable[Json]:
        """An error in the middle of the stream, which ends with it."""

    def whole(self, answers: Sequence[Answer]) -> Any:
        """The answer in one piece, to a request that did not ask for a stream."""


class Quiet:
    """A `Reply` that says nothing before its first text and nothing after its last choice."""

    __slots__ = ()

    def begin(self, _started: Started) -> Iterable[Json]:
        """Nothing yet."""
        return ()

    def waiting(self) -> Iterable[Json]:
        """Nothing: what parsers skip will do."""
        return ()

    def reading(self, _choice: int, _reading: Reading) -> Iterable[Json]:
        """Nothing of how far the prompt is read."""
        return ()

    def end(self) -> Iterable[Json]:
        """Nothing more."""
        return ()


@dataclass(frozen=True, slots=True)
class Dialect:
    """How one endpoint is spoken.

    `read` raises RequestError for a body that it does not understand. `reply` is given the request
    and the name of the model that answers. `errors` is the body of an error response. `framing`
    cuts a stream. `endpoint` is the path below an upstream's base URL that takes the same bodies,
    "" where none does.
    """

    read: Callable[[bytes, Config, Caller], Asked]
    reply: Callable[[Asked, str], Reply]
    errors: Callable[[LocalSpecError], Json]
    framing: Framing
    endpoint: str = ""
