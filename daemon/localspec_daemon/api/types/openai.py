"""Answers of OpenAI's chat, completions and models, and its errors, which most others share."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import UNSET, UnsetType

from localspec.wire.messages import SpeculationReport
from localspec.wire.values import Timings
from localspec_daemon.api.types.shape import Shape

Reason: TypeAlias = Literal["stop", "length", "tool_calls"]
Origins: TypeAlias = list[tuple[int, str]]
"""Characters, and who drafted them."""


class ErrorFields(msgspec.Struct):
    """An error, `fix` its remedy; an error may have figures besides."""

    message: str
    type: str
    param: str | None
    code: str | int | None
    fix: str | UnsetType = UNSET


class Error(Shape):
    """An error in OpenAI's shape."""

    error: ErrorFields


class Spelled(Shape):
    """A token and how likely it was; null stands for no chance at all."""

    token: str
    logprob: float | None
    bytes: list[int]


class Chosen(Spelled):
    """The token of an answer, and the likeliest at its place."""

    top_logprobs: list[Spelled]


class ChatLogprobs(Shape):
    """Logprobs of a chat's tokens."""

    content: list[Chosen]
    refusal: str | None


class TextLogprobs(Shape):
    """Logprobs of a completion's tokens: lists that go together. Nothing precedes a first token."""

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float | None] | None]
    text_offset: list[int]


class Function(Shape):
    """A function that is called; `arguments` are JSON as text."""

    name: str
    arguments: str


class FunctionCall(Shape):
    """One call."""

    id: str
    type: Literal["function"]
    function: Function


class Said(Shape):
    """A message of the assistant."""

    role: Literal["assistant"]
    content: str | None
    reasoning_content: str | UnsetType = UNSET
    tool_calls: list[FunctionCall] | UnsetType = UNSET


class ChatChoice(Shape):
    """One answer."""

    index: int
    message: Said
    logprobs: ChatLogprobs | None
    finish_reason: Reason


class TextChoice(Shape):
    """One text."""

    index: int
    text: str
    logprobs: TextLogprobs | None
    finish_reason: Reason


class PromptDetails(Shape):
    """Of the prompt's tokens."""

    cached_tokens: int


class CompletionDetails(Shape):
    """Of the answer's tokens."""

    reasoning_tokens: int
    accepted_prediction_tokens: int
    rejected_prediction_tokens: int


class Usage(Shape):
    """Tokens, of all choices together."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptDetails
    completion_tokens_details: CompletionDetails


class Speculation(SpeculationReport, frozen=True):
    """How speculation went, and the seed that repeats the answer."""

    seed: int = 0


class Head(Shape):
    """Fields common to whole answers and chunks."""

    id: str
    created: int
    model: str
    system_fingerprint: str


class Verbose(Shape):
    """What llama-server tells besides of the first answer: its prompt, and what it was made by."""

    prompt: str
    content: str
    tokens_predicted: int
    tokens_evaluated: int
    truncated: bool
    generation_settings: dict[str, Any]


class PromptProgress(Shape):
    """How far a prompt is read."""

    total: int
    cache: int
    processed: int
    time_ms: int


class Whole(Head):
    """Fields of whole answers besides their choices; figures are those of the first."""

    usage: Usage
    timings: Timings
    speculation: Speculation
    origins: Origins | UnsetType = UNSET
    verbose: Verbose | UnsetType = msgspec.field(default=UNSET, name="__verbose")


class ChatCompletion(Whole, kw_only=True):
    """The answers of a chat."""

    object: Literal["chat.completion"]
    choices: list[ChatChoice]


class TextCompletion(Whole, kw_only=True):
    """The texts of completions."""

    object: Literal["text_completion"]
    choices: list[TextChoice]


class FunctionPart(Shape):
    """A piece of a call's function; a name begins one."""

    arguments: str
    name: str | UnsetType = UNSET


class CallPart(Shape):
    """A piece of a call."""

    index: int
    function: FunctionPart
    id: str | UnsetType = UNSET
    type: Literal["function"] | UnsetType = UNSET


class ChatDelta(Shape):
    """The delta of a chat."""

    role: Literal["assistant"] | UnsetType = UNSET
    content: str | UnsetType = UNSET
    reasoning_content: str | UnsetType = UNSET
    tool_calls: list[CallPart] | UnsetType = UNSET


class ChatPiece(Shape):
    """The delta of one choice of a chat."""

    index: int
    delta: ChatDelta
    finish_reason: Reason | None
    logprobs: ChatLogprobs | UnsetType = UNSET


class TextPiece(Shape):
    """The delta of one choice of completions."""

    index: int
    text: str
    finish_reason: Reason | None
    logprobs: TextLogprobs | UnsetType = UNSET


class Chunk(Head):
    """A chunk's edges: figures with the end of a choice, usage behind all of them."""

    usage: Usage | UnsetType = UNSET
    timings: Timings | UnsetType = UNSET
    speculation: Speculation | UnsetType = UNSET
    origins: Origins | UnsetType = UNSET
    prompt_progress: PromptProgress | UnsetType = UNSET


class ChatChunk(Chunk, kw_only=True):
    """One `data:` of a chat's stream; behind the last stands [DONE]."""

    object: Literal["chat.completion.chunk"]
    choices: list[ChatPiece]


class TextChunk(Chunk, kw_only=True):
    """One `data:` of a completion's stream; behind the last stands [DONE]."""

    object: Literal["text_completion"]
    choices: list[TextPiece]


class Embedding(Shape):
    """One vector: numbers, or in Base64 32-bit floats, lowest byte first."""

    object: Literal["embedding"]
    index: int
    embedding: list[float] | str


class EmbeddingUsage(Shape):
    """Tokens."""

    prompt_tokens: int
    total_tokens: int


class EmbeddingList(Shape):
    """A vector for each text."""

    object: Literal["list"]
    data: list[Embedding]
    model: str
    usage: EmbeddingUsage


class State(Shape):
    """Where a model is."""

    value: str


class Modalities(Shape):
    """Kinds of input and output."""

    input_modalities: list[str]
    output_modalities: list[str]


class Upstream(Shape):
    """A server elsewhere."""

    name: str
    url: str


class ModelCard(Shape):
    """One model; what only a loaded one knows is in `meta` then."""

    id: str
    object: Literal["model"]
    created: int
    owned_by: str
    role: str
    aliases: list[str]
    meta: dict[str, int | str | dict[str, int]]
    status: State
    type: Literal["model"] | UnsetType = UNSET
    display_name: str | UnsetType = UNSET
    created_at: str | UnsetType = UNSET
    architecture: Modalities | UnsetType = UNSET
    upstream: Upstream | UnsetType = UNSET


class ModelList(Shape):
    """The models, in OpenAI's words and Anthropic's."""

    object: Literal["list"]
    data: list[ModelCard]
    has_more: bool | UnsetType = UNSET
    first_id: str | UnsetType = UNSET
    last_id: str | UnsetType = UNSET
