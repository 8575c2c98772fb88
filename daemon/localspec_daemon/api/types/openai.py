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
"""Lengths in characters, each with the drafter's name."""


class ErrorFields(msgspec.Struct):
    """An error; `fix` is its remedy, and an error may have figures besides."""

    message: str
    type: str
    param: str | None
    code: str | int | None
    fix: str | UnsetType = UNSET


class Error(Shape):
    """An error in OpenAI's shape."""

    error: ErrorFields


class LogprobToken(Shape):
    """A token and its logprob; null stands for minus infinity."""

    token: str
    logprob: float | None
    bytes: list[int]


class Chosen(LogprobToken):
    """The token of an answer, and the likeliest at its position."""

    top_logprobs: list[LogprobToken]


class ChatLogprobs(Shape):
    """Logprobs of a chat's tokens."""

    content: list[Chosen]
    refusal: str | None


class TextLogprobs(Shape):
    """Logprobs of a completion's tokens, as parallel lists; a first token has no logprob."""

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float | None] | None]
    text_offset: list[int]


class Function(Shape):
    """A function and its arguments, which are JSON as text."""

    name: str
    arguments: str


class FunctionCall(Shape):
    """One tool call."""

    id: str
    type: Literal["function"]
    function: Function


class AssistantMessage(Shape):
    """A message of the assistant."""

    role: Literal["assistant"]
    content: str | None
    reasoning_content: str | UnsetType = UNSET
    tool_calls: list[FunctionCall] | UnsetType = UNSET


class ChatChoice(Shape):
    """One choice of a chat."""

    index: int
    message: AssistantMessage
    logprobs: ChatLogprobs | None
    finish_reason: Reason


class TextChoice(Shape):
    """One choice of a completion."""

    index: int
    text: str
    logprobs: TextLogprobs | None
    finish_reason: Reason


class PromptDetails(Shape):
    """Details of the prompt's tokens."""

    cached_tokens: int


class CompletionDetails(Shape):
    """Details of the answer's tokens."""

    reasoning_tokens: int
    accepted_prediction_tokens: int
    rejected_prediction_tokens: int


class Usage(Shape):
    """Token counts of all choices together."""

    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptDetails
    completion_tokens_details: CompletionDetails


class Speculation(SpeculationReport, frozen=True):
    """The report of speculation, and the seed that repeats the answer."""

    seed: int = 0


class Head(Shape):
    """The fields common to whole answers and chunks."""

    id: str
    created: int
    model: str
    system_fingerprint: str


class Verbose(Shape):
    """llama-server's `__verbose`: the first answer with its prompt and settings."""

    prompt: str
    content: str
    tokens_predicted: int
    tokens_evaluated: int
    truncated: bool
    generation_settings: dict[str, Any]


class PromptProgress(Shape):
    """Progress of the prompt."""

    total: int
    cache: int
    processed: int
    time_ms: int


class WholeAnswer(Head):
    """The fields of whole answers besides their choices; figures are those of the first."""

    usage: Usage
    timings: Timings
    speculation: Speculation
    origins: Origins | UnsetType = UNSET
    verbose: Verbose | UnsetType = msgspec.field(default=UNSET, name="__verbose")


class ChatCompletion(WholeAnswer, kw_only=True):
    """The answers of a chat."""

    object: Literal["chat.completion"]
    choices: list[ChatChoice]


class TextCompletion(WholeAnswer, kw_only=True):
    """The texts of completions."""

    object: Literal["text_completion"]
    choices: list[TextChoice]


class FunctionPart(Shape):
    """A piece of a call's function; a name begins a call."""

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
    """One choice of a chat's chunk."""

    index: int
    delta: ChatDelta
    finish_reason: Reason | None
    logprobs: ChatLogprobs | UnsetType = UNSET


class TextPiece(Shape):
    """One choice of a completion's chunk."""

    index: int
    text: str
    finish_reason: Reason | None
    logprobs: TextLogprobs | UnsetType = UNSET


class Chunk(Head):
    """The fields of a chunk; figures come at the end of a choice, usage after all choices."""

    usage: Usage | UnsetType = UNSET
    timings: Timings | UnsetType = UNSET
    speculation: Speculation | UnsetType = UNSET
    origins: Origins | UnsetType = UNSET
    prompt_progress: PromptProgress | UnsetType = UNSET


class ChatChunk(Chunk, kw_only=True):
    """One `data:` of a chat's stream; [DONE] follows the last."""

    object: Literal["chat.completion.chunk"]
    choices: list[ChatPiece]


class TextChunk(Chunk, kw_only=True):
    """One `data:` of a completion's stream; [DONE] follows the last."""

    object: Literal["text_completion"]
    choices: list[TextPiece]


class Embedding(Shape):
    """One vector: numbers, or Base64 of little-endian 32-bit floats."""

    object: Literal["embedding"]
    index: int
    embedding: list[float] | str


class EmbeddingUsage(Shape):
    """Token counts."""

    prompt_tokens: int
    total_tokens: int


class EmbeddingList(Shape):
    """A vector for each text."""

    object: Literal["list"]
    data: list[Embedding]
    model: str
    usage: EmbeddingUsage


class State(Shape):
    """The state of a model."""

    value: str


class Modalities(Shape):
    """Kinds of input and output."""

    input_modalities: list[str]
    output_modalities: list[str]


class Upstream(Shape):
    """A remote server."""

    name: str
    url: str


class ModelCard(Shape):
    """One model; `meta` has more once it is loaded."""

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
    """The models, with OpenAI's fields and Anthropic's."""

    object: Literal["list"]
    data: list[ModelCard]
    has_more: bool | UnsetType = UNSET
    first_id: str | UnsetType = UNSET
    last_id: str | UnsetType = UNSET
