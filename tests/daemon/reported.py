"""Requests that users of other servers reported as failing there, and what they must get here.

Each is named by its report, so that its story can be read; the words of the requests are our own.
They hold for any model that chats and follows grammars.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from typing import Any, NamedTuple, TypeAlias

Check: TypeAlias = Callable[[Any], bool]

ASKED = {"role": "user", "content": "Say hello."}
COLOURS = {"type": "object", "properties": {"colour": {"enum": ["red", "blue"]}},
           "required": ["colour"], "additionalProperties": False}  # fmt: skip
PAINT = {"type": "function", "function": {"name": "paint", "parameters": COLOURS}}
DRAW = {"type": "function", "function": {"name": "draw", "parameters": COLOURS}}
CALL = {
    "id": "c1", "type": "function",
    "function": {"name": "paint", "arguments": '{"colour": "red"}'},
}  # fmt: skip
CALLED = {"role": "assistant", "content": None, "tool_calls": [CALL]}
DONE = {"role": "tool", "tool_call_id": "c1", "content": "It is red."}


class Report(NamedTuple):
    """A request, and whether its answer is what the report asks for.

    A JSON answer is given to `holds` as it is, a stream as the list of its events.
    """

    name: str
    path: str
    body: dict[str, Any]
    holds: Check
    status: int = 200


def chat(*behind: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """A chat of a user, with these messages behind."""
    return {"messages": [ASKED, *behind], "max_tokens": 8, **fields}


def with_parameters(parameters: Any, **fields: Any) -> dict[str, Any]:
    """A chat with one tool of these parameters, which the model must call."""
    tool = {"type": "function", "function": {"name": "paint", "parameters": parameters}}
    return {"messages": [ASKED], "max_tokens": 200, "tools": [tool], "tool_choice": "required",
            **fields}  # fmt: skip


def answered(found: Any) -> bool:
    """A chat's answer, whole."""
    return found["choices"][0]["finish_reason"] in {"stop", "length", "tool_calls"}


def message(found: Any) -> Any:
    """The message of a chat's answer."""
    return found["choices"][0]["message"]


def calls(found: Any) -> list[Any]:
    """The calls of a chat's answer."""
    return message(found).get("tool_calls") or []


def called(found: Any) -> bool:
    """Whether there is one call, with an id, a name, and arguments that are JSON in a string."""
    (one,) = calls(found)
    arguments = json.loads(one["function"]["arguments"])
    return bool(one["id"]) and one["type"] == "function" and isinstance(arguments, dict)


def said_once(events: list[Any]) -> bool:
    """In a stream each call has its name and its id in one chunk, and JSON when all are joined."""
    deltas = [
        one
        for event in events
        for choice in event["choices"]
        for one in choice["delta"].get("tool_calls") or []
    ]
    names = [one["function"]["name"] for one in deltas if one["function"].get("name")]
    ids = [one["id"] for one in deltas if one.get("id")]
    json.loads("".join(one["function"].get("arguments", "") for one in deltas))
    return names == ["paint"] and len(ids) == 1


def usage_is_last(events: list[Any]) -> bool:
    """One chunk at the end has the usage and no choices; the others have choices."""
    *others, last = events
    return (
        last["choices"] == []
        and last["usage"]["total_tokens"] > 0
        and all(event["choices"] and not event.get("usage") for event in others)
    )


def types(events: list[Any]) -> list[str]:
    """The kinds of a stream's events, in their order, each once in a row."""
    named = [event["type"] for event in events]
    return [name for name, before in zip(named, ["", *named], strict=False) if name != before]


ITEM = [
    "response.created", "response.in_progress", "response.output_item.added",
    "response.content_part.added", "response.output_text.delta", "response.output_text.done",
    "response.content_part.done", "response.output_item.done",
]  # fmt: skip


def in_order(events: list[Any]) -> bool:
    """The events of one answer, as Codex's state machine wants them, and numbered."""
    numbers = [event["sequence_number"] for event in events]
    found, last = types(events)[:-1], events[-1]["type"]
    ended = last in {"response.completed", "response.incomplete"}
    return found == ITEM and ended and numbers == list(range(numbers[0], numbers[0] + len(numbers)))


def indexes_agree(events: list[Any]) -> bool:
    """Each item's index is its place in the answer as a whole."""
    done = {event["output_index"]: event["item"]["id"] for event in events
            if event["type"] == "response.output_item.done"}  # fmt: skip
    whole = events[-1]["response"]["output"]
    return done == {place: item["id"] for place, item in enumerate(whole)}


def joined(events: list[Any]) -> str:
    """The text of a stream of chat."""
    return "".join(
        choice["delta"].get("content") or "" for event in events for choice in event["choices"]
    )


def schema_of(schema: Any, **fields: Any) -> dict[str, Any]:
    """A chat whose answer has this schema."""
    format_ = {"type": "json_schema", "json_schema": {"name": "a", "schema": schema, **fields}}
    return {"messages": [ASKED], "max_tokens": 200, "response_format": format_}


def is_json(found: Any) -> bool:
    """An answer that is an object of JSON."""
    return isinstance(json.loads(message(found)["content"]), dict)


def refused(found: Any) -> bool:
    """An error with a message, in one object."""
    return bool(found["error"]["message"])


def obeys(found: Any) -> bool:
    """An answer with the colour that was to be chosen."""
    return json.loads(message(found)["content"])["colour"] in {"red", "blue"}


PICTURE = "data:image/png;base64," + base64.b64encode(b"\x89PNG\r\n\x1a\n" + bytes(40)).decode()
NESTED: dict[str, Any] = {"type": "string"}
for _ in range(30):
    NESTED = {"type": "object", "properties": {"in": NESTED}, "additionalProperties": False}

CHAT = "/v1/chat/completions"
REPORTS = [
    # messages
    Report("lmstudio-bug-tracker#261: content null beside calls", CHAT,
           chat(CALLED, DONE, tools=[PAINT]), answered),
    Report("langchain4j#1958: no content beside calls", CHAT,
           chat({"role": "assistant", "tool_calls": [CALL]}, DONE, tools=[PAINT]), answered),
    Report("aichat#1296: ids of calls are null", CHAT,
           chat({"role": "assistant", "tool_calls": [CALL | {"id": None}]},
                {**DONE, "tool_call_id": None}, tools=[PAINT]), answered),
    Report("llm-tools-mcp#51: a description is null", CHAT,
           chat(tools=[{"type": "function", "function": {
               "name": "look", "description": None,
               "parameters": {"properties": {}, "type": "object"}}}]), answered),
    Report("GhidrAssist#18: parameters that are null", CHAT,
           chat(temperature=None, stop=None, tools=None, tool_choice=None, seed=None, top_p=None,
                stream_options=None, response_format=None, logprobs=None), answered),
    Report("kon#5: the role developer", CHAT,
           {"messages": [{"role": "developer", "content": "Be short."}, ASKED], "max_tokens": 4},
           answered),
    Report("moltis#317: two system messages", CHAT,
           {"messages": [{"role": "system", "content": "Be short."},
                         {"role": "system", "content": "Be kind."}, ASKED], "max_tokens": 4},
           answered),
    Report("Eta#59: a system message in the middle", CHAT,
           chat({"role": "assistant", "content": "Hello."},
                {"role": "system", "content": "Now in French."}, ASKED), answered),
    Report("lmstudio-bug-tracker#2298: two developer messages of Responses", "/v1/responses",
           {"input": [{"role": "developer", "content": "Be short."},
                      {"role": "developer", "content": "Be kind."}, ASKED], "max_output_tokens": 4},
           lambda found: found["status"] in {"completed", "incomplete"}),
    Report("LibreChat#2494: content in parts", CHAT,
           {"messages": [{"role": "user", "content": [{"type": "text", "text": "Say hello."}]}],
            "max_tokens": 4}, answered),
    Report("LibreChat#2494: a picture for a model that sees none", CHAT,
           {"messages": [{"role": "user", "content": [
               {"type": "text", "text": "What is it?"},
               {"type": "image_url", "image_url": {"url": PICTURE}}]}]}, refused, 400),
    Report("jan#4837: the text of a part is an object", CHAT,
           {"messages": [{"role": "user", "content": [
               {"type": "text", "text": {"annotations": [], "value": "Hello"}}]}]}, refused, 400),
    Report("ecosystem: max_completion_tokens beside max_tokens", CHAT,
           {"messages": [ASKED], "max_tokens": None, "max_completion_tokens": 3},
           lambda found: found["usage"]["completion_tokens"] <= 3),
    # calls
    Report("lmstudio-bug-tracker#670: tool_choice is an object", CHAT,
           {"messages": [ASKED], "max_tokens": 200, "tools": [DRAW, PAINT],
            "tool_choice": {"type": "function", "function": {"name": "paint"}}},
           lambda found: called(found) and calls(found)[0]["function"]["name"] == "paint"),
    Report("page-agent#367: tool_choice required", CHAT, with_parameters(COLOURS), called),
    Report("llama.cpp#12279: the id of a call is empty", CHAT, with_parameters(COLOURS),
           lambda found: all(call["id"] for call in calls(found))),
    Report("llama.cpp#12379: each chunk repeats the name", CHAT,
           with_parameters(COLOURS, stream=True, parallel_tool_calls=False), said_once),
    Report("langchain4j#1958: finish_reason of a call", CHAT, with_parameters(COLOURS),
           lambda found: found["choices"][0]["finish_reason"] in {"tool_calls", "stop"}),
    Report("ecosystem: no text beside a call is null, not missing", CHAT, with_parameters(COLOURS),
           lambda found: "content" in message(found)),
    # schemas
    Report("kubernetes-mcp-server#758: a pattern without anchors", CHAT,
           chat(tools=[{"type": "function", "function": {"name": "get", "parameters": {
               "type": "object", "properties": {"ns": {"type": "string", "pattern": "[a-z]+"}}}}}]),
           answered),
    Report("hermes-agent#18530: a pattern with \\d", CHAT,
           schema_of({"type": "object", "properties": {
               "year": {"type": "string", "pattern": r"^\d{4,4}$"}}, "required": ["year"],
               "additionalProperties": False}),
           lambda found: len(json.loads(message(found)["content"])["year"]) == 4),
    Report("llama.cpp#14227: a property with description alone", CHAT,
           with_parameters({"type": "object", "properties": {"value": {"description": "any"}}}),
           answered),
    Report("llama.cpp#14227: anyOf of one type", CHAT,
           schema_of({"type": "object", "properties": {"w": {"anyOf": [{"type": "integer"}]}},
                      "required": ["w"], "additionalProperties": False}),
           lambda found: isinstance(json.loads(message(found)["content"])["w"], int)),
    Report("lmstudio-bug-tracker#738: $ref into $defs", CHAT,
           schema_of({"$defs": {"c": COLOURS}, "$ref": "#/$defs/c"}), obeys),
    Report("llama.cpp#19051: a pattern that is none is refused, not ignored", CHAT,
           schema_of({"type": "object", "properties": {"a": {"type": "string", "pattern": "(["}},
                      "required": ["a"]}, strict=True), refused, 400),
    Report("LibreChat#9242: {not: {}} in a tool", CHAT,
           chat(tools=[{"type": "function", "function": {"name": "get", "parameters": {
               "type": "object", "properties": {"a": {"not": {}}}}}}]), answered),
    Report("qwen-code#10520: many tools of every kind", CHAT,
           chat(tools=[{"type": "function", "function": {"name": f"tool_{n}", "parameters": {
               "type": "object", "properties": {
                   "a": {"type": ["string", "null"], "format": "date-time"},
                   "b": {"type": "array", "items": {}, "minItems": 0},
                   "c": {"oneOf": [{"type": "string"}, {"type": "number"}]}}}}}
               for n in range(10)]), answered),
    Report("docker/mcp-gateway#234: a schema that is empty", CHAT, with_parameters({}), answered),
    Report("ecosystem: a schema without strict", CHAT, schema_of(COLOURS), obeys),
    Report("ecosystem: json_object", CHAT,
           {"messages": [ASKED], "max_tokens": 300, "temperature": 0, "seed": 1,
            "response_format": {"type": "json_object"}, "logit_bias": {}},
           lambda found: message(found)["content"].lstrip().startswith("{")),
    Report("ecosystem: thirty levels of a schema", CHAT,
           chat(response_format={"type": "json_schema",
                                 "json_schema": {"name": "deep", "schema": NESTED}}), answered),
    # streams
    Report("ollama#4448: usage in the last chunk", CHAT,
           chat(stream=True, stream_options={"include_usage": True}), usage_is_last),
    Report("llama.cpp#15443: choices of that chunk are empty", CHAT,
           chat(stream=True, stream_options={"include_usage": True}),
           lambda events: events[-1]["choices"] == []),
    Report("ogx#6541: usage of completions too", "/v1/completions",
           {"prompt": "Hello", "max_tokens": 3, "stream": True,
            "stream_options": {"include_usage": True}},
           lambda events: events[-1]["choices"] == [] and events[-1]["usage"]["prompt_tokens"] > 0),
    Report("llama.cpp#28926: characters are whole in each chunk", CHAT,
           chat(stream=True, max_tokens=60, temperature=1.5, seed=5),
           lambda events: all(c < "\ud800" or c > "\udfff" for c in joined(events))),
    Report("llama.cpp#9867: the end of a text beside stop strings", CHAT,
           chat(stream=True, temperature=0, max_tokens=12, stop=["\n\n\n\n", "never said"]),
           lambda events: joined(events) != ""),
    Report("ServiceStack/llms#33: the first chunk has the role", CHAT, chat(stream=True),
           lambda events: events[0]["choices"][0]["delta"]["role"] == "assistant"),
    Report("sub2api#2875: content_part.added comes before text", "/v1/responses",
           {"input": "Say hello.", "stream": True, "max_output_tokens": 6}, in_order),
    Report("surogate#175: output_index is the place in the answer", "/v1/responses",
           {"input": "Say hello.", "stream": True, "max_output_tokens": 6}, indexes_agree),
    Report("codex: a tool of another type is skipped", "/v1/responses",
           {"input": "Say hello.", "max_output_tokens": 4,
            "tools": [{"type": "web_search"}, {"type": "local_shell"}]},
           lambda found: found["status"] in {"completed", "incomplete"}),
    Report("open-responses-server#63: calls have items of their own", "/v1/responses",
           {"input": "Paint.", "stream": True, "max_output_tokens": 200, "tool_choice": "required",
            "tools": [{"type": "function", "name": "paint", "parameters": COLOURS}]},
           lambda events: indexes_agree(events)
           and "response.function_call_arguments.done" in types(events)),
    # logprobs
    Report("llama.cpp#11346: logprobs of completions", "/v1/completions",
           {"prompt": "something", "logprobs": 1, "max_tokens": 1},
           lambda found: len(found["choices"][0]["logprobs"]["token_logprobs"]) == 1),
    Report("litellm#21932: top_logprobs is a list, never null", CHAT, chat(logprobs=True),
           lambda found: all(one["top_logprobs"] == [] for one
                             in found["choices"][0]["logprobs"]["content"])),
    Report("vllm#47838: logprobs with top_logprobs null", CHAT,
           chat(logprobs=True, top_logprobs=None),
           lambda found: bool(found["choices"][0]["logprobs"]["content"])),
    Report("vllm#16540: many logprobs, of pieces of characters too", CHAT,
           chat(logprobs=True, top_logprobs=20, max_tokens=2),
           lambda found: all(isinstance(top["bytes"], list) and isinstance(top["logprob"], float)
                             for one in found["choices"][0]["logprobs"]["content"]
                             for top in one["top_logprobs"])),
    Report("openai-agents-python#1616: logprobs in parts of Responses", "/v1/responses",
           {"input": "Say hello.", "max_output_tokens": 4},
           lambda found: isinstance(found["output"][-1]["content"][0].get("logprobs", []), list)),
    Report("openai-agents-python#1616: what came as output goes back as input", "/v1/responses",
           {"input": [ASKED, {"type": "message", "id": "msg_1", "role": "assistant",
                              "status": "completed", "content": [
                                  {"type": "output_text", "text": "Hello.", "annotations": [],
                                   "logprobs": None}]}, ASKED], "max_output_tokens": 4},
           lambda found: found["status"] in {"completed", "incomplete"}),
    # choices and seeds
    Report("ecosystem: n answers", CHAT, chat(n=3, temperature=1.0),
           lambda found: [one["index"] for one in found["choices"]] == [0, 1, 2]),
    Report("ecosystem: a seed of 64 bits, of a negative number", CHAT, chat(seed=-1), answered),
    # Anthropic
    Report("codex-proxy#612: count_tokens with ?beta=true", "/v1/messages/count_tokens?beta=true",
           {"model": "", "messages": [ASKED]}, lambda found: found["input_tokens"] > 0),
    Report("CodeRouter#39: cache_control on everything", "/v1/messages",
           {"max_tokens": 4, "system": [{"type": "text", "text": "Be short.",
                                         "cache_control": {"type": "ephemeral"}}],
            "messages": [{"role": "user", "content": [
                {"type": "text", "text": "Hello", "cache_control": {"type": "ephemeral"}}]}],
            "tools": [{"name": "paint", "input_schema": COLOURS,
                       "cache_control": {"type": "ephemeral"}}]},
           lambda found: found["type"] == "message"),
    Report("hebo-gateway#104: thoughts and their signatures go back", "/v1/messages",
           {"max_tokens": 4, "messages": [ASKED, {"role": "assistant", "content": [
               {"type": "thinking", "thinking": "A greeting.", "signature": "abc"},
               {"type": "redacted_thinking", "data": "xyz"},
               {"type": "text", "text": "Hello."}]}, ASKED]},
           lambda found: found["usage"]["output_tokens"] > 0),
    Report("llm-gateway#1879: tokens of the cache are counted", "/v1/messages",
           {"max_tokens": 4, "messages": [ASKED]},
           lambda found: isinstance(found["usage"]["cache_read_input_tokens"], int)),
    Report("claude-code#50085: tool_choice any", "/v1/messages",
           {"max_tokens": 200, "messages": [ASKED], "tool_choice": {"type": "any"},
            "tools": [{"name": "paint", "input_schema": COLOURS}]},
           lambda found: found["content"][-1]["type"] == "tool_use"
           and found["stop_reason"] == "tool_use"),
    # Ollama
    Report("openchat#115: keep_alive in every form", "/api/chat",
           {"model": "", "messages": [ASKED], "stream": False, "keep_alive": "5m", "format": "",
            "options": {"num_predict": 3}}, lambda found: found["done"]),
    Report("ad4m#1001: num_ctx and tools", "/api/chat",
           {"model": "", "messages": [ASKED], "stream": False, "tools": [PAINT], "keep_alive": -1,
            "options": {"num_ctx": 1024, "num_predict": 3, "num_gpu": 99, "mirostat": 0}},
           lambda found: found["message"]["role"] == "assistant"),
    Report("ecosystem: a format that is a schema", "/api/generate",
           {"model": "", "prompt": "Colour?", "stream": False, "format": COLOURS,
            "options": {"num_predict": 200}},
           lambda found: json.loads(found["response"])["colour"] in {"red", "blue"}),
    Report("continue: images null, a result by tool_name", "/api/chat",
           {"model": "", "stream": False, "options": {"num_predict": 3}, "messages": [
               {**ASKED, "images": None},
               {"role": "assistant", "content": "", "tool_calls": [
                   {"function": {"name": "paint", "arguments": {"colour": "red"}}}]},
               {"role": "tool", "tool_name": "paint", "content": "red"}], "tools": [PAINT]},
           lambda found: found["done_reason"] in {"stop", "length"}),
]  # fmt: skip
