"""Packs and parses the frames between supervisor and worker, without I/O.

A frame is a length of 4 bytes, big-endian, then one msgpack message. One end of the socketpair
blocks, the other runs under asyncio.
"""

from __future__ import annotations

import struct
from typing import Any, TypeVar

import msgspec

from localspec.errors import EngineError, RequestError, TooLarge
from localspec.wire.messages import (
    MAX_FRAME_BYTES,
    Command,
    Event,
    Generate,
    Message,
    Render,
    Replay,
)

MAX_DEPTH = 128
"""The deepest nesting of lists and objects in a field of a request."""
MAX_VALUES = 100_000
"""Values in one field of a request: more are no conversation, and take long to walk through."""
_LOOSE = ("messages", "response_format", "template_kwargs", "tools", "tool_choice")

_LENGTH = struct.Struct(">I")
HEADER_BYTES = _LENGTH.size

_T = TypeVar("_T")
_encoder = msgspec.msgpack.Encoder()
_commands: msgspec.msgpack.Decoder[Command] = msgspec.msgpack.Decoder(Command)
_events: msgspec.msgpack.Decoder[Event] = msgspec.msgpack.Decoder(Event)


def pack(message: Command | Event) -> bytes:
    """Pack a message into a frame.

    Raises TooLarge for a message over MAX_FRAME_BYTES, and RequestError for a request nested too
    deep or with too many values, and for a text or number that msgpack cannot encode.
    """
    request = message.request if isinstance(message, Replay | Render) else message
    if isinstance(request, Generate):
        _check(request)
    try:
        body = _encoder.encode(message)
    except (UnicodeEncodeError, OverflowError, RecursionError, msgspec.MsgspecError) as error:
        raise RequestError(f"No frame can hold this: {error}.") from error
    if len(body) > MAX_FRAME_BYTES:
        is_answer = isinstance(message, Event)
        raise TooLarge(
            f"The {'answer' if is_answer else 'request'} takes {len(body)} bytes; "
            f"{MAX_FRAME_BYTES} are the most.",
            fix="Ask for less at once." if is_answer else "Send a shorter prompt.",
        )
    return _LENGTH.pack(len(body)) + body


def body_bytes(header: bytes) -> int:
    """The length of the body that follows this header. Raises EngineError over the cap."""
    (length,) = _LENGTH.unpack(header)
    if length > MAX_FRAME_BYTES:
        raise EngineError(f"A frame announces {length} bytes; {MAX_FRAME_BYTES} are the most.")
    return int(length)


def command(body: bytes) -> Command:
    """Decode a command of the supervisor. Raises EngineError where it does not fit the schema."""
    return _decoded(_commands, body)


def event(body: bytes) -> Event:
    """Decode an event of a worker. Raises EngineError where it does not fit the schema."""
    return _decoded(_events, body)


def _check(request: Generate) -> None:
    """Refuse fields nested too deep or with too many values, which could end a worker."""
    for field in _LOOSE:
        pending: list[tuple[Any, int]] = [(getattr(request, field), 0)]
        seen = 0
        while pending:
            value, depth = pending.pop()
            seen += 1
            if seen + len(pending) > MAX_VALUES:
                raise RequestError(f"{field} holds more than {MAX_VALUES} values.", param=field)
            if depth > MAX_DEPTH:
                raise RequestError(f"{field} is nested more than {MAX_DEPTH} deep.", param=field)
            if isinstance(value, Message):
                pending.append((value.extra, depth + 1))
            elif isinstance(value, dict):
                pending += ((inner, depth + 1) for inner in value.values())
            elif isinstance(value, list):
                pending += ((inner, depth + 1) for inner in value)
            elif isinstance(value, int) and not -(1 << 63) <= value < 1 << 64:
                raise RequestError(f"{field} holds an integer beyond 64 bits.", param=field)


def _decoded(decoder: msgspec.msgpack.Decoder[_T], body: bytes) -> _T:
    try:
        return decoder.decode(body)
    except (msgspec.DecodeError, RecursionError) as error:
        raise EngineError(f"A frame does not fit the protocol: {error}.") from error
