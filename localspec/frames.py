"""Frames between supervisor and worker: a length of 4 bytes, big-endian, then one msgpack message.

Sans I/O: both ends of the socketpair use these, one blocking and one under asyncio.
"""

from __future__ import annotations

import struct
from typing import TypeVar

import msgspec

from localspec.errors import EngineError, TooLarge
from localspec.protocol import MAX_FRAME_BYTES, Command, Event

_LENGTH = struct.Struct(">I")
HEADER_BYTES = _LENGTH.size

_T = TypeVar("_T")
_encoder = msgspec.msgpack.Encoder()
_commands: msgspec.msgpack.Decoder[Command] = msgspec.msgpack.Decoder(Command)
_events: msgspec.msgpack.Decoder[Event] = msgspec.msgpack.Decoder(Event)


def pack(message: Command | Event) -> bytes:
    """One whole frame. Raises TooLarge when the message does not fit a frame."""
    body = _encoder.encode(message)
    if len(body) > MAX_FRAME_BYTES:
        raise TooLarge(
            f"The request takes {len(body)} bytes; {MAX_FRAME_BYTES} are the most.",
            fix="Send a shorter prompt.",
        )
    return _LENGTH.pack(len(body)) + body


def body_bytes(header: bytes) -> int:
    """The length of the body that follows this header. Raises EngineError over the cap."""
    (length,) = _LENGTH.unpack(header)
    if length > MAX_FRAME_BYTES:
        raise EngineError(f"A frame announces {length} bytes; {MAX_FRAME_BYTES} are the most.")
    return int(length)


def command(body: bytes) -> Command:
    """What the supervisor says. Raises EngineError when it does not fit the closed schema."""
    return _decoded(_commands, body)


def event(body: bytes) -> Event:
    """What a worker says. Raises EngineError when it does not fit the closed schema."""
    return _decoded(_events, body)


def _decoded(decoder: msgspec.msgpack.Decoder[_T], body: bytes) -> _T:
    try:
        return decoder.decode(body)
    except (msgspec.DecodeError, RecursionError) as error:
        raise EngineError(f"A frame does not fit the protocol: {error}.") from error
