"""A tool call that a limit cut is never handed over as complete, in any dialect."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from daemon.test_dialects import FINISHED, MESSAGE, RESPONSE

from localspec.config import Config
from localspec.wire.messages import Delta, Started
from localspec.wire.values import CallDelta
from localspec_daemon.api import anthropic, ollama, responses
from localspec_daemon.api.dialect import Answer, Caller, Dialect

OLLAMA: Any = {"model": "m", "messages": [{"role": "user", "content": "hi"}]}
WHOLE = [CallDelta(0, "c1", "now"), CallDelta(0, arguments="{}")]
BEGUN = [CallDelta(1, "c2", "add"), CallDelta(1, arguments='{"a": 1')]


def told(dialect: Dialect, body: Any, calls: list[CallDelta]) -> tuple[list[Any], Any]:
    """Returns the frames and the whole answer of a request that the limit ended."""
    asked = dialect.read(msgspec.json.encode(body), Config(), Caller("uid:1"))
    reply, answer = dialect.reply(asked, "m"), Answer()
    delta = Delta("x", "ok", [1], calls=calls)
    number = sum(1 for call in calls if call.name)
    finished = msgspec.structs.replace(FINISHED, reason="length", tool_calls=number)
    frames = [*reply.begin(Started("x", 10, 4)), *reply.delta(0, delta)]
    for event in (delta, finished):
        answer.take(event)
    frames += [*reply.finish(0, finished), *reply.end()]
    return frames, dialect.reply(asked, "m").whole([answer])


@pytest.mark.parametrize("calls", [[], WHOLE, [*WHOLE, *BEGUN]])
def test_anthropic_says_max_tokens_and_has_whole_calls_only(calls: list[CallDelta]) -> None:
    """A cut call is neither `input: {}` nor the stop reason tool_use."""
    frames, whole = told(anthropic.MESSAGES, MESSAGE, calls)
    assert frames[-2]["delta"]["stop_reason"] == whole["stop_reason"] == "max_tokens"
    used = [block["name"] for block in whole["content"] if block["type"] == "tool_use"]
    assert used == (["now"] if calls else [])


def test_ollama_leaves_out_a_call_that_has_no_end() -> None:
    """Both in a stream and in one piece."""
    frames, whole = told(ollama.CHAT, OLLAMA, [*WHOLE, *BEGUN])
    streamed = [one for frame in frames for one in frame["message"].get("tool_calls", ())]
    assert streamed == whole["message"]["tool_calls"]
    assert [one["function"]["name"] for one in streamed] == ["now"]


def test_a_response_that_is_cut_is_incomplete() -> None:
    """Its last call is incomplete too."""
    _, whole = told(responses.RESPONSES, RESPONSE, [*WHOLE, *BEGUN])
    assert whole["status"] == "incomplete"
    assert [item["status"] for item in whole["output"]][-2:] == ["completed", "incomplete"]


def test_words_and_calls_of_a_responses_history_are_one_message() -> None:
    """Text and calls of one answer are joined; results follow."""
    body = {
        "input": [
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": "I look."},
            {"type": "function_call", "call_id": "a", "name": "now", "arguments": "{}"},
            {"type": "function_call", "call_id": "b", "name": "add", "arguments": '{"a": 1}'},
            {"type": "function_call_output", "call_id": "a", "output": "nine"},
            {"type": "function_call_output", "call_id": "b", "output": "two"},
            {"role": "assistant", "content": "Done."},
        ]
    }
    asked = responses.RESPONSES.read(msgspec.json.encode(body), Config(), Caller("uid:1"))
    turns = asked.generates[0].messages or []
    assert [turn.role for turn in turns] == ["user", "assistant", "tool", "tool", "assistant"]
    assert turns[1].content == "I look."
    assert [call["id"] for call in turns[1].extra["tool_calls"]] == ["a", "b"]
