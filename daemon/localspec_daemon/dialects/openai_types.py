"""The bodies of OpenAI's endpoints, with llama.cpp's extras: types, ranges, nothing else.

Unknown fields are ignored, because clients send many; null means absent. Numbers have the ranges
of `localspec.ranges`, so that none reaches the engine unchecked.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import Meta

from localspec import ranges
from localspec.ranges import SAMPLING

TokenId: TypeAlias = Annotated[int, ranges.TOKEN.meta]
Bias: TypeAlias = Annotated[float, ranges.BIAS.meta]
Repetition: TypeAlias = Annotated[float, SAMPLING["repetition_penalty"].meta]
Count: TypeAlias = Annotated[int, ranges.MAX_TOKENS.meta]


class Part(msgspec.Struct):
    """One part of a message's content."""

    type: str = "text"
    text: str | None = None


class ChatMessage(msgspec.Struct):
    """One turn. The last four fields are for templates only."""

    role: Literal["system", "developer", "user", "assistant", "tool"]
    content: str | list[Part] | None = None
    name: str | None = None
    tool_calls: list[Any] | None = None
    tool_call_id: str | None = None
    reasoning_content: str | None = None


class StreamOptions(msgspec.Struct):
    """What a stream carries besides text."""

    include_usage: bool | None = None


class SpeculationOptions(msgspec.Struct, forbid_unknown_fields=True):
    """LocalSpec's own object; a typing error in it is worth an answer."""

    mode: Literal["auto", "off", "always"] | None = None
    drafters: Annotated[list[str], Meta(max_length=ranges.MAX_DRAFTERS)] | None = None
    max_draft: Annotated[int, ranges.MAX_DRAFT.meta] | None = None
    verify: Literal["coupled", "rejection"] | None = None


class ResponseFormat(msgspec.Struct):
    """Plain text, any JSON, or JSON of a schema."""

    type: Literal["text", "json_object", "json_schema"] = "text"
    json_schema: dict[str, Any] | None = None
    schema: dict[str, Any] | None = None


class Prediction(msgspec.Struct):
    """What the client expects the answer to be; both fields are required."""

    type: Literal["content"]
    content: str | list[Part]


class Request(msgspec.Struct):
    """What both endpoints share."""

    model: str | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    return_origins: bool | None = None
    max_tokens: Count | None = None
    n: Annotated[int, Meta(ge=1, le=1)] | None = None
    temperature: Annotated[float, SAMPLING["temperature"].meta] | None = None
    top_k: Annotated[int, Meta(ge=-1, le=SAMPLING["top_k"].high)] | None = None
    top_p: Annotated[float, SAMPLING["top_p"].meta] | None = None
    min_p: Annotated[float, SAMPLING["min_p"].meta] | None = None
    repetition_penalty: Repetition | None = None
    repeat_penalty: Repetition | None = None
    frequency_penalty: Annotated[float, SAMPLING["frequency_penalty"].meta] | None = None
    presence_penalty: Annotated[float, SAMPLING["presence_penalty"].meta] | None = None
    penalty_last_n: Annotated[int, SAMPLING["penalty_last_n"].meta] | None = None
    logit_bias: dict[TokenId, Bias] | None = None
    seed: int | None = None
    stop: str | list[str] | None = None
    ignore_eos: bool | None = None
    response_format: ResponseFormat | None = None
    speculation: SpeculationOptions | None = None


class ChatRequest(Request):
    """POST /v1/chat/completions."""

    messages: list[ChatMessage] | None = None
    max_completion_tokens: Count | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    prediction: Prediction | None = None


class CompletionRequest(Request):
    """POST /v1/completions. Of a list of prompts only the first may be there."""

    prompt: str | list[str | TokenId | list[TokenId]] | None = None
    suffix: str | None = None
    echo: bool | None = None
