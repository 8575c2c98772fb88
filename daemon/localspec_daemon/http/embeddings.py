"""Embeddings in the APIs of OpenAI, llama-server and Ollama."""

from __future__ import annotations

import asyncio
import base64
import functools
import sys
import time
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

import msgspec
from aiohttp import web
from msgspec import Meta

from localspec.catalog import header
from localspec.catalog.header import Header
from localspec.errors import LocalSpecError, UnknownModel, no_embeddings
from localspec.wire.messages import Embed, QuestionAnswer
from localspec_daemon.api.bodies import identity
from localspec_daemon.api.openai import prompts
from localspec_daemon.api.openai_types import Prompts
from localspec_daemon.http.named import named
from localspec_daemon.http.output import json_response
from localspec_daemon.http.serve import SUPERVISOR
from localspec_daemon.http.tokens import decoded
from localspec_daemon.supervisor.keep_alive import requested_seconds
from localspec_daemon.supervisor.model import Model
from localspec_daemon.supervisor.supervisor import Supervisor

MAX_TEXTS = 2048
"""The most texts of one request: OpenAI's own bound."""
MAX_NORM = 64

Width: TypeAlias = Annotated[int, Meta(ge=1)]


class EmbeddingRequest(msgspec.Struct):
    """POST /v1/embeddings and POST /embedding: texts, or tokens, in `input` or in `content`.

    `embd_normalize` is llama-server's: 2 is Euclid's norm, -1 none. Fewer `dimensions` are the
    first ones, scaled again.
    """

    model: str | None = None
    input: Prompts | None = None
    content: Prompts | None = None
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: Width | None = None
    embd_normalize: Annotated[int, Meta(ge=-1, le=MAX_NORM)] | None = None


class OllamaEmbedRequest(msgspec.Struct):
    """POST /api/embed. A text that is too long is cut unless `truncate` is false."""

    model: str
    input: str | list[str] | None = None
    truncate: bool | None = None
    dimensions: Width | None = None
    keep_alive: Any = None


class OllamaEmbeddingRequest(msgspec.Struct):
    """POST /api/embeddings, the older way: one text."""

    model: str
    prompt: str | None = None
    keep_alive: Any = None


async def openai_vectors(request: web.Request) -> web.Response:
    """POST /v1/embeddings."""
    asked, model, answer = await _openai_answer(request)
    count = sum(answer.tokens)
    return json_response(
        {
            "object": "list",
            "data": [
                {"object": "embedding", "index": index, "embedding": vector}
                for index, vector in enumerate(_shown(answer, asked.encoding_format))
            ],
            "model": model,
            "usage": {"prompt_tokens": count, "total_tokens": count},
        }
    )


async def llama_vectors(request: web.Request) -> web.Response:
    """POST /embedding."""
    _, _, answer = await _openai_answer(request)
    return json_response(
        [{"index": index, "embedding": [one]} for index, one in enumerate(_shown(answer))]
    )


async def ollama_vectors(request: web.Request) -> web.Response:
    """POST /api/embed."""
    began = time.monotonic()
    asked = await decoded(request, OllamaEmbedRequest)
    given: Any = asked.input
    texts = prompts(given, "input", MAX_TEXTS, empty=True)
    embed = Embed(identity("embd"), texts, width=asked.dimensions, cut=asked.truncate is not False)
    answer = await _ollama_answer(request, asked, embed)
    return json_response(
        {
            "model": asked.model,
            "embeddings": _shown(answer),
            "total_duration": round(1e9 * (time.monotonic() - began)),
            "load_duration": 0,
            "prompt_eval_count": sum(answer.tokens),
        }
    )


async def ollama_vector(request: web.Request) -> web.Response:
    """POST /api/embeddings: the vector as the model gives it, not normalized."""
    asked = await decoded(request, OllamaEmbeddingRequest)
    embed = Embed(identity("embd"), prompts(asked.prompt), norm=-1, cut=True)
    answer = await _ollama_answer(request, asked, embed)
    return json_response({"embedding": _shown(answer)[0]})


async def _openai_answer(request: web.Request) -> tuple[EmbeddingRequest, str, QuestionAnswer]:
    """The shared part of OpenAI's and llama-server's embedding endpoints."""
    asked = await decoded(request, EmbeddingRequest)
    texts = prompts(
        asked.content if asked.input is None else asked.input, "input", MAX_TEXTS, empty=True
    )
    norm = 2 if asked.embd_normalize is None else asked.embd_normalize
    model, answer = await _model_and_answer(
        request, asked.model, Embed(identity("embd"), texts, norm, asked.dimensions)
    )
    return asked, model, answer


async def _model_and_answer(
    request: web.Request, name: str | None, embed: Embed
) -> tuple[str, QuestionAnswer]:
    """The name of the model, and its answer. Raises the errors of `Model.answer`."""
    found = await _encoder(request.app[SUPERVISOR], named(request, name))
    return found.name, await _answer(request, found, embed)


async def _ollama_answer(
    request: web.Request, asked: OllamaEmbedRequest | OllamaEmbeddingRequest, embed: Embed
) -> QuestionAnswer:
    """The answer for Ollama's clients, whose requests may have a `keep_alive`."""
    wished = requested_seconds(asked.keep_alive)
    supervisor = request.app[SUPERVISOR]
    wanted = named(request, asked.model) or ""
    found = await _encoder(supervisor, wanted.removesuffix(":latest"))
    with supervisor.pool.keep_alive(found, wished):
        return await _answer(request, found, embed)


async def _answer(request: web.Request, model: Model, embed: Embed) -> QuestionAnswer:
    supervisor = request.app[SUPERVISOR]
    async with supervisor.request():
        began = time.monotonic()
        answer = await model.answer(embed, supervisor.config.server.max_queue)
        supervisor.tallies[model.name].embedded(answer.tokens, time.monotonic() - began)
        return answer


async def _encoder(supervisor: Supervisor, name: str | None) -> Model:
    """The model of that name, or one that gives embeddings, as `of_kind` chooses it.

    Raises NotServed if the choice gives no embeddings, and UnknownModel.
    """
    return await of_kind(supervisor, name, _gives_vectors, no_embeddings)


def _gives_vectors(header: Header) -> bool:
    return header.embeds and not header.ranks


async def of_kind(
    supervisor: Supervisor,
    name: str | None,
    fits: Callable[[Header], bool],
    refusal: Callable[[str], LocalSpecError],
) -> Model:
    """The model of that name; without a name, or for one of `[models.aliases]`, any that fits.

    The model that the name resolves to is tried first. Raises UnknownModel, and the refusal if no
    model fits.
    """
    found = await supervisor.model(name)
    paths = {found.name: Path(found.load.target_path)}
    if not name or not await _is_here(supervisor, name):
        paths |= {entry.name: entry.path for entry in await supervisor.entries() if entry.path}
    for model, path in paths.items():
        if await asyncio.to_thread(_fits, path, fits):
            return await supervisor.model(model, aliases=False)
    raise refusal(found.name)


async def _is_here(supervisor: Supervisor, name: str) -> bool:
    try:
        await supervisor.entry(name)
    except UnknownModel:
        return False
    return True


def _fits(path: Path, fits: Callable[[Header], bool]) -> bool:
    """Whether the file's header fits; False for a file that is no model."""
    try:
        return _read(path, path.stat().st_mtime_ns, fits)
    except (LocalSpecError, OSError):
        return False


@functools.lru_cache(maxsize=64)
def _read(path: Path, _modified: int, fits: Callable[[Header], bool]) -> bool:
    return fits(header.read(path))


def _shown(answer: QuestionAnswer, encoding: str | None = None) -> list[Any]:
    """The vectors as numbers, or in Base64."""
    if encoding == "base64":
        return [base64.b64encode(vector).decode() for vector in answer.vectors]
    return [_numbers(vector) for vector in answer.vectors]


def _numbers(vector: bytes) -> list[float]:
    numbers = array("f", vector)
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers.tolist()
