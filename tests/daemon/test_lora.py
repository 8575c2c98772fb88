"""LoRA adapters end to end: llama-server's endpoints and field, by the real worker."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import tiny

from localspec_daemon.supervisor.worker import COMMAND

PROMPT = "def add(a, b):\n    return a + b\n" * 3
ASKED: dict[str, Any] = {
    "prompt": PROMPT, "n_predict": 16, "temperature": 0, "ignore_eos": True, "return_tokens": True,
}  # fmt: skip


@pytest.fixture
def real(harness: Any, daemon: Any) -> Any:
    """A daemon's directory with a pair and two adapters, one of them in the configuration."""
    (harness.models / "alpha.gguf").unlink()
    tiny.build(harness.models / "alpha.gguf")
    tiny.build(harness.models / "little.gguf", like=0, noise=0.02)
    (harness.models / "drafts.json").write_text('{"alpha":"little"}')
    tiny.lora(harness.models / "beside.gguf", seed=7)
    tiny.lora(harness.root / "named.gguf", seed=8)
    harness.configure(
        engine={"context": 512, "slots": 2, "exactness": "strict"},
        models={"adapters": {"alpha": {str(harness.root / "named.gguf"): 0.5}}},
    )
    return lambda: daemon(harness, COMMAND)


async def tokens(it: Any, **fields: Any) -> list[int]:
    """The tokens of an answer."""
    status, answer = await it.post("/completion", ASKED | fields)
    assert status == 200, answer
    found: list[int] = answer["tokens"]
    return found


def test_scales_by_model_and_by_request(harness: Any, real: Any) -> None:
    """Ids are in the order of the list; a request's scales go before those of the model."""

    async def scene() -> None:
        async with real() as it:
            listed = await it.get("/lora-adapters")
            assert [(each["id"], each["scale"]) for each in listed] == [(0, 0.5), (1, 0.0)]
            assert listed[0]["path"] == str(harness.root / "named.gguf")
            as_loaded = await tokens(it)
            none = await tokens(it, lora=[{"id": 0, "scale": 0.0}])
            both = await tokens(it, lora=[{"id": 0, "scale": 1.0}, {"id": 1, "scale": 1.0}])
            assert as_loaded == await tokens(it, lora=[]) != none
            assert as_loaded == await tokens(it, lora=[{"id": 0, "scale": 0.5}])
            assert len({*map(tuple, (as_loaded, none, both))}) == 3
            for mode in ("off", "always"):
                speculation = {"mode": mode}
                lora = [{"id": 0, "scale": 1.0}, {"id": 1, "scale": 1.0}]
                assert await tokens(it, lora=lora, speculation=speculation) == both
            together = await asyncio.gather(
                *(tokens(it, lora=[{"id": 0, "scale": scale}]) for scale in (0.0, 0.5, 0.0, 0.5))
            )
            assert together == [none, as_loaded, none, as_loaded]

            assert await it.post("/lora-adapters", []) == (200, {"success": True})
            assert await tokens(it) == none
            assert [each["scale"] for each in await it.get("/lora-adapters")] == [0.0, 0.0]
            assert (await it.post("/v1/lora-adapters", [{"id": 0, "scale": 0.5}]))[0] == 200
            assert await tokens(it) == as_loaded
            (found,) = [
                each for each in (await it.get("/v1/status"))["models"] if each["name"] == "alpha"
            ]
            assert [each["scale"] for each in found["adapters"]] == [0.5, 0.0]
            listed = [each["id"] for each in (await it.get("/v1/models"))["data"]]
            assert listed == ["alpha", "little"]

    asyncio.run(scene())


def test_settings_show_the_scales_that_hold(real: Any) -> None:
    """Those of the request, else of POST /lora-adapters, else of the configuration."""

    async def shown(it: Any, **fields: Any) -> list[float]:
        status, answer = await it.post("/completion", ASKED | fields)
        assert status == 200, answer
        lora = answer["generation_settings"]["lora"]
        assert [each["id"] for each in lora] == [0, 1]
        return [each["scale"] for each in lora]

    async def scene() -> None:
        async with real() as it:
            assert await shown(it) == await shown(it, lora=[]) == [0.5, 0.0]
            assert await shown(it, lora=[{"id": 1, "scale": 0.25}]) == [0.0, 0.25]
            assert (await it.post("/lora-adapters", [{"id": 1, "scale": 2.0}]))[0] == 200
            assert await shown(it) == [0.0, 2.0]
            assert await shown(it, lora=[{"id": 0, "scale": 1.0}]) == [1.0, 0.0]
            params = (await it.get("/props"))["default_generation_settings"]["params"]
            assert [each["scale"] for each in params["lora"]] == [0.0, 2.0]
            _, answer = await it.ask("x", max_tokens=1, verbose=True)
            lora = answer["__verbose"]["generation_settings"]["lora"]
            assert [each["scale"] for each in lora] == [0.0, 2.0]

    asyncio.run(scene())


def test_what_is_wrong_is_named(real: Any) -> None:
    """An id that is not there, a scale that is none, a body that is no list."""

    async def scene() -> None:
        async with real() as it:
            for lora in ([{"id": 2, "scale": 1.0}], [{"id": -1, "scale": 1}], [{"scale": 1}],
                         [{"id": 0, "scale": 1e9}], {"id": 0}, [{"id": "0"}], [7]):  # fmt: skip
                status, answer = await it.post("/completion", ASKED | {"lora": lora})
                assert (status, answer["error"]["code"]) == (400, "invalid_request"), lora
                status, answer = await it.post("/lora-adapters", lora)
                assert (status, answer["error"]["code"]) == (400, "invalid_request"), lora
            assert (await it.post("/completion", ASKED))[0] == 200

    asyncio.run(scene())


def test_an_adapter_for_another_model_is_a_sentence_and_mending_it_is_noticed(
    harness: Any, real: Any
) -> None:
    """The model is not loaded without what its configuration says."""
    wrong = tiny.lora(harness.root / "wrong.gguf", width=32)
    good = harness.settings["models"]["adapters"]
    harness.configure(models={"adapters": {"alpha": {str(wrong): 1.0}}})

    async def scene() -> None:
        async with real() as it:
            status, answer = await it.post("/completion", ASKED)
            assert (status, answer["error"]["code"]) == (400, "config_error")
            assert "wrong.gguf is an adapter for another model" in answer["error"]["message"]
            harness.configure(models={"adapters": good})
            await it.server.supervisor.reload(changed=True)
            assert len(await tokens(it)) == 16

    asyncio.run(scene())


def test_scales_and_keep_alive_outlive_the_worker_they_were_set_on(
    harness: Any, daemon: Any
) -> None:
    """Until the daemon ends, or the model has other adapters; keep_alive 0 unloads once."""
    one, other = (tiny.lora(harness.root / f"{seed}.gguf", seed=seed) for seed in (7, 8))
    harness.configure(models={"adapters": {"alpha": {str(one): 1.0}}})

    async def scene() -> None:
        async with daemon(harness) as it:

            async def scales() -> list[float]:
                return [each["scale"] for each in await it.get("/lora-adapters")]

            assert (await it.post("/lora-adapters", [{"id": 0, "scale": 0.25}]))[0] == 200
            await it.post("/api/generate", {"model": "alpha", "keep_alive": "1h"})
            await it.post("/v1/models/unload", {})
            assert (await scales(), it.model().keep_alive_seconds) == ([0.25], 3600)
            harness.configure(engine={"slots": 2})
            await it.server.supervisor.reload(changed=True)
            assert (await scales(), it.model().keep_alive_seconds) == ([0.25], 3600)
            await it.post("/api/generate", {"model": "alpha", "keep_alive": 0})
            assert (await scales(), it.model().keep_alive_seconds) == ([0.25], None)
            harness.configure(models={"adapters": {"alpha": {str(other): 0.5}}})
            await it.server.supervisor.reload(changed=True)
            assert await scales() == [0.5]

    asyncio.run(scene())
