"""Questions to a model that need no slot: tokens of a text, the text of tokens, a prompt."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Annotated, TypeAlias, TypeVar

import msgspec
from aiohttp import web
from msgspec import Meta

from localspec.config import Config
from localspec.wire.messages import Detokenize, Question, QuestionAnswer, Render, Tokenize
from localspec_daemon.api import anthropic, openai, responses
from localspec_daemon.api.bodies import decode, identity
from localspec_daemon.api.chain import TokenId
from localspec_daemon.api.dialect import Caller, ParsedRequest
from localspec_daemon.http.access import body, caller
from localspec_daemon.http.body_limits import off_loop
from localspec_daemon.http.named import named
from localspec_daemon.http.output import json_response
from localspec_daemon.http.serve import SUPERVISOR

MAX_TOKENS = 1 << 20

Body = TypeVar("Body")
Read: TypeAlias = Callable[[bytes, Config, Caller], ParsedRequest]


class TokenizeRequest(msgspec.Struct):
    """POST /tokenize."""

    content: str
    model: str | None = None
    add_special: bool = False
    parse_special: bool = True
    with_pieces: bool = False


class DetokenizeRequest(msgspec.Struct):
    """POST /detokenize."""

    tokens: Annotated[list[TokenId], Meta(max_length=MAX_TOKENS)]
    model: str | None = None


async def tokenize(request: web.Request) -> web.Response:
    """POST /tokenize: a text as tokens, with the pieces if they are wanted."""
    asked = await decoded(request, TokenizeRequest)
    question = Tokenize(
        identity("tok"), asked.content, asked.add_special, parse_special=asked.parse_special
    )
    answer = await _answer(request, asked.model, question)
    if not asked.with_pieces:
        return json_response({"tokens": answer.tokens})
    pieces = zip(answer.tokens, answer.pieces, strict=True)
    return json_response(
        {"tokens": [{"id": token, "piece": _spelled(piece)} for token, piece in pieces]}
    )


async def detokenize(request: web.Request) -> web.Response:
    """POST /detokenize: the text of tokens, special ones spelled out."""
    asked = await decoded(request, DetokenizeRequest)
    answer = await _answer(request, asked.model, Detokenize(identity("tok"), asked.tokens))
    return json_response({"content": answer.text})


async def apply_template(request: web.Request) -> web.Response:
    """POST /apply-template: the prompt that a chat becomes."""
    return json_response({"prompt": (await _prompt(request, openai.chat)).text})


async def count_tokens(request: web.Request) -> web.Response:
    """POST /v1/messages/count_tokens: how many tokens the prompt of a message has."""
    answer = await _prompt(request, anthropic.counted)
    return json_response({"input_tokens": len(answer.tokens)})


async def chat_tokens(request: web.Request) -> web.Response:
    """POST /v1/chat/completions/input_tokens: how many tokens the prompt of a chat has."""
    return await _counted(request, openai.chat)


async def response_tokens(request: web.Request) -> web.Response:
    """POST /v1/responses/input_tokens: how many tokens the input of a response has."""
    return await _counted(request, responses.response)


async def _counted(request: web.Request, read: Read) -> web.Response:
    answer = await _prompt(request, read)
    return json_response({"object": "response.input_tokens", "input_tokens": len(answer.tokens)})


async def _prompt(request: web.Request, read: Read) -> QuestionAnswer:
    supervisor = request.app[SUPERVISOR]
    data = await body(request, supervisor.config.server.max_body_bytes)
    asked = await off_loop(partial(read, data, supervisor.config, caller(request)), data)
    question = Render(identity("tok"), asked.generates[0])
    return await _answer(request, asked.model, question)


async def _answer(request: web.Request, name: str | None, question: Question) -> QuestionAnswer:
    supervisor = request.app[SUPERVISOR]
    found = await supervisor.model(named(request, name))
    async with supervisor.request():
        return await found.answer(question, supervisor.config.server.max_queue)


async def decoded(request: web.Request, kind: type[Body]) -> Body:
    """The body. Raises RequestError, TooLarge."""
    data = await body(request, request.app[SUPERVISOR].config.server.max_body_bytes)
    return await off_loop(partial(decode, data, kind), data)


def _spelled(piece: bytes) -> str | list[int]:
    """A piece as llama-server shows it: its bytes where it is only part of a character."""
    try:
        return piece.decode()
    except UnicodeDecodeError:
        return list(piece)
