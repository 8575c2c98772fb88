"""Relays between a client and an upstream, both of OpenAI's dialect. Pure, no HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import msgspec

from localspec.config import Config, Upstream
from localspec.errors import (
    Busy,
    LocalSpecError,
    RequestError,
    TooLarge,
    UpstreamFailed,
    UpstreamUnavailable,
)
from localspec_daemon.api.bodies import decode

MAX_LINE_BYTES = 1024 * 1024
MAX_ANSWER_BYTES = 64 * 1024 * 1024
"""Of one answer, whole or streamed."""
MAX_WORDS = 500
"""Characters of an upstream's own explanation that are passed on."""

DONE = b"[DONE]"
_OURS = ("speculation", "return_origins", "return_progress", "aliases")
"""Fields that only LocalSpec knows; a strict server would refuse them."""


@dataclass(frozen=True, slots=True)
class Route:
    """A model and the upstream that has it; `name` is the upstream's in the configuration."""

    model: str
    name: str
    upstream: Upstream

    @property
    def who(self) -> str:
        """The upstream as errors name it."""
        return f"The upstream {self.name} ({self.upstream.url})"

    def broke(self, how: str) -> UpstreamFailed:
        """The error for an answer that is none."""
        return UpstreamFailed(f"{self.who} {how}.", fix="Look into its log, or ask again.")


@dataclass(frozen=True, slots=True)
class Call:
    """One request as it goes out: `body` to `endpoint`, such as "chat/completions"."""

    to: Route
    endpoint: str
    body: bytes


def route(config: Config, model: str) -> Route | None:
    """Where a model is that is not here; None when no upstream names it."""
    for name, upstream in config.upstream.items():
        if model in upstream.models:
            return Route(model, name, upstream)
    return None


class Asked(msgspec.Struct):
    """The fields read here; the upstream reads the rest."""

    model: str | None = None
    stream: bool | None = None


def body(data: bytes, model: str) -> bytes:
    """The request as the upstream gets it: with its model named, without what only we know."""
    fields: dict[str, Any] = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
    for name in _OURS:
        fields.pop(name, None)
    return msgspec.json.encode(fields | {"model": model})


_URL = "Check {key}.url, which mostly ends in /v1, and {key}.models."
_MEANINGS: dict[int, tuple[type[LocalSpecError], str, str]] = {
    400: (RequestError, "refuses the request", ""),
    401: (UpstreamFailed, "wants another token", "Write it into {key}.token_file."),
    403: (UpstreamFailed, "wants another token", "Write it into {key}.token_file."),
    404: (UpstreamFailed, "does not know this model, or is another kind of server", _URL),
    413: (TooLarge, "refuses the request", "Send a shorter one."),
    422: (RequestError, "refuses the request", ""),
    429: (Busy, "is busy", "Try again in a moment."),
    503: (UpstreamUnavailable, "is not ready", "Try again in a moment."),
}
_REDIRECT = (UpstreamFailed, "redirects, and that is not followed", _URL)
_REDIRECTS = range(300, 400)


def refusal(to: Route, status: int, answer: bytes) -> LocalSpecError:
    """The error for an upstream's status that is not 200, in this project's classes."""
    unknown = (UpstreamFailed, f"gave HTTP {status}", "Look into its log, or ask again.")
    kind, what, fix = _REDIRECT if status in _REDIRECTS else _MEANINGS.get(status, unknown)
    words = f": {said}" if (said := _words(answer)) else "."
    return kind(f"{to.who} {what}{words}", fix=fix.format(key=f"upstream.{to.name}"))


def whole(to: Route, answer: bytes) -> bytes:
    """An answer that was not streamed, compact. Raises UpstreamFailed."""
    return _object(to, answer)


@dataclass(slots=True)
class Chunks:
    """The `data:` of a stream of server-sent events, whatever the pieces it comes in.

    `feed` raises UpstreamFailed for what is no such stream, for an error in it, and for too much of
    it. `done` once the stream has said so.
    """

    to: Route
    done: bool = False
    _rest: bytes = field(default=b"")
    _bytes: int = 0

    def feed(self, piece: bytes) -> Iterator[bytes]:
        """The JSON objects, compact, that end in this piece."""
        self._bytes += len(piece)
        *lines, self._rest = (self._rest + piece).split(b"\n")
        if self._bytes > MAX_ANSWER_BYTES or max(map(len, [*lines, self._rest])) > MAX_LINE_BYTES:
            raise self.to.broke("sends lines or answers without end")
        for line in lines:
            if self.done or not line.startswith(b"data:"):
                continue  # comments, names of events, blank lines
            data = line[5:].strip()
            if data == DONE:
                self.done = True
            else:
                yield _object(self.to, data)

    def end(self) -> None:
        """The connection has ended. Raises UpstreamFailed when the stream has not."""
        if not self.done:
            raise self.to.broke("broke off in the middle of the answer")


def _object(to: Route, data: bytes) -> bytes:
    """One JSON object without blanks. Raises UpstreamFailed, also when it is an error."""
    try:
        fields = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
        compact = msgspec.json.format(data, indent=-1)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise to.broke("answers something that is not a JSON object") from error
    if bytes(fields.get("error", b"null")) != b"null":
        raise to.broke(f"failed: {_words(data) or 'it does not say why'}".rstrip("."))
    return compact


def _words(answer: bytes) -> str:
    """The message of an error object, in one line; empty when there is none."""
    try:
        found = msgspec.json.decode(answer)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return ""
    for key in ("error", "message", "detail"):
        if isinstance(found, dict) and key in found:
            found = found[key]
    text = found if isinstance(found, str) else ""
    return " ".join("".join(c if c.isprintable() else " " for c in text[:MAX_WORDS]).split())


def asked(data: bytes) -> Asked:
    """Which model, and whether as a stream. Raises RequestError."""
    return decode(data, Asked)
