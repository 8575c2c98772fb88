"""Checks requests to and answers from an upstream with OpenAI's API. Pure, no HTTP."""

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
"""The most bytes of one answer, whole or streamed."""
MAX_WORDS = 500
"""Characters of an upstream's error message that are passed on."""

DONE = b"[DONE]"
_OURS = ("speculation", "return_origins", "return_progress", "aliases")
"""LocalSpec's own fields; a strict server would refuse them."""


@dataclass(frozen=True, slots=True)
class Route:
    """A model and the upstream that serves it; `name` is the upstream's in the configuration."""

    model: str
    name: str
    upstream: Upstream

    @property
    def who(self) -> str:
        """The upstream's name in error messages."""
        return f"The upstream {self.name} ({self.upstream.url})"

    def broke(self, how: str) -> UpstreamFailed:
        """Returns the error for an invalid answer."""
        return UpstreamFailed(f"{self.who} {how}.", fix="Look into its log, or ask again.")


@dataclass(frozen=True, slots=True)
class Call:
    """One outgoing request: `body` to `endpoint`, such as "chat/completions"."""

    to: Route
    endpoint: str
    body: bytes


def route(config: Config, model: str) -> Route | None:
    """Returns the upstream of a model that is not local; None if no upstream names it."""
    for name, upstream in config.upstream.items():
        if model in upstream.models:
            return Route(model, name, upstream)
    return None


class RelayedFields(msgspec.Struct):
    """The fields read here; the upstream reads the rest."""

    model: str | None = None
    stream: bool | None = None


def body(data: bytes, model: str) -> bytes:
    """Returns the body for the upstream: with the model's name, without LocalSpec's own fields."""
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
    """Returns this project's error for an upstream's status other than 200."""
    unknown = (UpstreamFailed, f"gave HTTP {status}", "Look into its log, or ask again.")
    kind, what, fix = _REDIRECT if status in _REDIRECTS else _MEANINGS.get(status, unknown)
    words = f": {message}" if (message := _words(answer)) else "."
    return kind(f"{to.who} {what}{words}", fix=fix.format(key=f"upstream.{to.name}"))


def whole(to: Route, answer: bytes) -> bytes:
    """Returns an answer without a stream as compact JSON. Raises UpstreamFailed."""
    return _object(to, answer)


@dataclass(slots=True)
class Chunks:
    """Parses a stream of server-sent events, cut anywhere, into the objects of its `data:` lines.

    `feed` raises UpstreamFailed for an invalid stream, an error in it, and one that is too long.
    `done` is set by [DONE].
    """

    to: Route
    done: bool = False
    _rest: bytes = field(default=b"")
    _bytes: int = 0

    def feed(self, piece: bytes) -> Iterator[bytes]:
        """Yields the JSON objects, compact, that end in this piece."""
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
        """Notes the end of the connection. Raises UpstreamFailed if the stream was not done."""
        if not self.done:
            raise self.to.broke("broke off in the middle of the answer")


def _object(to: Route, data: bytes) -> bytes:
    """Returns one JSON object without blanks. Raises UpstreamFailed, also if it is an error."""
    try:
        fields = msgspec.json.decode(data, type=dict[str, msgspec.Raw])
        compact = msgspec.json.format(data, indent=-1)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise to.broke("answers something that is not a JSON object") from error
    if bytes(fields.get("error", b"null")) != b"null":
        raise to.broke(f"failed: {_words(data) or 'it does not say why'}".rstrip("."))
    return compact


def _words(answer: bytes) -> str:
    """Returns the message of an error object in one line; "" if there is none."""
    try:
        found = msgspec.json.decode(answer)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return ""
    for key in ("error", "message", "detail"):
        if isinstance(found, dict) and key in found:
            found = found[key]
    text = found if isinstance(found, str) else ""
    return " ".join("".join(c if c.isprintable() else " " for c in text[:MAX_WORDS]).split())


def relayed_fields(data: bytes) -> RelayedFields:
    """Reads the model's name and whether a stream is wanted. Raises RequestError."""
    return decode(data, RelayedFields)
