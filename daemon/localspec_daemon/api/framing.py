"""How a stream of JSON objects becomes bytes: server-sent events, named or not, and lines. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

_encoder = msgspec.json.Encoder()


@dataclass(frozen=True, slots=True)
class Framing:
    """One object, one frame, whole characters only.

    `named` events are called as the `type` in them says. `done` is what ends an orderly stream.
    Comments are what parsers skip and people can read; lines of JSON have none.
    """

    media_type: str
    lines: bool = False
    named: bool = False
    done: bytes = b""

    def frame(self, value: Any) -> bytes:
        """One object, as compact JSON: some clients look for `"content":` without a blank."""
        data = _encoder.encode(value)
        if self.lines:
            return data + b"\n"
        name = b"event: " + value["type"].encode() + b"\n" if self.named else b""
        return name + b"data: " + data + b"\n\n"

    def comment(self, text: str) -> bytes:
        """A comment of the stream; empty where there is no such thing."""
        return b"" if self.lines else f": {text}\n\n".encode()


EVENTS = Framing("text/event-stream", done=b"data: [DONE]\n\n")
UNENDING_EVENTS = Framing("text/event-stream")
NAMED_EVENTS = Framing("text/event-stream", named=True)
LINES = Framing("application/x-ndjson", lines=True)
