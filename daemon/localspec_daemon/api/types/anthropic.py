"""Answers of Anthropic's messages."""

from __future__ import annotations

from typing import Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from localspec_daemon.api.types.shape import Shape


class AnthropicErrorFields(Shape):
    """An error."""

    type: str
    message: str
    code: str
    param: str | None


class AnthropicError(Shape):
    """An error in Anthropic's shape."""

    type: Literal["error"]
    error: AnthropicErrorFields


class ContentBlock(Shape):
    """Thoughts, text, or one tool call."""

    type: Literal["thinking", "text", "tool_use"]
    text: str | UnsetType = UNSET
    thinking: str | UnsetType = UNSET
    signature: str | UnsetType = UNSET
    id: str | UnsetType = UNSET
    name: str | UnsetType = UNSET
    input: dict[str, Any] | UnsetType = UNSET


class MessageUsage(Shape):
    """Token counts; cached tokens are counted apart."""

    input_tokens: int
    cache_read_input_tokens: int
    cache_creation_input_tokens: int
    output_tokens: int


class AnthropicMessage(Shape):
    """One message of the assistant."""

    id: str
    type: Literal["message"]
    role: Literal["assistant"]
    model: str
    content: list[ContentBlock]
    stop_reason: Literal["end_turn", "max_tokens", "stop_sequence", "tool_use"]
    stop_sequence: str | None
    usage: MessageUsage


class MessageEvent(msgspec.Struct):
    """One event of a stream; its name is its type: `message_start` to `message_stop`."""

    type: str


class TokenCount(Shape):
    """The length of a message's prompt."""

    input_tokens: int
