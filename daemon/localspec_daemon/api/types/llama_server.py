"""Answers of llama-server's own endpoints."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import msgspec
from msgspec import UNSET, UnsetType

from localspec.wire.values import Timings
from localspec_daemon.api.types.openai import EmbeddingUsage, PromptProgress
from localspec_daemon.api.types.shape import Shape


class Probability(Shape):
    """A token by its number, with its logprob, or its probability after sampling."""

    id: int
    token: str
    bytes: list[int]
    logprob: float | UnsetType | None = UNSET
    prob: float | UnsetType = UNSET


class Probabilities(Probability):
    """The token of an answer, and the likeliest at its position."""

    top_logprobs: list[Probability] | UnsetType = UNSET
    top_probs: list[Probability] | UnsetType = UNSET


class LlamaCompletion(msgspec.Struct, kw_only=True):
    """One completion; with `response_fields` only the fields that it names."""

    index: int | UnsetType = UNSET
    content: str | UnsetType = UNSET
    tokens: list[int] | UnsetType = UNSET
    id_slot: int | UnsetType = UNSET
    stop: bool | Any | UnsetType = UNSET
    model: str | UnsetType = UNSET
    tokens_predicted: int | UnsetType = UNSET
    tokens_evaluated: int | UnsetType = UNSET
    generation_settings: dict[str, Any] | UnsetType = UNSET
    prompt: str | UnsetType = UNSET
    has_new_line: bool | UnsetType = UNSET
    truncated: bool | UnsetType = UNSET
    stop_type: Literal["word", "limit", "eos"] | UnsetType = UNSET
    stopping_word: str | UnsetType = UNSET
    tokens_cached: int | UnsetType = UNSET
    timings: Timings | UnsetType = UNSET
    prompt_progress: PromptProgress | UnsetType = UNSET
    completion_probabilities: list[Probabilities] | UnsetType = UNSET


LlamaCompletions: TypeAlias = LlamaCompletion | list[LlamaCompletion]
"""One completion, or a list of several."""


class TokenPiece(Shape):
    """A token and its text, or its bytes if it is only part of a character."""

    id: int
    piece: str | list[int]


class Tokens(Shape):
    """The tokens of a text."""

    tokens: list[int | TokenPiece]


class Content(Shape):
    """The text of tokens."""

    content: str


class Prompt(Shape):
    """The prompt of a chat."""

    prompt: str


class LlamaEmbedding(Shape):
    """One text's pooled vector, in a list."""

    index: int
    embedding: list[list[float]]


class Rank(Shape):
    """A document's index in the request, and its score."""

    index: int
    relevance_score: float


class TextRank(Shape):
    """A text's rank in the shape of TEI, Hugging Face's server."""

    index: int
    score: float
    text: str | UnsetType = UNSET


class Ranking(Shape):
    """The documents, best first."""

    model: str
    object: Literal["list"]
    usage: EmbeddingUsage
    results: list[Rank]


Ranks: TypeAlias = Ranking | list[TextRank]
"""A list if the request had `texts`."""


class GenerationDefaults(Shape):
    """Defaults of a request."""

    id: int
    id_task: int
    n_ctx: int
    speculative: bool
    is_processing: bool
    params: dict[str, Any]
    prompt: str
    next_token: dict[str, Any]


class Props(Shape):
    """Properties of a model."""

    default_generation_settings: GenerationDefaults
    total_slots: int
    model_alias: str
    model_path: str
    modalities: dict[str, bool]
    chat_template: str
    chat_template_caps: dict[str, bool]
    build_info: str
    is_sleeping: bool


class Slot(Shape):
    """One of the requests that are answered at the same time."""

    id: int
    id_task: int
    n_ctx: int
    speculative: bool
    is_processing: bool
    next_token: list[dict[str, Any]]


class LoraAdapter(Shape):
    """A LoRA adapter of a model, and its scale where a request names none."""

    id: int
    path: str
    scale: float
    task_name: str
    prompt_prefix: str


class Done(Shape):
    """It was done."""

    success: bool


class SlotTimings(Shape):
    """The milliseconds of a slot's file."""

    save_ms: float | UnsetType = UNSET
    restore_ms: float | UnsetType = UNSET


class SlotDone(Shape):
    """A slot that was saved, restored or erased: tokens and bytes."""

    id_slot: int
    filename: str | UnsetType = UNSET
    n_saved: int | UnsetType = UNSET
    n_written: int | UnsetType = UNSET
    n_restored: int | UnsetType = UNSET
    n_read: int | UnsetType = UNSET
    n_erased: int | UnsetType = UNSET
    timings: SlotTimings | UnsetType = UNSET


class Controlled(Shape):
    """Whether a running answer was controlled, and if not the reason."""

    success: bool
    message: str | UnsetType = UNSET


class Health(Shape):
    """The daemon is healthy."""

    status: Literal["ok"]


class UnhealthyFields(Shape):
    """An error; the code is that of HTTP."""

    code: int
    message: str
    type: str


class Unhealthy(Shape):
    """The reason why requests make no progress."""

    error: UnhealthyFields


class Loading(Shape):
    """Progress of a load."""

    stages: list[str]
    current: str
    value: float


class ModelState(Shape):
    """A model's state, and its progress."""

    status: str
    progress: Loading | UnsetType = UNSET


class ModelEvent(Shape):
    """A model's status, first as it is and then whenever it changes."""

    model: str
    event: Literal["model_status"]
    data: ModelState
