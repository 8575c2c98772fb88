"""The bodies of OpenAI's chat and completions, with llama.cpp's extras: types and ranges."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from localspec_daemon.dialects.bodies import Count, TextRequest, TokenId

MAX_CHOICES = 64
MAX_ALTERNATIVES = 20
"""Alternatives to a token that logprobs may list: OpenAI's own bound."""


class Part(msgspec.Struct):
    """One part of a message's content."""

    type: str = "text"
    text: str | None = None


class ChatMessage(msgspec.Struct):
    """One turn. The last four fields are for templates only."""

    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: str | list[Part] | None = None
    name: str | None = None
    tool_calls: list[Any] | None = None
    tool_call_id: str | None = None
    reasoning_content: str | None = None


class StreamOptions(msgspec.Struct):
    """What a stream carries besides text."""

    include_usage: bool | None = None


class ResponseFormat(msgspec.Struct):
    """Plain text, any JSON, JSON of a schema, or what a pattern, choices or a grammar allow."""

    type: Literal["text", "json_object", "json_schema", "regex", "choice", "gbnf", "lark"] = "text"
    pattern: str | None = None
    choices: list[str] | None = None
    grammar: str | None = None
    json_schema: dict[str, Any] | None = None
    schema: dict[str, Any] | None = None


class Prediction(msgspec.Struct):
    """What the client expects the answer to be; both fields are required."""

    type: Literal["content"]
    content: str | list[Part]


class Foreign(TextRequest):
    """Fields that would change an answer and are served by nobody here: `NEUTRAL` has what may be.

    Everything else that is unknown is taken for harmless, as `user`, `store` and `metadata` are.
    """

    audio: Any = None
    image_data: Any = None
    modalities: Any = None
    web_search_options: Any = None
    lora: Any = None
    functions: Any = None
    function_call: Any = None


NEUTRAL: dict[str, tuple[Any, ...]] = {
    "audio": (None,),
    "image_data": (None, []),
    "modalities": (None, ["text"]),
    "web_search_options": (None,),
    "lora": (None, []),
    "functions": (None, []),
    "function_call": (None, "none", "auto"),
}
"""Values of those fields that ask for nothing."""


class Request(Foreign):
    """What both endpoints share."""

    stream_options: StreamOptions | None = None
    return_origins: bool | None = None
    max_tokens: Count | None = None
    n_predict: Count | None = None
    n: Annotated[int, Meta(ge=1, le=MAX_CHOICES)] | None = None
    stop: str | list[str] | None = None
    ignore_eos: bool | None = None
    response_format: ResponseFormat | None = None
    json_schema: dict[str, Any] | None = None
    grammar: str | None = None
    guided_json: dict[str, Any] | None = None
    guided_grammar: str | None = None
    guided_regex: str | None = None
    guided_choice: list[str] | None = None
    prompt_cache_key: str | None = None
    id_slot: int | None = None


class ChatRequest(Request):
    """POST /v1/chat/completions. `reasoning_format` "none" leaves thoughts in the text."""

    messages: list[ChatMessage] | None = None
    max_completion_tokens: Count | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=MAX_ALTERNATIVES)] | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    prediction: Prediction | None = None
    continue_final_message: bool | None = None
    add_generation_prompt: bool | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    reasoning_effort: str | None = None
    reasoning_format: Literal["none", "auto", "deepseek", "deepseek-legacy"] | None = None


class PromptRequest(Request):
    """One prompt, or a list of them, each as text or as tokens."""

    prompt: str | list[str | TokenId | list[TokenId]] | None = None


class CompletionRequest(PromptRequest):
    """POST /v1/completions."""

    suffix: str | None = None
    echo: bool | None = None
    best_of: Annotated[int, Meta(ge=1, le=MAX_CHOICES)] | None = None
    logprobs: Annotated[int, Meta(ge=0, le=MAX_ALTERNATIVES)] | None = None
