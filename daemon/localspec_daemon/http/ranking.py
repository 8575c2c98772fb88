"""Ranks documents by how well they answer a query: the APIs of llama-server, Jina and TEI."""

from __future__ import annotations

import struct
import time
from typing import Annotated, TypeAlias

import msgspec
from aiohttp import web
from msgspec import Meta

from localspec.catalog.header import Header
from localspec.errors import RequestError, no_ranks
from localspec.wire.messages import Embed
from localspec_daemon.api.bodies import identity
from localspec_daemon.api.dialect import Json
from localspec_daemon.http.embeddings import MAX_TEXTS, of_kind
from localspec_daemon.http.named import named
from localspec_daemon.http.output import json_response
from localspec_daemon.http.serve import SUPERVISOR
from localspec_daemon.http.tokens import decoded

Documents: TypeAlias = Annotated[list[str], Meta(min_length=1, max_length=MAX_TEXTS)]


class RankRequest(msgspec.Struct):
    """POST /v1/rerank. With `texts`, TEI's field, the answer is a list; `return_text` adds them."""

    query: str
    documents: Documents | None = None
    texts: Documents | None = None
    model: str | None = None
    top_n: Annotated[int, Meta(ge=0)] | None = None
    return_text: bool = False


def _ranks(header: Header) -> bool:
    return header.ranks


async def rank(request: web.Request) -> web.Response:
    """POST /v1/rerank: the documents, best first."""
    asked = await decoded(request, RankRequest)
    documents = asked.documents or asked.texts
    if not documents:
        raise RequestError("documents is missing.", fix="Send some texts.", param="documents")
    supervisor = request.app[SUPERVISOR]
    found = await of_kind(supervisor, named(request, asked.model), _ranks, no_ranks)
    embed = Embed(identity("rank"), [*documents], norm=-1, width=1, query=asked.query)
    async with supervisor.request():
        began = time.monotonic()
        answer = await found.answer(embed, supervisor.config.server.max_queue)
        supervisor.tallies[found.name].embedded(answer.tokens, time.monotonic() - began)
    scores = [struct.unpack("<f", vector)[0] for vector in answer.vectors]
    order = sorted(range(len(scores)), key=lambda index: -scores[index])[: asked.top_n]
    if asked.documents is None:
        more = documents if asked.return_text else None
        return json_response([_of_tei(index, scores[index], more) for index in order])
    count = sum(answer.tokens)
    return json_response(
        {
            "model": found.name,
            "object": "list",
            "usage": {"prompt_tokens": count, "total_tokens": count},
            "results": [{"index": index, "relevance_score": scores[index]} for index in order],
        }
    )


def _of_tei(index: int, score: float, texts: list[str] | None) -> Json:
    found: Json = {"index": index, "score": score}
    return found | {"text": texts[index]} if texts else found
