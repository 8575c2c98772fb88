"""Laws of the frames between supervisor and worker."""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.config import Config
from localspec.errors import EngineError, RequestError, TooLarge
from localspec.types import SamplingParams, SourceCount, SpeculationParams
from localspec.wire import frames
from localspec.wire.messages import (
    MAX_FRAME_BYTES,
    Cancel,
    Command,
    Delta,
    Event,
    Generate,
    Load,
    Message,
    Quit,
    Render,
    Replay,
    SpeculationReport,
)

COMMANDS: list[Command] = [
    Load("m", "/a", None, Config()),
    Generate(
        "1",
        "chat",
        "uid:1",
        SamplingParams(seed=(1 << 64) - 1, logit_bias={7: -1.5}),
        SpeculationParams(drafters=["lookup"]),
        messages=[Message("user", "hé", {"tool_calls": [{"a": None}]})],
        stop=["\n"],
    ),
    Cancel("1"),
    Quit(),
]


def body(frame: bytes) -> bytes:
    """A frame's body, after its header was found to tell the truth."""
    header, rest = frame[: frames.HEADER_BYTES], frame[frames.HEADER_BYTES :]
    assert frames.body_bytes(header) == len(rest)
    return rest


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_comes_out_as_it_went_in(command: Command) -> None:
    """Every kind of command survives the frame, defaults and 64-bit seeds included."""
    assert frames.command(body(frames.pack(command))) == command


@given(st.text(), st.lists(st.integers(0, 1 << 20)))
def test_an_event_comes_out_as_it_went_in(text: str, tokens: list[int]) -> None:
    """Text of any characters and tokens of any number survive the frame."""
    event = Delta("x", text, tokens, [(len(text), "target")])
    assert frames.event(body(frames.pack(event))) == event


def test_a_report_keeps_its_counts() -> None:
    """The counts by source, a dataclass inside a struct, cross as what they are."""
    sources = {"lookup": SourceCount(3, 2, [2, 1], [2, 0])}
    report = SpeculationReport("speculating", "coupled", 2, 3, 2, sources, 0.1, 0.2, 0.3, 0.4)
    packed = msgspec.msgpack.encode(report)
    assert msgspec.msgpack.decode(packed, type=SpeculationReport) == report


def test_a_length_over_the_cap_is_refused_before_anything_is_read() -> None:
    """A header that announces more than the cap is an error by itself."""
    assert frames.body_bytes(struct.pack(">I", MAX_FRAME_BYTES)) == MAX_FRAME_BYTES
    with pytest.raises(EngineError, match="announces"):
        frames.body_bytes(struct.pack(">I", MAX_FRAME_BYTES + 1))


def test_a_message_over_the_cap_is_not_sent() -> None:
    """A message too long for a frame is the sender's error."""
    with pytest.raises(TooLarge, match="are the most"):
        frames.pack(Cancel("x" * MAX_FRAME_BYTES))


def nested(depth: int) -> list[Any]:
    """Lists inside of each other."""
    inner: list[Any] = []
    for _ in range(depth):
        inner = [inner]
    return inner


@pytest.mark.parametrize(
    ("field", "held"),
    [
        ("template_kwargs", lambda loose: {"x": loose}),
        ("response_format", lambda loose: {"type": "json_object", "schema": {"enum": [loose]}}),
        ("tools", lambda loose: [{"function": {"parameters": {"default": loose}}}]),
        ("messages", lambda loose: [Message("user", "", {"tool_calls": [{"id": loose}]})]),
    ],
)
def test_what_a_client_nests_and_counts_without_end_is_its_own_error(
    field: str, held: Callable[[Any], Any]
) -> None:
    """No supervisor fails at it and no worker: not in a request, not in one inside of another."""
    generate = COMMANDS[1]
    assert isinstance(generate, Generate)
    for loose in (nested(975), nested(100_000), 1 << 64, -(1 << 63) - 1):
        request = msgspec.structs.replace(generate, **{field: held(loose)})
        for command in (request, Replay(request, "text"), Render("1", request)):
            with pytest.raises(RequestError) as caught:
                frames.pack(command)
            assert caught.value.param == field
    for fine in (nested(frames.MAX_DEPTH - 8), (1 << 64) - 1, -(1 << 63)):
        request = msgspec.structs.replace(generate, **{field: held(fine)})
        assert frames.command(body(frames.pack(request))) == request


@given(st.binary(max_size=64))
def test_any_bytes_are_a_message_or_an_error(data: bytes) -> None:
    """Bytes that are no message end as EngineError, never as anything else."""
    for decode in (frames.command, frames.event):
        with contextlib.suppress(EngineError):
            assert isinstance(decode(data), Command | Event)


def test_unknown_kinds_and_deep_nesting_are_errors() -> None:
    """A message of the other direction, an unknown one and a nested bomb are all refused."""
    with pytest.raises(EngineError):
        frames.command(msgspec.msgpack.encode({"type": "nonsense"}))
    with pytest.raises(EngineError):
        frames.command(body(frames.pack(Delta("1", "", []))))
    bomb = msgspec.msgpack.encode({"type": "generate", "template_kwargs": 0})[:-1]
    with pytest.raises(EngineError):
        frames.command(bomb + b"\x81\xa1a" * 100_000 + b"\xc0")
