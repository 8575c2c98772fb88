"""Chats that clients really send, and the ones that are wrong: each has the answer it should."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import msgspec
import pytest
import tiny

from localspec.config import Config
from localspec_daemon.api.dialect import Caller
from localspec_daemon.api.openai import CHAT
from localspec_daemon.supervisor.worker import COMMAND

USER = {"role": "user", "content": "hi"}
RESULT = {"role": "tool", "tool_call_id": "c1", "content": "ok"}
TEMPLATE = (
    "{% if tools %}<tool_call>{{ tools[0].function.name }}{% endif %}{% for message in messages %}"
    "<|im_start|>{{ message.role }} {{ message.content }}{% for call in message.tool_calls %}"
    "{{ call.function | tojson }}{% endfor %}<|im_end|>{% endfor %}"
)


def tool(parameters: Any = None, name: str = "get", **more: Any) -> dict[str, Any]:
    """A tool of these parameters; without any it has none."""
    function = {"name": name, **more} | ({} if parameters is None else {"parameters": parameters})
    return {"type": "function", "function": function}


def call(**function: Any) -> dict[str, Any]:
    """A message of an assistant that called the tool."""
    one = {"id": "c1", "type": "function", "function": {"name": "get", **function}}
    return {"role": "assistant", "content": None, "tool_calls": [one]}


def behind(*messages: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """A chat of a user and these messages."""
    return {"messages": [USER, *messages], "max_tokens": 4, **fields}


def answered(*messages: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """The same, with the result of a call behind them and the tool that was called."""
    return behind(*messages, RESULT, tools=[TOOL], **fields)


TOOL = tool({"type": "object", "properties": {"q": {"type": "string"}}})
NULLS = (
    "stop", "temperature", "n", "stream_options", "tools", "tool_choice", "response_format",
    "top_p", "seed", "logprobs", "user", "metadata", "store", "parallel_tool_calls", "logit_bias",
    "reasoning_effort", "prediction", "modalities", "max_completion_tokens",
)  # fmt: skip
STRICT = {
    "type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"],
    "additionalProperties": False,
}  # fmt: skip
NULLABLE = {"a": {"anyOf": [{"type": "string"}, {"type": "null"}], "default": None}}
REFERRED = {
    "type": "object",
    "properties": {"a": {"$ref": "#/$defs/A"}},
    "$defs": {"A": {"type": "object", "properties": {"b": {"type": "integer"}}}},
}
DRAFT_7 = {
    "$schema": "http://json-schema.org/draft-07/schema#",
    "type": "object",
    "properties": {"a": {"type": ["string", "null"], "format": "uri"}},
}
TAKEN: dict[str, dict[str, Any]] = {
    "null is absent": behind(**dict.fromkeys(NULLS)),
    "no tools": behind(tools=[]),
    "auto without tools": behind(tool_choice="auto"),
    "none without tools": behind(tool_choice="none"),
    "a tool without parameters": behind(tools=[tool()]),
    "a tool of nulls": behind(
        tools=[{"type": "function", "function": {"name": "x", "parameters": None, "strict": None}}]
    ),
    "a tool of anything": behind(tools=[tool({})]),
    "a name with signs": behind(tools=[tool({"type": "object"}, "mcp.x-y_z/1")]),
    "an old schema": behind(tools=[tool(DRAFT_7)], tool_choice="required"),
    "a nullable": behind(
        tools=[tool({"type": "object", "properties": NULLABLE})], tool_choice="required"
    ),
    "a reference": behind(tools=[tool(REFERRED)], tool_choice="required"),
    "arguments as an object": answered(call(arguments={"q": "x"})),
    "arguments of no text": answered(call(arguments="")),
    "arguments that are null": answered(call(arguments=None)),
    "no arguments": answered(call()),
    "arguments that were cut": answered(call(arguments='{"q": "x')),
    "arguments that are a list": answered(call(arguments="[1]")),
    "arguments written twice": answered(call(arguments='"{\\"q\\":1}"')),
    "a call without id": answered(
        {"role": "assistant", "tool_calls": [{"function": {"name": "get", "arguments": "{}"}}]}
    ),
    "no calls": behind({"role": "assistant", "content": "x", "tool_calls": []}, USER),
    "a result in parts": answered(
        call(arguments="{}"), RESULT | {"content": [{"type": "text", "text": "ok"}]}
    ),
    "a result of null": answered(call(arguments="{}"), RESULT | {"content": None}),
    "calls whose tools are gone": behind(call(arguments="{}"), RESULT),
    "an assistant without words": behind({"role": "assistant", "content": ""}, USER),
    "an assistant without parts": behind({"role": "assistant", "content": []}, USER),
    "an assistant of null": behind({"role": "assistant", "content": None}, USER),
    "what OpenAI answers": behind(
        {"role": "assistant", "content": "x", "refusal": None, "audio": None, "annotations": [],
         "function_call": None}, USER,
    ),
    "a refusal": behind(
        {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]}, USER
    ),
    "thoughts in a part": behind(
        {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm"},
                                          {"type": "text", "text": "x"}]}, USER,
    ),
    "no question": {"messages": [{"role": "user", "content": ""}], "max_tokens": 4},
    "two systems": behind({"role": "system", "content": "b"}, {"role": "system", "content": "c"}),
    "a system in the middle": behind({"role": "system", "content": "b"}, USER),
    "a developer": behind({"role": "developer", "content": "a"}, USER),
    "a part with a mark for caches": behind(
        {"role": "user", "content": [{"type": "text", "text": "hi", "cache_control": {}}]}
    ),
    "a schema without a name": behind(
        response_format={"type": "json_schema", "json_schema": {"schema": STRICT}}
    ),
    "a strict schema": behind(
        response_format={"type": "json_schema",
                         "json_schema": {"name": "x", "strict": True, "schema": STRICT}}
    ),
    "a schema beside tools": behind(
        tools=[TOOL], response_format={"type": "json_schema", "json_schema": {"schema": STRICT}}
    ),
    "llama-server's schema": behind(response_format={"type": "json_object", "schema": STRICT}),
    "any effort": behind(reasoning_effort="xhigh"),
    "no effort": behind(reasoning_effort="none"),
    "no alternatives": behind(logprobs=True, top_logprobs=0),
    "nothing to say": behind() | {"max_tokens": 0},
    "whole numbers as others": behind(top_k=40.0, seed=1.0),
    "a bias by a name": behind(logit_bias={"5": -100}),
    "a bias by a pair": behind(logit_bias=[[5, False]]),
    "seeds": behind(seed=2**63),
    "a seed of none": behind(seed=-1),
    "fields of others": behind(
        service_tier="auto", safety_identifier="x", prompt_cache_retention="24h", verbosity="low",
        think=False, options={"num_ctx": 3}, extra_body={"x": 1},
    ),
    "a byte of nought": behind({"role": "user", "content": "a\0b"}),
    "marks in a text": behind({"role": "user", "content": "<|im_end|><|im_start|>system"}),
}  # fmt: skip
REFUSED: dict[str, Any] = {
    "nothing": {},
    "no messages": {"messages": []},
    "required without tools": behind(tool_choice="required"),
    "a role of nobody": behind({"role": "robot", "content": "x"}),
    "a temperature below 0": behind(temperature=-1),
    "no choice": behind(n=0),
    "a stop that is a number": behind(stop=5),
    "a refusal by the user": behind(
        {"role": "user", "content": [{"type": "refusal", "refusal": "No."}]}
    ),
    "an image for a model that does not see": behind(
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,x"}}]}
    ),
    "no number": '{"messages":[{"role":"user","content":"x"}],"temperature":NaN}',
    "half a character": '{"messages":[{"role":"user","content":"\\ud800"}]}',
    "depths": '{"messages":' + "[" * 5000 + "]" * 5000 + "}",
}


@pytest.fixture
def real(harness: Any, daemon: Any) -> Any:
    """A daemon with a small model that calls tools."""
    (harness.models / "alpha.gguf").unlink()
    tiny.build(harness.models / "alpha.gguf", template=TEMPLATE)
    harness.configure(engine={"context": 2048, "slots": 2, "exactness": "standard"})
    return lambda: daemon(harness, COMMAND)


def test_each_has_its_answer_and_no_worker_dies(real: Any) -> None:
    """Taken or refused with the field's name; the last one is answered by the first worker."""

    async def scene() -> None:
        async with real() as it:
            wrong = {}
            for status, bodies in ((200, TAKEN), (400, REFUSED)):
                for name, body in bodies.items():
                    data = body if isinstance(body, str) else json.dumps(body)
                    async with it.http.post("/v1/chat/completions", data=data) as response:
                        if response.status != status:
                            wrong[name] = await response.text()
            assert wrong == {}
            assert not it.model().crashes.times

    asyncio.run(scene())


@pytest.mark.parametrize(
    "given",
    [
        {"content": "x", "reasoning_content": "hm"},
        {"content": "x", "reasoning": "hm"},
        {"content": [{"type": "thinking", "thinking": "hm"}, {"type": "text", "text": "x"}]},
        {"content": [{"type": "thinking", "thinking": [{"type": "text", "text": "hm"}]},
                     {"type": "text", "text": "x"}]},
    ],
)  # fmt: skip
def test_thoughts_of_earlier_answers_reach_the_template(given: dict[str, Any]) -> None:
    """By every name and shape in which servers have given them."""
    body = behind({"role": "assistant", **given}, USER)
    parsed = CHAT.read(msgspec.json.encode(body), Config(), Caller("uid:1"))
    _, message, _ = parsed.generates[0].messages or []
    assert (message.content, message.extra["reasoning_content"]) == ("x", "hm")


PARTS = (
    "{% for part in m.content %}{% if part.type == 'text' %}{{ part.text }}{% endif %}{% endfor %}"
)
READS = {
    "text": "{{ m.content }}",
    "parts": PARTS,
    "either": "{% if m.content is string %}{{ m.content }}{% else %}" + PARTS + "{% endif %}",
    "parts of others": "{% if m.role != 'user' %}" + PARTS + "{% else %}{{ m.content }}{% endif %}",
    "parts of users": "{% if m.role == 'user' %}" + PARTS + "{% else %}{{ m.content }}{% endif %}",
}


@pytest.mark.parametrize("reads", READS)
def test_no_template_loses_the_words_of_a_message(harness: Any, daemon: Any, reads: str) -> None:
    """Whether it reads texts, parts, or either, and whichever of them the client sends."""
    template = "{% for m in messages %}<|im_start|>{{ m.role }} " + READS[reads] + "{% endfor %}"
    (harness.models / "alpha.gguf").unlink()
    tiny.build(harness.models / "alpha.gguf", template=template)
    said = [("system", "be brief"), ("user", "why?"), ("assistant", "so"), ("user", "really?")]

    async def scene() -> None:
        async with daemon(harness, COMMAND) as it:
            for content in (str, lambda text: [{"type": "text", "text": text}]):
                messages = [{"role": role, "content": content(text)} for role, text in said]
                status, told = await it.post("/apply-template", {"messages": messages})
                assert status == 200, told
                assert told["prompt"] == "".join(f"<|im_start|>{a} {b}" for a, b in said)

    asyncio.run(scene())
