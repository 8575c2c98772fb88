"""Encodes a stream of JSON objects: server-sent events, named or not, or lines. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

_encoder = msgspec.json.Encoder()


@dataclass(frozen=True, slots=True)
class Framing:
    """Encodes one object as one frame; no character is split.

    `named` adds the object's `type` as the event's name. `done` ends a complete stream. Parsers
    skip comments, but people see them; lines of JSON have no comments.
    """

    media_type: str
    lines: bool = False
    named: bool = False
    done: bytes = b""

    def frame(self, value: Any) -> bytes:
        """Returns the frame of one object.

        Its JSON is compact: some clients search for `"content":` without a space behind it.
        """
        data = _encoder.encode(value)
        if self.lines:
            return data + b"\n"
        name = b"event: " + value["type"].encode() + b"\n" if self.named else b""
        return name + b"data: " + data + b"\n\n"

    def comment(self, text: str) -> bytes:
        """Returns a comment of the stream; empty for lines of JSON."""
        return b"" if self.lines else f": {text}\n\n".encode()


EVENTS = Framing("text/event-stream", done=b"data: [DONE]\n\n")
UNENDING_EVENTS = Framing("text/event-stream")
NAMED_EVENTS = Framing("text/event-stream", named=True)
LINES = Framing("application/x-ndjson", lines=True)
