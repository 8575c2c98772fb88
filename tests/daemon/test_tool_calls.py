"""Calls and thoughts in OpenAI's shapes, and with OpenAI's own client on a real worker."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import msgspec
import openai
import pytest
import tiny
from daemon.test_end_to_end import openai_client

from localspec.config import Config
from localspec.wire.messages import Delta
from localspec.wire.values import CallDelta
from localspec_daemon.api.dialect import Answer, Caller
from localspec_daemon.api.openai import CHAT
from localspec_daemon.supervisor.worker import COMMAND

TOOL = {
    "type": "function",
    "function": {
        "name": "guess",
        "parameters": {
            "type": "object",
            "properties": {"word": {"enum": ["heathen", "thinner"]}},
            "required": ["word"],
            "additionalProperties": False,
        },
    },
}
TEMPLATE = (
    "{% if tools %}<tool_call>{{ tools[0].function.name }}{% endif %}"
    "{% for message in messages %}<|im_start|>{{ message.role }} {{ message.content }}"
    "{% for call in message.tool_calls %}{{ call.function | tojson }}{% endfor %}{% endfor %}"
)
ASKED: dict[str, Any] = {
    "messages": [{"role": "user", "content": "guess"}],
    "tools": [TOOL],
    "max_tokens": 120,
}
DELTAS = [
    Delta("x", "", [1], reasoning="Well."),
    Delta("x", "Look:", [2], [(5, "target")]),
    Delta("x", "", [3], calls=[CallDelta(0, "a", "guess"), CallDelta(0, arguments='{"wo')]),
    Delta("x", "", [4], calls=[CallDelta(0, arguments='rd":1}'), CallDelta(1, "b", "guess")]),
    Delta("x", "", [5], calls=[CallDelta(1, arguments="{}")]),
]


def reply() -> Any:
    """Returns a chat's reply."""
    asked = CHAT.read(msgspec.json.encode(ASKED), Config(), Caller("uid:1"))
    return CHAT.reply(asked, "m")


def test_a_stream_has_one_call_in_a_chunk_and_its_name_once() -> None:
    """Thoughts, text and parts of calls each have chunks of their own."""
    chat = reply()
    deltas = [chunk["choices"][0]["delta"] for delta in DELTAS for chunk in chat.delta(0, delta)]
    assert deltas[:2] == [{"reasoning_content": "Well."}, {"content": "Look:"}]
    parts = [part for delta in deltas[2:] for part in delta["tool_calls"]]
    assert len(parts) == len(deltas[2:]) == 5
    assert parts[0] == {
        "index": 0, "id": "a", "type": "function", "function": {"name": "guess", "arguments": ""},
    }  # fmt: skip
    assert parts[1] == {"index": 0, "function": {"arguments": '{"wo'}}
    assert [part["index"] for part in parts] == [0, 0, 0, 1, 1]


def test_an_answer_in_one_piece_has_all_of_each_call() -> None:
    """Arguments are joined; content may stand beside them."""
    answer = Answer()
    for delta in DELTAS:
        answer.take(delta)
    assert answer.text == "Look:"
    assert answer.reasoning == "Well."
    assert [(call.id, call.name, call.arguments) for call in answer.calls] == [
        ("a", "guess", '{"word":1}'), ("b", "guess", "{}"),
    ]  # fmt: skip


def test_the_openai_client_is_given_calls_and_sends_their_results(
    harness: Any, daemon: Any
) -> None:
    """Streamed and whole, forced by name and by "required"; a history with a result is read."""
    tiny.build(harness.models / "alpha.gguf", template=TEMPLATE)
    harness.configure(engine={"context": 512, "slots": 2}, sampling={"seed": 1})

    def scene() -> None:
        with openai_client(harness) as client:
            create: Any = client.chat.completions.create
            asked = {**ASKED, "model": "alpha", "parallel_tool_calls": False}
            whole = create(**asked, tool_choice="required").choices[0]
            (call,) = whole.message.tool_calls
            assert (whole.finish_reason, whole.message.content) == ("tool_calls", None)
            assert json.loads(call.function.arguments)["word"] in {"heathen", "thinner"}
            named: Any = {"type": "function", "function": {"name": "guess"}}
            with client.chat.completions.stream(**asked, tool_choice=named) as stream:
                last: Any = stream.get_final_completion().choices[0]
            assert last.finish_reason == "tool_calls"
            assert last.message.tool_calls[0].function.name == "guess"
            history = [
                *asked["messages"],
                whole.message.model_dump(exclude_none=True),
                {"role": "tool", "tool_call_id": call.id, "content": "right"},
            ]
            told = create(**{**asked, "messages": history}, tool_choice="none")
            assert told.usage.prompt_tokens > len("guess right heathen")
            with pytest.raises(openai.BadRequestError) as refused:
                create(**asked, tool_choice={"type": "function", "function": {"name": "gone"}})
            assert refused.value.param == "tool_choice"

    async def served() -> None:
        async with daemon(harness, COMMAND):
            await asyncio.to_thread(scene)

    asyncio.run(served())
