"""Parses OpenAI's Responses into `Generate`. Stateless: nothing is stored. Pure, no HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from localspec.config import Config
from localspec.errors import RequestError
from localspec.wire.messages import Message
from localspec_daemon.api.bodies import Count, TextRequest, answered, decode
from localspec_daemon.api.dialect import Caller, Dialect, Json, ParsedRequest
from localspec_daemon.api.framing import NAMED_EVENTS
from localspec_daemon.api.openai import ROLES, said
from localspec_daemon.api.openai_types import MAX_ALTERNATIVES, Part
from localspec_daemon.api.responses_replies import ResponsesReply
from localspec_daemon.api.responses_tools import flat, functions

_LOGPROBS = "message.output_text.logprobs"


class Item(msgspec.Struct):
    """One item of the input: a message, a tool call, or a tool's result."""

    type: str = "message"
    role: str | None = None
    content: str | list[Part] | None = None
    call_id: str | None = None
    name: str | None = None
    namespace: str | None = None
    arguments: str | None = None
    input: str | None = None
    output: str | list[Part] | None = None


class ResponsesRequest(TextRequest):
    """A body of POST /v1/responses."""

    input: str | list[Item] | None = None
    instructions: str | None = None
    max_output_tokens: Count | None = None
    text: dict[str, Any] | None = None
    reasoning: dict[str, Any] | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    previous_response_id: str | None = None
    conversation: Any = None
    prompt: Any = None
    background: bool | None = None
    prompt_cache_key: str | None = None
    include: list[str] | None = None
    timings_per_token: bool | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=MAX_ALTERNATIVES)] | None = None


def response(data: bytes, config: Config, caller: Caller) -> ParsedRequest:
    """Parses a body of POST /v1/responses. Raises RequestError."""
    request = decode(data, ResponsesRequest)
    for name in ("previous_response_id", "conversation", "background", "prompt"):
        if getattr(request, name):
            raise RequestError(
                f"{name} needs something that is kept here, and nothing is.",
                fix="Send the whole conversation as input.",
                param=name,
            )
    effort = (request.reasoning or {}).get("effort")
    asked = answered(
        request,
        config,
        caller,
        prefix="resp",
        endpoint="chat",
        max_tokens=request.max_output_tokens,
        messages=_messages(request),
        tools=[*functions(request.tools or [])] or None,
        tool_choice=_choice(request.tool_choice),
        parallel_tool_calls=request.parallel_tool_calls,
        response_format=_format(request.text),
        reasoning_effort=effort if isinstance(effort, str) else None,
        logprobs=(request.top_logprobs or 0) if _LOGPROBS in (request.include or ()) else None,
        session=request.prompt_cache_key,
        tells_reading=request.return_progress,
    )
    return replace(asked, names={"response_format": "text.format", "messages": "input"})


def _messages(request: ResponsesRequest) -> list[Message]:
    """Returns the conversation. Raises RequestError, which names the item."""
    found = [Message("system", request.instructions)] if request.instructions else []
    if isinstance(request.input, str):
        return [*found, Message("user", request.input)]
    for index, item in enumerate(request.input or ()):
        for turn in _turns(f"input[{index}]", item):
            found[-1:] = _joined(found[-1:], turn)
    if not found:
        raise RequestError("input is empty.", fix="Send some text.", param="input")
    return found


def _joined(last: list[Message], turn: Message) -> list[Message]:
    """Joins the last message and the next if both are the assistant's and either has calls."""
    if not last or {last[0].role, turn.role} != {"assistant"}:
        return [*last, turn]
    calls = [call for one in (last[0], turn) for call in one.extra.get("tool_calls", ())]
    if not calls:
        return [*last, turn]
    text = f"{last[0].content}{turn.content}"
    return [Message("assistant", text, {**last[0].extra, **turn.extra, "tool_calls": calls})]


def _turns(param: str, item: Item) -> Iterator[Message]:
    """Yields one item as messages; reasoning items and calls run by another server are left out.

    A call of a custom tool, whose input is text, becomes a function call, as all calls here are.
    """
    match item.type:
        case "message" if item.role in ROLES:
            yield said(ROLES[item.role], f"{param}.content", item.content or "", {})
        case "function_call" | "custom_tool_call":
            given = item.arguments or "{}"
            if item.type == "custom_tool_call":
                given = msgspec.json.encode({"input": item.input or ""}).decode()
            function = {"name": flat(item.namespace, item.name), "arguments": given}
            call = {"id": item.call_id, "type": "function", "function": function}
            yield Message("assistant", "", {"tool_calls": [call]})
        case "function_call_output" | "custom_tool_call_output":
            yield said("tool", f"{param}.output", item.output or "", {"tool_call_id": item.call_id})
        case "reasoning" | "web_search_call":
            pass
        case _:
            raise RequestError(
                f"{param} is of type {item.type[:40]!r}"
                + (f" with role {item.role[:40]!r}." if item.role else ", and has no role."),
                fix="Send messages, calls and what they gave.",
                param=param,
            )


def _choice(given: str | Json | None) -> str | Json | None:
    """Returns a choice of tools in the shape of chats."""
    if isinstance(given, dict) and given.get("type") == "function":
        name = flat(given.get("namespace"), given.get("name"))
        return {"type": "function", "function": {"name": name}}
    return given


def _format(given: Json | None) -> Json | None:
    """Returns the format of the text in the shape of chats. Raises RequestError."""
    form = (given or {}).get("format") or {}
    if not isinstance(form, dict):
        raise RequestError("text.format is no object.", param="text.format")
    if form.get("type", "text") == "text":
        return None
    if form["type"] == "json_object":
        return {"type": "json_object"}
    inner = {name: form[name] for name in ("name", "schema", "strict") if name in form}
    return {"type": form["type"], "json_schema": inner}


RESPONSES = Dialect(response, ResponsesReply, NAMED_EVENTS)
