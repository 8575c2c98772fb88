"""The dialects on the wire, byte for byte: what clients that parse by hand look for."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

CHAT: Any = {"messages": [{"role": "user", "content": "say é b"}], "stream": True}
OLLAMA: Any = {"model": "alpha", **CHAT}
RESPONSE: Any = {"input": "say é b", "stream": True}
MESSAGE: Any = {"max_tokens": 9, **CHAT}
PLAIN: Any = {"prompt": "say é b", "stream": True}
STREAMS: dict[str, tuple[str, Any]] = {
    "chat": ("/v1/chat/completions", CHAT),
    "chat without v1": ("/chat/completions", CHAT),
    "completion": ("/v1/completions", PLAIN),
    "llama-server": ("/completion", PLAIN),
    "responses": ("/v1/responses", RESPONSE),
    "messages": ("/v1/messages", MESSAGE),
    "ollama chat": ("/api/chat", OLLAMA),
    "ollama generate": ("/api/generate", {"model": "alpha", **PLAIN}),
}


async def streamed(it: Any, path: str, body: Any) -> tuple[Any, str]:
    """A response and its whole text."""
    async with it.http.post(path, json=body) as response:
        return response, (await response.read()).decode()


@pytest.mark.parametrize("name", STREAMS)
def test_every_frame_is_one_line_of_compact_json(house: Any, daemon: Any, name: str) -> None:
    """Whatever the dialect: nothing is compressed, no character cut, no blank after a colon."""
    path, body = STREAMS[name]

    async def scene() -> None:
        async with daemon(house) as it:
            response, text = await streamed(it, path, body)
            assert response.status == 200, text
            assert "Content-Encoding" not in response.headers
            assert response.headers["X-Request-Id"].startswith("req-")
            lines = [line for line in text.split("\n") if line and not line.startswith(":")]
            data = [line.removeprefix("data: ") for line in lines if not line.startswith("event:")]
            assert any("é" in one for one in data)
            for one in data:
                if one != "[DONE]":
                    value = json.loads(one)
                    assert one == json.dumps(value, separators=(",", ":"), ensure_ascii=False)
            whole = await it.post(path, body | {"stream": False})
            assert "éb" in json.dumps(whole[1], ensure_ascii=False)

    asyncio.run(scene())


@pytest.mark.parametrize("name", STREAMS)
def test_errors_have_the_shape_of_the_dialect_that_asked(
    house: Any, daemon: Any, name: str
) -> None:
    """Before the first byte with their status, for streams too; afterwards as a frame."""
    path, body = STREAMS[name]
    failing = json.loads(json.dumps(body).replace("say ", "fail "))
    crashing = json.loads(json.dumps(body).replace("say ", "crash "))

    async def scene() -> None:
        async with daemon(house) as it:
            await it.ask("say hello")
            response, text = await streamed(it, path, failing)
            assert response.status == 400
            shown = shape(path, json.loads(text))
            assert "too long" in shown
            response, text = await streamed(it, path, crashing)
            assert response.status == 200
            last = text.strip().split("\n")[-1].removeprefix("data: ")
            assert "SIGSEGV" in shape(path, json.loads(last))
            assert "[DONE]" not in text
            if path.startswith(("/v1/messages", "/v1/responses")):
                assert "event: error\n" in text

    asyncio.run(scene())


def shape(path: str, value: Any) -> str:
    """The sentence of an error of that dialect, its shape being right."""
    if path.startswith("/api/"):
        assert list(value) == ["error"]
        return str(value["error"])
    if path.startswith("/v1/messages"):
        assert value["type"] == "error"
        assert value["error"]["type"] in {"invalid_request_error", "api_error", "not_found_error"}
    elif value.get("type") != "error":
        assert json.dumps(value).startswith('{"error": {"message"')
        assert {"message", "type", "param", "code"} <= set(value["error"])
    return str(value["error"]["message"])


def test_wrong_paths_and_methods_name_what_is_right(house: Any, daemon: Any) -> None:
    """404 and 405 in the dialect's shape, with `Allow`; a HEAD is a GET without its body."""

    async def scene() -> None:
        async with daemon(house) as it:
            for method, path, status, allow in (
                ("GET", "/v1/messages", 405, "POST"),
                ("PUT", "/api/tags", 405, "GET, HEAD"),
                ("GET", "/completion", 405, "POST"),
                ("POST", "/api/delete", 405, "DELETE"),
                ("POST", "/api/nowhere", 404, None),
                ("GET", "/v1/messages/nowhere", 404, None),
                ("GET", "/v1/nowhere", 404, None),
            ):
                async with it.http.request(method, path) as response:
                    assert (response.status, response.headers.get("Allow")) == (status, allow)
                    shape(path, json.loads(await response.read()))
            async with it.http.head("/") as response:
                assert (response.status, await response.read()) == (200, b"")
            headers = {"anthropic-version": "2023-06-01"}
            async with it.http.get("/v1/models/nobody", headers=headers) as response:
                assert json.loads(await response.read())["error"]["type"] == "not_found_error"

    asyncio.run(scene())


def test_the_fields_that_a_caller_chooses_come_out_of_their_objects(
    house: Any, daemon: Any
) -> None:
    """`response_fields` as editors use them; the colon has no blank behind it."""

    async def scene() -> None:
        async with daemon(house) as it:
            fields = ["content", "timings/prompt_n", "nowhere/at/all"]
            body = {"prompt": ["say a b"], "response_fields": fields}
            async with it.http.post("/completion", json=body) as response:
                assert await response.read() == b'{"content":"ab","prompt_n":8}'
            status, answers = await it.post("/completion", {"prompt": ["say a", "say b c"]})
            assert status == 200
            assert [one["content"] for one in answers] == ["a", "bc"]
            assert answers[1]["stop_type"] == "eos"
            assert answers[1]["timings"]["predicted_n"] == 2

    asyncio.run(scene())


def test_a_model_is_loaded_and_let_go_by_bodies_without_text(house: Any, daemon: Any) -> None:
    """As Ollama's clients do it; `keep_alive` 0 is the end."""

    async def scene() -> None:
        async with daemon(house) as it:
            status, answer = await it.post("/api/generate", {"model": "alpha"})
            assert (status, answer["done_reason"]) == (200, "load")
            assert it.model().state == "ready"
            status, answer = await it.post("/api/chat", {"model": "alpha", "keep_alive": "0s"})
            assert (status, answer["done_reason"]) == (200, "unload")
            assert (await it.get("/api/ps"))["models"] == []
            assert (await it.get("/api/version"))["version"].count(".") == 2

    asyncio.run(scene())


def test_changes_of_models_are_told_as_they_happen(house: Any, daemon: Any) -> None:
    """First how they are, then each change, with the draft as a stage of its own."""
    house.add("little")
    (house.models / "drafts.json").write_text('{"alpha":"little"}')

    async def scene() -> None:
        async with daemon(house) as it, it.http.get("/models/sse") as response:
            told: list[Any] = []

            async def listen() -> None:
                async for line in response.content:
                    if line.startswith(b"data: "):
                        told.append(json.loads(line[6:]))
                        if told[-1]["data"]["status"] == "loaded":
                            return

            listening = asyncio.create_task(listen())
            await it.ask("say hi")
            await asyncio.wait_for(listening, 20)
            assert [one["data"]["status"] for one in told[:2]] == ["unloaded", "unloaded"]
            assert {one["event"] for one in told} == {"model_status"}
            assert told[-1] == {
                "model": "alpha", "event": "model_status", "data": {"status": "loaded"}
            }  # fmt: skip
            listed = (await it.get("/v1/models"))["data"]
            assert [(one["id"], one["role"]) for one in listed] == [
                ("alpha", "target"), ("little", "draft"),
            ]  # fmt: skip
            props = await it.get("/props")
            assert props["default_generation_settings"]["n_ctx"] == 8192
            assert [slot["is_processing"] for slot in await it.get("/slots")] == [False] * 4

    asyncio.run(scene())
