"""The bodies of OpenAI's chat and completions, with llama.cpp's extras: types and ranges."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from msgspec import Meta

from localspec_daemon.api.bodies import Count, TextRequest
from localspec_daemon.api.chain import TokenId

MAX_CHOICES = 64
Milliseconds: TypeAlias = Annotated[float, Meta(ge=-1, le=86_400_000)]
"""A time limit of up to a day; 0 and below are no limit."""
MAX_ALTERNATIVES = 20
"""Alternatives to a token in its logprobs: OpenAI's own bound."""


class Part(msgspec.Struct):
    """One part of a message's content; `file` or `file_data` holds a file, `image_url` an image.

    An assistant may have refused, or thought, in text or, as Mistral has it, in parts of text.
    """

    type: str = "text"
    text: str | None = None
    refusal: str | None = None
    thinking: str | list[Part] | None = None
    file: Any = None
    file_data: Any = None
    image_url: Any = None

    @property
    def data(self) -> str:
        """The file's data URL; "" for any other part."""
        held = self.file.get("file_data") if isinstance(self.file, dict) else self.file_data
        return held if isinstance(held, str) else ""


class ChatMessage(msgspec.Struct):
    """One message. The last five fields are for templates only; `reasoning` is vLLM's name."""

    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: str | list[Part] | None = None
    name: str | None = None
    tool_calls: list[Any] | None = None
    tool_call_id: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None


class StreamOptions(msgspec.Struct):
    """Options of a stream."""

    include_usage: bool | None = None


class ResponseFormat(msgspec.Struct):
    """Plain text, any JSON, JSON of a schema, or text of a pattern, of choices or of a grammar."""

    type: Literal["text", "json_object", "json_schema", "regex", "choice", "gbnf", "lark"] = "text"
    pattern: str | None = None
    choices: list[str] | None = None
    grammar: str | None = None
    json_schema: dict[str, Any] | None = None
    schema: dict[str, Any] | None = None


class Prediction(msgspec.Struct):
    """The output that the client expects; both fields are required."""

    type: Literal["content"]
    content: str | list[Part]


class Foreign(TextRequest):
    """Fields that would change an answer and are not served, except with a value in `NEUTRAL`.

    The fields after `preserved_tokens` are those of vLLM and other servers, whose clients come here
    too. All other unknown fields are harmless, such as `user`, `store` and `metadata`.
    """

    audio: Any = None
    image_data: Any = None
    modalities: Any = None
    web_search_options: Any = None
    functions: Any = None
    function_call: Any = None
    n_cache_reuse: Any = None
    reasoning_budget_message: Any = None
    reasoning_budget_start_tag: Any = None
    reasoning_budget_end_tag: Any = None
    reasoning_budget_end_tags: Any = None
    adaptive_decay: Any = None
    chat_format: Any = None
    chat_parser: Any = None
    parse_tool_calls: Any = None
    generation_prompt: Any = None
    grammar_lazy: Any = None
    grammar_triggers: Any = None
    preserved_tokens: Any = None
    chat_template: Any = None
    documents: Any = None
    structured_outputs: Any = None
    stop_token_ids: Any = None
    allowed_token_ids: Any = None
    bad_words: Any = None
    min_tokens: Any = None
    include_stop_str_in_output: Any = None
    prompt_logprobs: Any = None
    truncate_prompt_tokens: Any = None
    use_beam_search: Any = None
    length_penalty: Any = None
    top_a: Any = None


NEUTRAL: dict[str, tuple[Any, ...]] = {
    "audio": (None,),
    "image_data": (None, []),
    "modalities": (None, ["text"]),
    "web_search_options": (None,),
    "functions": (None, []),
    "function_call": (None, "none", "auto"),
    "n_cache_reuse": (None, 0),
    "reasoning_budget_message": (None, ""),
    "reasoning_budget_start_tag": (None, ""),
    "reasoning_budget_end_tag": (None, ""),
    "reasoning_budget_end_tags": (None, []),
    "adaptive_decay": (None, 0.9),
    "chat_format": (None, 0),
    "chat_parser": (None, ""),
    "parse_tool_calls": (None, True),
    "generation_prompt": (None, ""),
    "grammar_lazy": (None, False),
    "grammar_triggers": (None, []),
    "preserved_tokens": (None, []),
    "chat_template": (None, ""),
    "documents": (None, []),
    "structured_outputs": (None, {}),
    "stop_token_ids": (None, []),
    "allowed_token_ids": (None, []),
    "bad_words": (None, []),
    "min_tokens": (None, 0),
    "include_stop_str_in_output": (None, False),
    "prompt_logprobs": (None,),
    "truncate_prompt_tokens": (None,),
    "use_beam_search": (None, False),
    "length_penalty": (None, 1),
    "top_a": (None, 0),
}
"""The values of these fields that change nothing."""

CHAT_ONLY: dict[str, tuple[Any, ...]] = {"reasoning_control": (None, False)}
"""The same for fields that need a chat."""

LLAMA_ONLY: dict[str, tuple[Any, ...]] = {
    "return_tokens": (None, False),
    "response_fields": (None, []),
}
"""The same for fields that shape llama-server's own answers; OpenAI's endpoints refuse them."""


class LoraScale(msgspec.Struct):
    """The scale of one LoRA adapter, by its id."""

    id: int
    scale: float = 0.0


class Request(Foreign):
    """The fields that chats and completions share, with llama-server's own.

    `t_max_predict_ms` ends an answer this long after its first token, but not before a whole line.
    `t_max_prompt_ms` ends an answer that has no token this long after its start; the rest of its
    prompt is read as a warm-up. `sse_ping_interval` is how many seconds a stream may be silent, -1
    for ever.
    With `context_shift` an answer that fills its context forgets tokens and goes on: it keeps the
    first `n_keep` (-1: the prompt) and forgets the next `n_discard` (0: half of the rest).
    `backend_sampling` chooses where tokens are sampled, which changes no answer. `lora` sets scales
    of LoRA adapters, 0 for those that it leaves out; an empty list sets nothing.
    """

    stream_options: StreamOptions | None = None
    return_origins: bool | None = None
    max_tokens: Count | None = None
    n_predict: Count | None = None
    n: Annotated[int, Meta(ge=1, le=MAX_CHOICES)] | None = None
    n_cmpl: Annotated[int, Meta(ge=1, le=MAX_CHOICES)] | None = None
    n_keep: Annotated[int, Meta(ge=-1, le=2**31 - 1)] | None = None
    n_discard: Annotated[int, Meta(ge=0, le=2**31 - 1)] | None = None
    context_shift: bool | None = None
    t_max_prompt_ms: Milliseconds | None = None
    t_max_predict_ms: Milliseconds | None = None
    cache_prompt: bool | None = None
    timings_per_token: bool | None = None
    post_sampling_probs: bool | None = None
    backend_sampling: bool | None = None
    verbose: bool | None = None
    n_indent: Annotated[int, Meta(ge=0, le=1000)] | None = None
    return_tokens: Any = None
    response_fields: Any = None
    sse_ping_interval: Annotated[int, Meta(ge=-1, le=2**31 - 1)] | None = None
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
    lora: list[LoraScale] | None = None


class ChatRequest(Request):
    """A body of POST /v1/chat/completions; `reasoning_format` "none" keeps thoughts in the text."""

    messages: list[ChatMessage] | None = None
    max_completion_tokens: Count | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=MAX_ALTERNATIVES)] | None = None
    n_probs: Annotated[int, Meta(ge=0, le=MAX_ALTERNATIVES)] | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    prediction: Prediction | None = None
    continue_final_message: bool | None = None
    add_generation_prompt: bool | None = None
    tools: list[dict[str, Any]] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    reasoning_effort: str | None = None
    reasoning_budget_tokens: Count | None = None
    thinking_budget_tokens: Count | None = None
    reasoning_format: Literal["none", "auto", "deepseek", "deepseek-legacy"] | None = None
    reasoning_control: bool | None = None


class PromptObject(msgspec.Struct):
    """A prompt as an object: its text, which may be in parts."""

    prompt_string: str | None = None
    content: str | list[Part] | None = None
    multimodal_data: Any = None


Prompts: TypeAlias = str | PromptObject | list[str | TokenId | PromptObject | list[TokenId | str]]
"""One prompt or several: as text, as tokens, or as texts and tokens in a row."""


class Continuation(Request):
    """A body with one prompt, or with a list of them; only chats separate thoughts from text."""

    prompt: Prompts | None = None
    reasoning_control: Any = None


class CompletionRequest(Continuation):
    """A body of POST /v1/completions."""

    suffix: str | None = None
    echo: bool | None = None
    best_of: Annotated[int, Meta(ge=1, le=MAX_CHOICES)] | None = None
    logprobs: Annotated[int, Meta(ge=0, le=MAX_ALTERNATIVES)] | None = None
    n_probs: Annotated[int, Meta(ge=0, le=MAX_ALTERNATIVES)] | None = None
