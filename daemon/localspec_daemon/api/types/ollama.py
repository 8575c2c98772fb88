"""Answers of Ollama's API."""

from __future__ import annotations

from typing import Any, Literal

from msgspec import UNSET, UnsetType

from localspec_daemon.api.types.shape import Shape


class OllamaError(Shape):
    """An error as a sentence."""

    error: str


class OllamaFunction(Shape):
    """A function and its arguments."""

    name: str
    arguments: dict[str, Any]


class OllamaCall(Shape):
    """One tool call."""

    function: OllamaFunction


class OllamaAssistantMessage(Shape):
    """A message of the assistant, or a piece of one."""

    role: Literal["assistant"]
    content: str
    thinking: str | UnsetType = UNSET
    tool_calls: list[OllamaCall] | UnsetType = UNSET


class OllamaLogprob(Shape):
    """One token of a line, or an alternative to one."""

    token: str
    logprob: float
    bytes: list[int]
    top_logprobs: list[OllamaLogprob] | UnsetType = UNSET


class OllamaLine(Shape):
    """The fields of every line; the last has the reason and the times."""

    model: str
    created_at: str
    done: bool
    done_reason: Literal["stop", "length", "load", "unload"] | UnsetType = UNSET
    total_duration: int | UnsetType = UNSET
    load_duration: int | UnsetType = UNSET
    prompt_eval_count: int | UnsetType = UNSET
    prompt_eval_duration: int | UnsetType = UNSET
    eval_count: int | UnsetType = UNSET
    eval_duration: int | UnsetType = UNSET
    logprobs: list[OllamaLogprob] | UnsetType = UNSET


class OllamaChat(OllamaLine, kw_only=True):
    """The answer of a chat, or a line of it."""

    message: OllamaAssistantMessage


class OllamaText(OllamaLine, kw_only=True):
    """The answer to a prompt, or a line of it."""

    response: str
    thinking: str | UnsetType = UNSET
    tool_calls: list[OllamaCall] | UnsetType = UNSET


class OllamaEmbeddings(Shape):
    """A vector for each text."""

    model: str
    embeddings: list[list[float]]
    total_duration: int
    load_duration: int
    prompt_eval_count: int


class OllamaEmbedding(Shape):
    """The vector of one text, not normalized."""

    embedding: list[float]


class Version(Shape):
    """The version of the Ollama whose API this is."""

    version: str


class Details(Shape):
    """Details of a model's file."""

    parent_model: str
    format: str
    family: str
    families: list[str]
    parameter_size: str
    quantization_level: str


class OllamaCard(Shape):
    """One model; the last two fields only if it is loaded."""

    name: str
    model: str
    modified_at: str
    size: int
    digest: str
    details: Details
    expires_at: str | UnsetType = UNSET
    size_vram: int | UnsetType = UNSET


class OllamaCards(Shape):
    """A list of models."""

    models: list[OllamaCard]


class ModelDetails(Shape):
    """Properties and capabilities of one model."""

    modelfile: str
    parameters: str
    template: str
    details: Details
    model_info: dict[str, Any]
    capabilities: list[str]
    modified_at: str


class PullProgress(Shape):
    """Progress of a pull."""

    status: str
