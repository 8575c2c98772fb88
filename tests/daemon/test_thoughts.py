"""Thoughts of a running answer are ended by POST /v1/chat/completions/control."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
import tiny
from serving import tcp_client

from localspec_daemon.supervisor.worker import COMMAND

CONTROL = "/v1/chat/completions/control"
THINKS = tiny.TEMPLATE + "{% if add_generation_prompt %}<think>\n{% endif %}"
ASKED: dict[str, Any] = {
    "temperature": 0, "ignore_eos": True, "max_tokens": 16_000, "reasoning_control": True,
    "logit_bias": dict.fromkeys(map(str, range(97, 123)), 40.0),
}  # fmt: skip
"""An answer of letters, which takes longer to write than a request takes to come."""


@pytest.fixture
def real(harness: Any, daemon: Any) -> Any:
    """A daemon with a model whose template begins thoughts, and a TCP port."""
    (harness.models / "alpha.gguf").unlink()
    tiny.build(harness.models / "alpha.gguf", template=THINKS)
    harness.configure(
        engine={"context": 1 << 14, "slots": 2, "exactness": "standard"},
        server={"tcp": "127.0.0.1:0"},
    )
    return lambda: daemon(harness, COMMAND)


async def chunk(stream: Any) -> Any:
    """The next chunk of a stream."""
    return json.loads((await stream.next("data: {"))[len("data: ") :])


async def worded(stream: Any, choice: int = 0) -> None:
    """Waits for a choice's first text behind its thoughts."""
    while True:
        found = (await chunk(stream))["choices"]
        if any(each["index"] == choice and each["delta"].get("content") for each in found):
            return


async def end(it: Any, id_: str, action: str = "reasoning_end") -> Any:
    """Status and JSON of a control."""
    return await it.post(CONTROL, {"id": id_, "action": action})


@pytest.mark.parametrize("choices", [1, 2])
def test_every_choice_of_the_answer_goes_on_to_its_text(real: Any, choices: int) -> None:
    """The id is that of the chunks; once the answer is over there is nothing to control."""

    async def scene() -> None:
        async with real() as it:
            async with it.streaming("why?", n=choices, **ASKED) as stream:
                id_ = (await chunk(stream))["id"]
                assert await end(it, id_) == (200, {"success": True})
                for choice in range(choices):
                    await worded(stream, choice)
                assert await end(it, id_) == (200, {"success": True})  # there is nothing left
            await it.until(lambda: it.model().requests == 0)
            status, told = await end(it, id_)
            assert (status, told["success"]) == (200, False)
            assert told["message"] == "no active completion for this id"

    asyncio.run(scene())


def test_what_may_not_be_controlled_says_why(real: Any) -> None:
    """An answer that did not ask for it, one of another client, and a part of an id."""

    async def scene() -> None:
        async with real() as it, tcp_client(it) as other:
            async with it.streaming("why?", **ASKED | {"reasoning_control": False}) as stream:
                told = (await end(it, (await chunk(stream))["id"]))[1]
                assert told["success"] is False
                assert "not enabled" in told["message"]
            async with it.streaming("why?", **ASKED) as stream:
                id_ = (await chunk(stream))["id"]
                for wrong in ("chatcmpl", id_[:-1], f"{id_}-1", f"{id_}-", id_.upper()):
                    assert (await end(it, wrong))[1]["success"] is False, wrong
                body = {"id": id_, "action": "reasoning_end"}
                async with other.post(CONTROL, json=body) as response:
                    assert (await response.json())["success"] is False
                assert (await end(it, id_))[1]["success"] is True
                await worded(stream)

    asyncio.run(scene())


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"action": "reasoning_end"}, "id"),
        ({"id": "x"}, "action"),
        ({"id": "x", "action": "stop"}, "action"),
        ({"id": 7, "action": "reasoning_end"}, "id"),
        ([], None),
    ],
)
def test_a_wrong_control_is_named(harness: Any, daemon: Any, body: Any, param: str | None) -> None:
    """It loads no model."""

    async def scene() -> None:
        async with daemon(harness) as it:
            status, told = await it.post(CONTROL, body)
            assert (status, told["error"]["param"]) == (400, param)
            assert not it.server.supervisor.pool.models

    asyncio.run(scene())


def test_a_worker_that_dies_does_not_bring_thoughts_back(real: Any) -> None:
    """The next worker goes on behind what was sent, and knows that thoughts are over."""

    async def scene() -> None:
        async with real() as it, it.streaming("why?", **ASKED) as stream:
            id_ = (await chunk(stream))["id"]
            await chunk(stream)
            it.model().worker.kill("a test")
            assert (await end(it, id_))[1]["success"] is True
            await worded(stream)

    asyncio.run(scene())
