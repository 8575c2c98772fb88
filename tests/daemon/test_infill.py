"""POST /infill as editors send it, and formats other than JSON, on a real worker."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any

import msgspec
import pytest
import tiny

from localspec.config import Config
from localspec.wire.messages import Generate
from localspec_daemon.api.dialect import Caller
from localspec_daemon.api.infill import INFILL
from localspec_daemon.supervisor.worker import COMMAND

MARKS = ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "<|repo_name|>", "<|file_sep|>")
VIM: Any = {
    "id_slot": 7,
    "input_prefix": "def add(a, b):\n",
    "input_suffix": "\n\nsay(add(1, 2))\n",
    "input_extra": [{"text": "x = 1\n", "time": 1.5, "str": "x = 1", "filename": "x.py"}],
    "prompt": "    ret",
    "n_predict": 8,
    "n_indent": 4,
    "stop": [],
    "top_k": 40,
    "top_p": 0.9,
    "stream": False,
    "samplers": ["top_k", "top_p", "infill"],
    "cache_prompt": True,
    "t_max_prompt_ms": 500,
    "t_max_predict_ms": 1000,
    "response_fields": ["content", "timings/prompt_n", "timings/cache_n", "truncated"],
}
"""A request of llama.vim."""


def read(**fields: Any) -> tuple[Generate, ...]:
    """Parses a body of POST /infill."""
    body = msgspec.json.encode({**VIM, **fields})
    return INFILL.read(body, Config(), Caller("uid:1")).generates


def test_what_an_editor_sends_is_what_the_worker_is_asked() -> None:
    """Each field arrives; growing slot numbers wrap around; a single completion is greedy."""
    (one,) = read()
    assert (one.prompt, one.suffix, one.begun) == (
        "def add(a, b):\n",
        VIM["input_suffix"],
        "    ret",
    )
    assert [(extra.filename, extra.text) for extra in one.extra] == [("x.py", "x = 1\n")]
    assert (one.max_tokens, one.indent) == (8, 4)
    assert (one.prompt_seconds, one.predict_seconds) == (0.5, 1.0)
    assert read(t_max_prompt_ms=0)[0].prompt_seconds is None
    assert (one.endpoint, one.sampling.temperature) == ("infill", 0.0)
    slots = Config().engine.slots
    assert one.session == read(id_slot=7 + slots)[0].session != read(id_slot=8)[0].session
    assert read(id_slot=-1)[0].session == ""
    assert read(temperature=0.7)[0].sampling.temperature == 0.7
    several = read(n_cmpl=3)
    assert len({each.sampling.seed for each in several}) == 3
    assert several[0].sampling.temperature == Config().sampling.temperature
    assert read(n_predict=0)[0].max_tokens == 0


@pytest.fixture
def real(harness: Any, daemon: Any) -> Any:
    """A daemon whose model supports infilling."""
    tiny.build(harness.models / "alpha.gguf", specials=MARKS)
    harness.configure(engine={"context": 512, "slots": 2})
    return lambda: daemon(harness, COMMAND)


def test_an_editor_is_answered(real: Any) -> None:
    """Compact JSON, one answer or an array; a warm-up; completions with a suffix."""

    async def scene() -> None:
        async with real() as it:
            async with it.http.post("/infill", json=VIM) as response:
                raw = (await response.read()).decode()
            assert response.status == 200, raw
            assert re.search(r'"content":"', raw)
            first = json.loads(raw)
            assert set(first) == set(VIM["response_fields"])
            _, again = await it.post("/v1/infill", VIM)
            assert (again["content"], again["timings/prompt_n"]) == (first["content"], 1)
            _, several = await it.post("/infill", {**VIM, "n_cmpl": 2})
            assert [set(one) for one in several] == [set(first)] * 2
            status, warm = await it.post(
                "/infill", {**VIM, "n_predict": 0, "response_fields": [""]}
            )
            assert (status, warm) == (200, {})
            completion = {"model": "alpha", "prompt": "a", "suffix": "b", "max_tokens": 2}
            _, answer = await it.post("/v1/completions", completion)
            assert answer["usage"]["prompt_tokens"] == len("ab") + 3

    asyncio.run(scene())


def test_a_middle_comes_as_a_chat_to_those_who_ask_as_mistral_has_it(real: Any) -> None:
    """Mistral's FIM answers are chats; every delta has a content, because Continue joins them."""

    async def scene() -> None:
        async with real() as it:
            asked = {"model": "alpha", "prompt": "a", "suffix": "b", "max_tokens": 6, "seed": 1}
            status, whole = await it.post("/v1/fim/completions", asked)
            assert status == 200, whole
            (choice,) = whole["choices"]
            assert whole["usage"]["prompt_tokens"] == len("ab") + 3
            async with it.http.post("/fim/completions", json={**asked, "stream": True}) as answer:
                lines = (await answer.read()).decode().split("\n\n")
            *chunks, done = [line.removeprefix("data: ") for line in lines if line]
            assert done == "[DONE]"
            contents = [json.loads(chunk)["choices"][0]["delta"]["content"] for chunk in chunks]
            assert "".join(contents) == choice["message"]["content"]

    asyncio.run(scene())


def test_a_word_half_typed_is_not_read_by_any_door(real: Any) -> None:
    """Where a suffix says that a middle is wanted; a prompt alone is read as it stands.

    Likelihoods spell the text that is told.
    """
    before, read = "x = t", len("x = ") + len("b") + 3

    async def scene() -> None:
        async with real() as it:
            common = {"model": "alpha", "suffix": "b", "stream": False}
            body = {**common, "prompt": before, "max_tokens": 9, "logprobs": 1, "temperature": 0}
            _, answer = await it.post("/v1/completions", body)
            assert answer["usage"]["prompt_tokens"] == read
            (choice,) = answer["choices"]
            assert "".join(choice["logprobs"]["tokens"]).startswith(choice["text"])
            options = {"num_predict": 4}
            told = await it.post("/api/generate", {**common, "prompt": before, "options": options})
            assert told[1]["prompt_eval_count"] == read
            for parts in ({"input_prefix": before}, {"input_prefix": "x =", "prompt": " t"}):
                _, answer = await it.post("/infill", {"input_suffix": "b", "n_predict": 4, **parts})
                assert answer["tokens_evaluated"] == read
            _, answer = await it.post("/v1/completions", {"prompt": before, "max_tokens": 1})
            assert answer["usage"]["prompt_tokens"] == len(before)

    asyncio.run(scene())


def test_a_warm_up_takes_nobodys_turn(harness: Any, daemon: Any) -> None:
    """With the only slot taken, a warm-up reaches the worker at once and waits for no slot."""
    harness.configure(engine={"slots": 1})

    async def scene() -> None:
        async with daemon(harness) as it, it.streaming("wait") as stream:
            await stream.next("data: ")
            status, _ = await it.post("/v1/completions", {"prompt": "say x", "max_tokens": 0})
            assert status == 200
            assert it.model().requests == 1

    asyncio.run(scene())


def test_formats_beside_json_bind_the_answer(real: Any) -> None:
    """A pattern, a choice and a grammar hold, under each of their names."""
    asked = {
        "guided_regex": ("[ab]{3}c", "[ab]{3}c"),
        "guided_choice": (["heathen", "thinner"], "heathen|thinner"),
        "grammar": ('root ::= "x" [0-9] "y"', "x[0-9]y"),
        "response_format": ({"type": "regex", "pattern": "q{2}"}, "qq"),
    }

    async def scene() -> None:
        async with real() as it:
            for name, (value, pattern) in asked.items():
                status, answer = await it.ask("hello", max_tokens=40, **{name: value})
                assert status == 200, answer
                choice = answer["choices"][0]
                assert re.fullmatch(pattern, choice["message"]["content"]), (name, choice)
                assert choice["finish_reason"] == "stop"
            status, answer = await it.ask("hello", grammar="root ::= (")
            assert (status, answer["error"]["param"]) == (400, "grammar")

    asyncio.run(scene())
