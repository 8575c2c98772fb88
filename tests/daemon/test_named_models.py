"""A model that a request names answers it, or nothing does: whichever way it is named."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable
from typing import Any, TypeAlias

import pytest

from localspec_daemon.http import routes

Asked: TypeAlias = Iterable[tuple[str, str, Any]]
Named: TypeAlias = dict[str, str]
CHAT: dict[str, Any] = {"messages": [{"role": "user", "content": "say hello"}], "max_tokens": 4}
TEXT: dict[str, Any] = {"prompt": "a"}
BODIES: dict[str, Any] = {
    "/chat/completions": CHAT,
    "/chat/completions/input_tokens": CHAT,
    "/apply-template": CHAT,
    "/messages": CHAT,
    "/messages/count_tokens": CHAT,
    "/completion": TEXT,
    "/completions": TEXT,
    "/fim/completions": TEXT,
    "/replay": TEXT | {"text": "b"},
    "/infill": {"input_prefix": "a", "input_suffix": "b"},
    "/responses": {"input": "a"},
    "/responses/input_tokens": {"input": "a"},
    "/tokenize": {"content": "a"},
    "/detokenize": {"tokens": [1]},
    "/embeddings": {"input": "a"},
    "/embedding": {"content": "a"},
    "/rerank": {"query": "a", "documents": ["b"]},
    "/reranking": {"query": "a", "documents": ["b"]},
    "/models/load": {},
    "/models/unload": {},
    "/slots/{id}": {},
    "/lora-adapters": [],
}
"""Bodies that name no model, by path without /v1."""
ASKED = [
    (route.method, route.path, BODIES.get(route.path.removeprefix("/v1"), {}))
    for route in routes.TABLE
    if not route.path.startswith("/api/")
    and (route.loads or "model" in route.queries or route.path.removeprefix("/v1") in BODIES)
]
JSON = {"Content-Type": "application/json"}
PLACES: dict[str, tuple[Named, Named]] = {
    "address": ({"model": "nope"}, {}),
    "body": ({}, {"model": "nope"}),
    "two": ({"model": "alpha"}, {"model": "nope"}),
}


STATE = ("/slots", "/lora-adapters", "/models/", "/props", "/metrics")
"""Paths that show or change what one model has: no other one can stand for it."""


async def statuses(it: Any, asked: Asked, query: Named, fields: Named) -> dict[str, int]:
    """The status that each path answers with a model in its address or its body."""
    got = {}
    for method, path, body in asked:
        takes = method == "POST" and isinstance(body, dict)
        if fields and not takes:
            continue
        params = query | ({"action": "erase"} if "/slots" in path else {})
        sent = json.dumps(body | fields if takes else body)
        url = path.replace("{id}", "0")
        sending = it.http.request(method, url, params=params, data=sent, headers=JSON)
        async with sending as response:
            got[f"{method} {path}"] = response.status
    return got


@pytest.mark.parametrize("place", PLACES)
def test_an_unknown_model_is_404_wherever_it_is_named(
    harness: Any, daemon: Any, place: str
) -> None:
    """No endpoint passes a name over and asks the default model; two names are refused."""
    expected = 400 if place == "two" else 404

    async def scene() -> None:
        async with daemon(harness) as it:
            got = await statuses(it, ASKED, *PLACES[place])
            assert len(got) > 30
            assert {path: status for path, status in got.items() if status != expected} == {}

    asyncio.run(scene())


@pytest.mark.parametrize("place", ["address", "body"])
def test_an_alias_stands_for_no_model_whose_state_is_changed(
    harness: Any, daemon: Any, place: str
) -> None:
    """`"*" = ""` answers texts by the default model; it erases no slot of that."""
    harness.configure(models={"aliases": {"*": ""}})
    state = [each for each in ASKED if each[1].removeprefix("/v1").startswith(STATE)]

    async def scene() -> None:
        async with daemon(harness) as it:
            got = await statuses(it, state, *PLACES[place])
            assert len(got) > 3
            assert {path: status for path, status in got.items() if status != 404} == {}

    asyncio.run(scene())


@pytest.mark.parametrize("path", ["/api/chat", "/api/generate", "/api/show", "/api/embed"])
def test_two_names_are_refused_by_ollamas_paths_too(harness: Any, daemon: Any, path: str) -> None:
    """Whose bodies have to name a model."""
    bodies: dict[str, Any] = {
        "/api/chat": CHAT,
        "/api/generate": TEXT,
        "/api/embed": {"input": "a"},
    }

    async def scene() -> None:
        async with daemon(harness) as it:
            body = bodies.get(path, {}) | {"model": "alpha", "stream": False}
            status, answer = await it.post(f"{path}?model=nope", body)
            assert status == 400
            assert "one model" in answer["error"]

    asyncio.run(scene())
