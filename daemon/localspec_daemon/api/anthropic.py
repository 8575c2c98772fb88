"""Parses Anthropic's messages into `Generate`. Pure, no HTTP."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Literal

import msgspec

from localspec.config import Config
from localspec.errors import RequestError
from localspec.wire.messages import Message
from localspec.wire.values import Image
from localspec_daemon.api.anthropic_replies import MessagesReply
from localspec_daemon.api.bodies import (
    Count,
    TextRequest,
    answered,
    decode,
    prefilled,
)
from localspec_daemon.api.chain import refuse_unless
from localspec_daemon.api.dialect import Caller, Dialect, Json, ParsedRequest
from localspec_daemon.api.framing import NAMED_EVENTS
from localspec_daemon.api.parts import is_image, media_type, no_image, no_text, source

BILLING = "x-anthropic-billing-header"
"""The beginning of a system block that an agent sends first. The block differs in every request and
means nothing to a model; it is dropped, because with it no prompt would be found in the cache."""


class Block(msgspec.Struct):
    """One block of a content."""

    type: str
    text: str | None = None
    thinking: str | None = None
    id: str | None = None
    name: str | None = None
    input: dict[str, Any] | None = None
    tool_use_id: str | None = None
    content: str | list[Any] | None = None
    source: Any = None


class Turn(msgspec.Struct):
    """One message of the conversation."""

    role: Literal["user", "assistant", "system"]
    content: str | list[Block]


class Format(msgspec.Struct):
    """The format of the answer; `schema` is required."""

    type: Literal["json_schema"]
    schema: dict[str, Any]


class OutputConfig(msgspec.Struct):
    """The options of the answer."""

    format: Format | None = None
    effort: str | None = None


class MessagesRequest(TextRequest):
    """A body of POST /v1/messages; counting takes the same without `max_tokens`.

    `output_format` is the older place of `output_config.format`.
    """

    messages: list[Turn] | None = None
    system: str | list[Block] | None = None
    max_tokens: Count | None = None
    stop_sequences: list[str] | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: dict[str, Any] | None = None
    thinking: dict[str, Any] | None = None
    output_config: OutputConfig | None = None
    output_format: Format | None = None
    metadata: Any = None
    mcp_servers: Any = None


def messages(data: bytes, config: Config, caller: Caller) -> ParsedRequest:
    """Parses a body of POST /v1/messages. Raises RequestError."""
    request = decode(data, MessagesRequest)
    if request.max_tokens is None:
        raise RequestError("max_tokens is missing.", param="max_tokens")
    return read(request, config, caller)


def counted(data: bytes, config: Config, caller: Caller) -> ParsedRequest:
    """Parses a body of POST /v1/messages/count_tokens. Raises RequestError."""
    return read(decode(data, MessagesRequest), config, caller)


def read(request: MessagesRequest, config: Config, caller: Caller) -> ParsedRequest:
    """Reads a request for a message or for a token count. Raises RequestError."""
    if not request.messages:
        raise RequestError("messages is empty.", fix="Send at least one message.", param="messages")
    refuse_unless({"mcp_servers": (None, [])}, request)
    turns = [*_system(request.system)]
    for index, turn in enumerate(request.messages):
        turns += _turn(f"messages[{index}].content", turn)
    turns, prefill = prefilled(turns)
    choice, output = request.tool_choice or {}, request.output_config or OutputConfig()
    form = "output_format" if output.format is None else "output_config.format"
    asked = answered(
        request,
        config,
        caller,
        prefix="msg",
        endpoint="chat",
        max_tokens=request.max_tokens,
        stop=request.stop_sequences,
        messages=turns,
        prefill=prefill,
        tools=[_tool(tool) for tool in request.tools or () if "input_schema" in tool] or None,
        tool_choice=_choice(choice),
        parallel_tool_calls=not choice.get("disable_parallel_tool_use"),
        response_format=_format(output.format or request.output_format),
        reasoning_effort=output.effort,
        max_thoughts=_budget(request.thinking),
        template_kwargs={"enable_thinking": request.thinking.get("type") != "disabled"}
        if request.thinking
        else None,
    )
    return replace(asked, names={"response_format": form})


def _budget(thinking: dict[str, Any] | None) -> int | None:
    """Returns the tokens that the model may think for; None for no limit. Raises RequestError."""
    kind = (thinking or {}).get("type")
    if kind not in {None, "enabled", "disabled", "adaptive"}:
        raise RequestError(
            f"thinking.type {str(kind)[:40]!r} is not known.",
            fix='Send "enabled", "disabled" or "adaptive".',
            param="thinking.type",
        )
    budget = (thinking or {}).get("budget_tokens")
    if budget is not None and (isinstance(budget, bool) or not isinstance(budget, int)):
        raise RequestError(
            "thinking.budget_tokens is no whole number.", param="thinking.budget_tokens"
        )
    return budget


def _system(given: str | list[Block] | None) -> Iterator[Message]:
    blocks = [Block("text", given)] if isinstance(given, str) else given or []
    for index, block in enumerate(blocks):
        if is_image(block.type, media_type(block.source)):
            raise no_image(f"system[{index}]")
        if block.type != "text":
            raise no_text(f"system[{index}]", block.type)
    texts = [block.text for block in blocks if block.text and not block.text.startswith(BILLING)]
    if texts:
        yield Message("system", "\n".join(texts))


def _turn(param: str, turn: Turn) -> Iterator[Message]:
    """Yields a turn as templates read it: first each tool result as a message, then the text.

    Raises RequestError for a block that is neither text, an image, nor of a tool.
    """
    blocks = [Block("text", turn.content)] if isinstance(turn.content, str) else turn.content
    texts, extra = [], {}
    calls: list[Json] = []
    images: list[Image] = []
    for index, block in enumerate(blocks):
        place = f"{param}[{index}]"
        match block.type:
            case "text":
                texts.append(block.text or "")
            case "thinking":
                extra["reasoning_content"] = block.thinking or ""
            case "redacted_thinking":
                pass
            case "tool_use":
                arguments = msgspec.json.encode(block.input or {}).decode()
                function = {"name": block.name, "arguments": arguments}
                calls.append({"id": block.id, "type": "function", "function": function})
            case "tool_result":
                result, shown = _result(f"{place}.content", block.content)
                yield Message("tool", result, {"tool_call_id": block.tool_use_id}, shown)
            case _ if is_image(block.type, media_type(block.source)):
                images.append(source(place, block.source, turn.role))
                texts.append(images[-1].mark)
            case _:
                raise no_text(place, block.type)
    if calls:
        extra["tool_calls"] = calls  # type: ignore[assignment]
    if texts or extra:
        yield Message(turn.role, "".join(texts), extra, images)


def _result(param: str, content: str | list[Any] | None) -> tuple[str, list[Image]]:
    """Returns a tool's result as text, and its images. Raises RequestError.

    A search for tools gives references to the request's own tools, so their names are enough.
    """
    if not isinstance(content, list):
        return content or "", []
    texts: list[str] = []
    images: list[Image] = []
    for index, part in enumerate(content):
        place = f"{param}[{index}]"
        kind = str(part.get("type") if isinstance(part, dict) else part)
        given = part.get("source") if isinstance(part, dict) else None
        match part:
            case {"type": "tool_reference", "tool_name": str(name)}:
                texts.append(f"Found: {name}\n")
            case {"text": str(text)}:
                texts.append(text)
            case _ if is_image(kind, media_type(given)):
                images.append(source(place, given))
                texts.append(images[-1].mark)
            case _:
                raise no_text(place, kind)
    return "".join(texts), images


def _tool(given: Json) -> Json:
    """Returns a tool in OpenAI's shape."""
    function = {"name": given.get("name"), "parameters": given["input_schema"]}
    function |= {name: given[name] for name in ("description", "strict") if name in given}
    return {"type": "function", "function": function}


def _format(given: Format | None) -> Json | None:
    """Returns a format in OpenAI's shape; its schema is treated as that of an OpenAI client."""
    if given is None:
        return None
    return {"type": "json_schema", "json_schema": {"schema": given.schema}}


def _choice(given: Json) -> str | Json | None:
    """Returns a choice of tools in OpenAI's shape. Raises RequestError."""
    match given.get("type"):
        case None:
            return None
        case "tool":
            return {"type": "function", "function": {"name": given.get("name")}}
        case "auto" | "any" | "none" as kind:
            return {"any": "required"}.get(kind, kind)
    raise RequestError(
        "tool_choice.type is not known.",
        fix="Choose auto, any, none or tool.",
        param="tool_choice.type",
    )


MESSAGES = Dialect(messages, MessagesReply, NAMED_EVENTS)
COUNT = Dialect(counted, MessagesReply, NAMED_EVENTS)
