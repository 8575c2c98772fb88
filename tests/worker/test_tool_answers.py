"""Tools and thoughts through a real worker: calls, text and reasoning in its answers."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
import tiny
from worker_peer import Files, Heard, Worker, load

from localspec.wire.messages import Message

WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "parameters": {
            "type": "object",
            "properties": {"city": {"enum": ["heathen", "thinner"]}, "sure": {"type": "boolean"}},
            "required": ["city", "sure"],
            "additionalProperties": False,
        },
    },
}
NOW = {"type": "function", "function": {"name": "now"}}
TEMPLATE = (
    "{% if tools %}{% for tool in tools %}{{ tool.function.name }} {% endfor %}<tool_call>"
    "{% endif %}"
    "{% for message in messages %}<|im_start|>{{ message.role }} {{ message.content }}"
    "{% for call in message.tool_calls %}{{ call.function | tojson }}{% endfor %}{% endfor %}"
)


@pytest.fixture(scope="module")
def worker(files: Files, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    """A worker on a pair whose template knows tools."""
    folder = tmp_path_factory.mktemp("tools")
    target = tiny.build(folder / "target.gguf", template=TEMPLATE)
    worker = Worker(folder)
    worker.send(load(Files(target, files.draft, files.stranger)))
    worker.until_ready()
    yield worker
    worker.close()


def events_of(worker: Worker, **fields: Any) -> Heard:
    """Events of a chat about the weather."""
    messages = [Message("user", "What is the weather?")]
    chat = {"endpoint": "chat", "messages": messages, "ignore_eos": False, "max_tokens": 400}
    return worker.one(**{**chat, "tools": [WEATHER, NOW], **fields})


def calls(heard: Heard) -> list[tuple[str, Any]]:
    """Name and arguments of every call; the ids must differ."""
    parts = [part for delta in heard.deltas for part in delta.calls]
    begun = [part for part in parts if part.name]
    assert len({part.id for part in begun}) == len(begun) == heard.finished.tool_calls
    return [
        (one.name, json.loads("".join(p.arguments for p in parts if p.index == one.index)))
        for one in begun
    ]


def test_a_forced_call_is_made_and_speculation_goes_on(worker: Worker) -> None:
    """The arguments fit the schema, there is no text, and the grammar drafted most of it."""
    named = {"type": "function", "function": {"name": "get_weather"}}
    heard = events_of(worker, tool_choice=named)
    ((name, arguments),) = calls(heard)
    assert name == "get_weather"
    assert set(arguments) == {"city", "sure"}
    assert heard.text == ""
    assert heard.finished.reason == "stop"
    assert heard.finished.speculation.sources["grammar"].accepted > 0
    assert len(heard.tokens) == heard.finished.usage.completion_tokens - 1


def test_required_calls_one_of_them(worker: Worker) -> None:
    """Whichever it is; without parallel calls there is one, if the limit leaves room for it."""
    heard = events_of(worker, tool_choice="required", parallel_tool_calls=False)
    if heard.finished.reason == "stop":
        ((name, _),) = calls(heard)
        assert name in {"get_weather", "now"}
    assert {part.index for delta in heard.deltas for part in delta.calls} <= {0}


def test_without_force_a_random_model_writes_text(worker: Worker) -> None:
    """The same as without tools, but for the prompt."""
    heard = events_of(worker, max_tokens=30)
    assert calls(heard) == []
    assert heard.text


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tool_choice": {"type": "function", "function": {"name": "gone"}}}, "tool_choice"),
        ({"tool_choice": "sometimes"}, "tool_choice"),
        ({"tools": [], "tool_choice": "required"}, "tool_choice"),
        ({"tools": [{"type": "function", "function": {"name": "a b"}}]}, "tools"),
        ({"tools": [{"type": "function", "function": {"name": "f", "parameters": 1}}]}, "tools"),
        (
            {
                "tools": [
                    {
                        "type": "function",
                        "function": {"name": "f", "parameters": {"type": "nonsense"}},
                    }
                ],
                "tool_choice": "required",
            },
            "tools",
        ),
    ],
)
def test_invalid_tools_are_refused(worker: Worker, fields: dict[str, Any], param: str) -> None:
    """With the field that is wrong, before any text."""
    heard = events_of(worker, **fields)
    assert heard.failed.param == param
    assert heard.deltas == []


def test_a_history_of_calls_is_read(worker: Worker) -> None:
    """Calls and results of earlier turns are part of the prompt, with or without tools now."""
    function = {"name": "now", "arguments": "{}"}
    history = [
        Message("user", "What time is it?"),
        Message("assistant", "", {"tool_calls": [{"id": "a", "function": function}]}),
        Message("tool", "noon", {"tool_call_id": "a"}),
    ]
    for tools in ([NOW], []):
        heard = events_of(worker, messages=history, tools=tools, max_tokens=4, ignore_eos=True)
        assert heard.finished.reason == "length"
        assert heard.started is not None
        assert heard.started.prompt_tokens > len("What time is it? now noon")
