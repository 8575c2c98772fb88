"""Answers of OpenAI's Responses."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from localspec.wire.values import Timings
from localspec_daemon.api.types.openai import Speculation
from localspec_daemon.api.types.shape import Shape


class OutputPart(Shape):
    """A part with text or thoughts."""

    type: Literal["output_text", "reasoning_text"]
    text: str
    annotations: list[Any] | UnsetType = UNSET
    logprobs: list[Any] | UnsetType = UNSET


class OutputItem(Shape):
    """Thoughts, a message, or one function call."""

    id: str
    type: Literal["reasoning", "message", "function_call"]
    status: Literal["in_progress", "completed", "incomplete"]
    role: Literal["assistant"] | UnsetType = UNSET
    content: list[OutputPart] | UnsetType = UNSET
    summary: list[Any] | UnsetType = UNSET
    call_id: str | UnsetType = UNSET
    name: str | UnsetType = UNSET
    namespace: str | UnsetType = UNSET
    arguments: str | UnsetType = UNSET


class ResponseUsage(Shape):
    """Token counts."""

    input_tokens: int
    input_tokens_details: dict[str, int]
    output_tokens: int
    output_tokens_details: dict[str, int]
    total_tokens: int


class Incomplete(Shape):
    """The reason why an answer was cut."""

    reason: Literal["max_output_tokens"]


class Response(Shape):
    """One response, with the request's settings."""

    id: str
    object: Literal["response"]
    created_at: int
    status: Literal["in_progress", "completed", "incomplete"]
    model: str
    output: list[OutputItem]
    error: None
    incomplete_details: Incomplete | None
    instructions: str | None
    max_output_tokens: int | None
    metadata: dict[str, Any]
    parallel_tool_calls: bool
    previous_response_id: None
    reasoning: dict[str, str | None]
    store: bool
    temperature: float
    text: dict[str, Any]
    tool_choice: str | dict[str, Any]
    tools: list[Any]
    top_p: float
    truncation: str
    usage: ResponseUsage | None
    timings: Timings | UnsetType = UNSET
    speculation: Speculation | UnsetType = UNSET


class InputTokens(Shape):
    """The token count of an input."""

    object: Literal["response.input_tokens"]
    input_tokens: int


class ResponseEvent(msgspec.Struct):
    """One event of a stream; its name is its type: `response.created`, text, calls, the end."""

    type: str
    sequence_number: int
