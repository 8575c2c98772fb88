"""Context shift, end to end: only where it is asked for, and told."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import recurrent
import tiny

from localspec_daemon.supervisor.worker import COMMAND

ASKED: dict[str, Any] = {
    "prompt": "def add(a, b):\n    return a + b\n", "n_predict": 200, "temperature": 0,
    "ignore_eos": True, "return_tokens": True,
}  # fmt: skip


@pytest.fixture
def real(harness: Any, daemon: Any) -> Any:
    """A daemon's directory with a small real pair and a context of 128 tokens."""
    (harness.models / "alpha.gguf").unlink()
    tiny.build(harness.models / "alpha.gguf")
    tiny.build(harness.models / "little.gguf", like=0, noise=0.02)
    (harness.models / "drafts.json").write_text('{"alpha":"little"}')
    harness.configure(engine={"context": 128, "slots": 2, "exactness": "strict"})
    return lambda: daemon(harness, COMMAND)


async def answer(it: Any, **fields: Any) -> Any:
    """An answer of /completion."""
    status, found = await it.post("/completion", ASKED | fields)
    assert status == 200, found
    return found


def test_an_answer_goes_on_where_it_is_asked_to(real: Any) -> None:
    """With and without drafts the same tokens; `truncated` says that something was forgotten."""

    async def scene() -> None:
        async with real() as it:
            ended = await answer(it)
            assert ended["tokens_predicted"] < 128
            assert ended["truncated"] is True
            shifted = [
                await answer(it, context_shift=True, n_keep=4, speculation={"mode": mode})
                for mode in ("off", "always")
            ]
            assert [each["tokens_predicted"] for each in shifted] == [200, 200]
            assert all(each["truncated"] for each in shifted)
            assert shifted[0]["tokens"] == shifted[1]["tokens"]
            assert shifted[0]["tokens"][: len(ended["tokens"])] == ended["tokens"]
            assert shifted[0]["generation_settings"]["n_keep"] == 4
            short = await answer(it, context_shift=True, n_predict=8)
            assert short["truncated"] is False
            other = await answer(it, context_shift=True, n_keep=-1, n_discard=16)
            assert other["tokens_predicted"] == 200
            assert (await answer(it))["tokens"] == ended["tokens"]

    asyncio.run(scene())


def test_the_configuration_asks_for_all_and_a_request_refuses(harness: Any, real: Any) -> None:
    """As `--context-shift` of llama-server."""
    harness.configure(engine={"context_shift": True})

    async def scene() -> None:
        async with real() as it:
            assert (await answer(it))["tokens_predicted"] == 200
            assert (await answer(it, context_shift=False))["tokens_predicted"] < 128
            status, told = await it.ask("hello", max_tokens=200, ignore_eos=True)
            assert (status, told["usage"]["completion_tokens"]) == (200, 200)

    asyncio.run(scene())


def test_a_memory_that_cannot_says_so(harness: Any, real: Any) -> None:
    """A request that asks for it is refused; by the configuration the answer just ends."""
    recurrent.mamba(harness.models / "alpha.gguf")
    (harness.models / "drafts.json").unlink()
    harness.configure(engine={"context_shift": True, "exactness": "standard"})

    async def scene() -> None:
        async with real() as it:
            status, told = await it.post("/completion", ASKED | {"context_shift": True})
            assert (status, told["error"]["param"]) == (400, "context_shift")
            assert (await answer(it))["tokens_predicted"] < 128

    asyncio.run(scene())
