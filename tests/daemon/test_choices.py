"""Several choices in a request, aliases of models, and comments while a model loads."""

from __future__ import annotations

import asyncio
import json
import os
from typing import Any

import pytest


def test_each_prompt_and_each_choice_is_answered_in_its_place(harness: Any, daemon: Any) -> None:
    """More choices than slots are answered in order, whole and streamed, and counted together."""
    harness.configure(engine={"slots": 2})

    async def scene() -> None:
        async with daemon(harness) as it:
            body = {"prompt": ["say a b", "say c", "say d e f"], "n": 2}
            status, answer = await it.post("/v1/completions", body)
            texts = [(choice["index"], choice["text"]) for choice in answer["choices"]]
            assert status == 200
            assert texts == [(0, "ab"), (1, "ab"), (2, "c"), (3, "c"), (4, "def"), (5, "def")]
            assert answer["usage"]["completion_tokens"] == 12
            async with it.http.post("/v1/completions", json=body | {"stream": True}) as response:
                lines = (await response.read()).decode().split("\n\n")
            spoken: dict[int, str] = {}
            for line in lines[:-2]:
                for choice in json.loads(line[6:])["choices"]:
                    index = choice["index"]
                    spoken[index] = spoken.get(index, "") + choice["text"]
            assert sorted(spoken.items()) == texts
            assert it.model().requests == 0

    asyncio.run(scene())


def test_one_choice_that_fails_ends_the_others(harness: Any, daemon: Any) -> None:
    """The error is the answer, and the other choices are cancelled."""

    async def scene() -> None:
        async with daemon(harness) as it:
            body = {"prompt": ["wait", "fail"]}
            assert (await it.post("/v1/completions", body))[0] == 400
            await it.until(lambda: it.model().requests == 0)
            leaving = asyncio.create_task(it.post("/v1/completions", {"prompt": ["wait"] * 3}))
            await it.until(lambda: it.model().requests == 3)
            leaving.cancel()
            await it.until(lambda: it.model().requests == 0)

    asyncio.run(scene())


@pytest.mark.parametrize(
    ("aliases", "name", "answers"),
    [
        ({"*": ""}, "gpt-4o", "alpha"),
        ({"gpt-*": "beta", "gpt-4o": ""}, "gpt-4o", "alpha"),
        ({"gpt-*": "beta", "gpt-4o": ""}, "gpt-5", "beta"),
        ({"gpt-*": "beta"}, "claude", None),
        ({"*": "beta"}, "alpha", "alpha"),
        ({"*": "nobody"}, "gpt-4o", None),
        ({}, "gpt-4o", None),
        ({}, "default", "alpha"),
        ({"default": "beta"}, "default", "beta"),
    ],
)
def test_a_name_that_nobody_has_means_what_the_table_says(
    harness: Any, daemon: Any, aliases: dict[str, str], name: str, answers: str | None
) -> None:
    """A local model's name means itself; others go by the alias table, or are unknown."""
    harness.add("beta")
    harness.configure(models={"aliases": aliases})

    async def scene() -> None:
        async with daemon(harness) as it:
            status, answer = await it.ask("say hi", model=name)
            assert (status, answer.get("model")) == ((200, answers) if answers else (404, None))
            assert (await it.ask("say hi", model="gpt-4o", aliases=False))[0] == 404

    asyncio.run(scene())


def test_a_model_in_the_catalog_is_not_somebody_elses_name(harness: Any, daemon: Any) -> None:
    """A catalogue name is never an alias: the error says how to pull it."""
    harness.configure(models={"aliases": {"*": ""}})

    async def scene() -> None:
        async with daemon(harness) as it:
            status, answer = await it.ask("say hi", model="qwen2.5-coder-1.5b-instruct")
            assert status == 404
            assert "localspec models pull" in answer["error"]["fix"]

    asyncio.run(scene())


def test_loading_is_told_to_those_who_ask_and_its_failure_has_a_status(
    harness: Any, daemon: Any
) -> None:
    """Without `return_progress` a stream starts after ten seconds; earlier errors have a status."""
    harness.add("gated", "refused")
    os.mkfifo(harness.models / "gated.gguf.fifo")

    async def scene() -> None:
        async with daemon(harness) as it:
            status, answer = await it.ask("say hi", model="refused", stream=True)
            assert (status, answer["error"]["code"]) == (422, "bad_gguf")
            async with it.streaming("say hi", model="gated", return_progress=True) as asking:
                await asking.next(": loading target 42%")
                quiet = asyncio.create_task(it.ask("say hi", model="gated"))
                await it.until(lambda: it.model("gated").requests == 2)
                os.close(os.open(harness.models / "gated.gguf.fifo", os.O_WRONLY))
                assert (await quiet)[0] == 200
            async with it.streaming("say hi") as asking:
                assert not any(line.startswith(":") for line in await asking.rest())

    asyncio.run(scene())
