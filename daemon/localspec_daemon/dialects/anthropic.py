"""Anthropic's messages: bodies into `Generate`, events into events. Pure, no HTTP."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from localspec.config import Config
from localspec.errors import LocalSpecError, RequestError
from localspec.protocol import Delta, Finished, Message, Started
from localspec_daemon.dialects.bodies import Chain, Count, decode, generate
from localspec_daemon.dialects.dialect import Answer, Asked, Caller, Dialect, Json
from localspec_daemon.dialects.framing import NAMED_EVENTS

KINDS = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
}
CLIENT_ERRORS = range(400, 500)

BILLING = "x-anthropic-billing-header"
"""An agent's first line of the system prompt that differs in every request and tells no model
anything; it would keep every prompt from being found in the cache."""


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


class Turn(msgspec.Struct):
    """One turn."""

    role: Literal["user", "assistant", "system"]
    content: str | list[Block]


class MessagesRequest(Chain):
    """POST /v1/messages; counting takes the same without `max_tokens`."""

    model: str | None = None
    messages: list[Turn] | None = None
    system: str | list[Block] | None = None
    max_tokens: Count | None = None
    stop_sequences: list[str] | None = None
    stream: bool | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: dict[str, Any] | None = None
    thinking: dict[str, Any] | None = None
    metadata: Any = None


def messages(data: bytes, config: Config, caller: Caller) -> Asked:
    """A body of POST /v1/messages. Raises RequestError."""
    request = decode(data, MessagesRequest)
    if request.max_tokens is None:
        raise RequestError("max_tokens is missing.", param="max_tokens")
    return read(request, config, caller)


def counted(data: bytes, config: Config, caller: Caller) -> Asked:
    """A body of POST /v1/messages/count_tokens. Raises RequestError."""
    return read(decode(data, MessagesRequest), config, caller)


def read(request: MessagesRequest, config: Config, caller: Caller) -> Asked:
    """What both bodies ask for. Raises RequestError."""
    if not request.messages:
        raise RequestError("messages is empty.", fix="Send at least one message.", param="messages")
    turns = [*_system(request.system)]
    for index, turn in enumerate(request.messages):
        turns += _turn(f"messages[{index}].content", turn)
    prefill = ""
    if turns[-1].role == "assistant" and not turns[-1].extra and turns[:-1]:
        prefill = turns.pop().content
    choice = request.tool_choice or {}
    one = generate(
        config,
        caller,
        prefix="msg",
        endpoint="chat",
        chain=request,
        max_tokens=request.max_tokens,
        stop=request.stop_sequences,
        messages=turns,
        prefill=prefill,
        tools=[_tool(tool) for tool in request.tools or () if "input_schema" in tool] or None,
        tool_choice=_choice(choice),
        parallel_tool_calls=not choice.get("disable_parallel_tool_use"),
        template_kwargs={"enable_thinking": request.thinking.get("type") != "disabled"}
        if request.thinking
        else None,
        session=caller.session or None,
    )
    return Asked(request.model or "", (one,), bool(request.stream), request)


def errors(error: LocalSpecError) -> Json:
    """The error object; what our own has more comes along."""
    fallback = "invalid_request_error" if error.status in CLIENT_ERRORS else "api_error"
    fields: Json = {"type": KINDS.get(error.status, fallback), "message": str(error)}
    fields |= {"code": error.code, "param": error.param}
    return {"error": fields, "type": "error"}


@dataclass(slots=True)
class MessagesReply:
    """One message of one block of text."""

    asked: Asked
    model: str

    def begin(self, started: Started) -> Iterator[Json]:
        """The message without its text, and the block that will have it."""
        usage = _usage(started.prompt_tokens, started.cached_tokens, 0)
        message = self._message([], None, usage)
        yield {"type": "message_start", "message": message}
        yield {
            "type": "content_block_start",
            "index": 0,
            "content_block": {"type": "text", "text": ""},
        }
        yield {"type": "ping"}

    def delta(self, _choice: int, delta: Delta) -> Iterator[Json]:
        """A piece of text."""
        if delta.text:
            yield {
                "type": "content_block_delta",
                "index": 0,
                "delta": {"type": "text_delta", "text": delta.text},
            }

    def finish(self, _choice: int, finished: Finished) -> Iterator[Json]:
        """The end of the block, why it ended, and the end of the message."""
        yield {"type": "content_block_stop", "index": 0}
        yield {
            "type": "message_delta",
            "delta": {
                "stop_reason": _reason(finished),
                "stop_sequence": finished.stop or None,
            },
            "usage": _counted(finished),
        }
        yield {"type": "message_stop"}

    def end(self) -> Iterator[Json]:
        """Nothing more."""
        return iter(())

    def broken(self, error: LocalSpecError) -> Iterator[Json]:
        """An event of its own."""
        yield errors(error)

    def whole(self, answers: Sequence[Answer]) -> Json:
        """The message."""
        answer = answers[0]
        content = [{"type": "text", "text": answer.text}]
        message = self._message(content, _reason(answer.end), _counted(answer.end))
        return message | {"stop_sequence": answer.end.stop or None}

    def _message(self, content: list[Json], reason: str | None, usage: Json) -> Json:
        return {
            "id": self.asked.generates[0].id,
            "type": "message",
            "role": "assistant",
            "model": self.model,
            "content": content,
            "stop_reason": reason,
            "stop_sequence": None,
            "usage": usage,
        }


def _system(given: str | list[Block] | None) -> Iterator[Message]:
    blocks = [Block("text", given)] if isinstance(given, str) else given or []
    texts = [block.text for block in blocks if block.text and not block.text.startswith(BILLING)]
    if texts:
        yield Message("system", "\n".join(texts))


def _turn(param: str, turn: Turn) -> Iterator[Message]:
    """A turn as templates read it: results of tools are turns of their own, before its text.

    Raises RequestError for what is neither text nor a tool's.
    """
    blocks = [Block("text", turn.content)] if isinstance(turn.content, str) else turn.content
    texts, extra = [], {}
    calls: list[Json] = []
    for index, block in enumerate(blocks):
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
                said = _result(f"{param}[{index}].content", block.content)
                yield Message("tool", said, {"tool_call_id": block.tool_use_id})
            case _:
                raise RequestError(
                    f"{param}[{index}] is of type {block.type[:40]!r}; only text can be read.",
                    fix="Send text blocks alone.",
                    param=f"{param}[{index}]",
                )
    if calls:
        extra["tool_calls"] = calls  # type: ignore[assignment]
    if texts or extra:
        yield Message(turn.role, "".join(texts), extra)


def _result(param: str, content: str | list[Any] | None) -> str:
    """What a tool gave, as text. Raises RequestError."""
    if not isinstance(content, list):
        return content or ""
    texts = [part.get("text") for part in content if isinstance(part, dict)]
    if len(texts) != len(content) or not all(isinstance(text, str) for text in texts):
        raise RequestError(f"{param} has parts that are no text.", param=param)
    return "".join(map(str, texts))


def _tool(given: Json) -> Json:
    """A tool in OpenAI's shape."""
    function = {"name": given.get("name"), "parameters": given["input_schema"]}
    if "description" in given:
        function["description"] = given["description"]
    return {"type": "function", "function": function}


def _choice(given: Json) -> str | Json | None:
    """A choice of tools in OpenAI's words."""
    if given.get("type") == "tool":
        return {"type": "function", "function": {"name": given.get("name")}}
    return {"auto": "auto", "any": "required", "none": "none"}.get(str(given.get("type")))


def _reason(finished: Finished) -> str:
    if finished.stop:
        return "stop_sequence"
    return "max_tokens" if finished.reason == "length" else "end_turn"


def _counted(finished: Finished) -> Json:
    usage = finished.usage
    return _usage(usage.prompt_tokens, usage.cached_tokens, usage.completion_tokens)


def _usage(prompt: int, cached: int, completion: int) -> Json:
    """Anthropic counts what was cached apart."""
    return {
        "input_tokens": prompt - cached,
        "cache_read_input_tokens": cached,
        "cache_creation_input_tokens": 0,
        "output_tokens": completion,
    }


MESSAGES = Dialect(messages, MessagesReply, errors, NAMED_EVENTS)
COUNT = Dialect(counted, MessagesReply, errors, NAMED_EVENTS)
