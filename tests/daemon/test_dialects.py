"""The dialects byte for byte, as clients that parse by hand read them."""

from __future__ import annotations

import asyncio
import json
import time
from datetime import datetime
from typing import Any

import encoders
import msgspec
import pytest

from localspec.config import Config
from localspec.wire.messages import Delta, Finished, SpeculationReport, Started
from localspec.wire.values import CallDelta, Timings, Usage
from localspec_daemon.api import anthropic, ollama, responses
from localspec_daemon.api.dialect import Answer, Caller, Dialect
from localspec_daemon.supervisor.worker import COMMAND

FINISHED = Finished(
    "x", "stop", Usage(10, 5, 4), Timings(4, 6, 60.0, 10.0, 100.0, 5, 50.0, 10.0, 100.0),
    SpeculationReport("speculating", "coupled", 2, 7, 3, {}, 0.1, 0.2, 0.3, 0.4), seed=11,
)  # fmt: skip
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
    """Returns a response and its whole text."""
    async with it.http.post(path, json=body) as response:
        return response, (await response.read()).decode()


@pytest.mark.parametrize("name", STREAMS)
def test_every_frame_is_one_line_of_compact_json(harness: Any, daemon: Any, name: str) -> None:
    """In every dialect: no compression, no split character, no blank after a colon."""
    path, body = STREAMS[name]

    async def scene() -> None:
        async with daemon(harness) as it:
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
    harness: Any, daemon: Any, name: str
) -> None:
    """Before the first byte an error has its status, for streams too; afterwards it is a frame."""
    path, body = STREAMS[name]
    failing = json.loads(json.dumps(body).replace("say ", "fail "))
    crashing = json.loads(json.dumps(body).replace("say ", "crash "))

    async def scene() -> None:
        async with daemon(harness) as it:
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
    """Checks the shape of a dialect's error and returns its sentence."""
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


def test_wrong_paths_and_methods_name_what_is_right(harness: Any, daemon: Any) -> None:
    """404 and 405 in the dialect's shape, with `Allow`; a HEAD is a GET without its body."""

    async def scene() -> None:
        async with daemon(harness) as it:
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
    harness: Any, daemon: Any
) -> None:
    """`response_fields` as editors use them; no blank follows the colon."""

    async def scene() -> None:
        async with daemon(harness) as it:
            fields = ["content", "timings/prompt_n", "nowhere/at/all"]
            body = {"prompt": ["say a b"], "response_fields": fields}
            async with it.http.post("/completion", json=body) as response:
                assert await response.read() == b'{"content":"ab","timings/prompt_n":8}'
            status, answers = await it.post("/completion", {"prompt": ["say a", "say b c"]})
            assert status == 200
            assert [one["content"] for one in answers] == ["a", "bc"]
            assert answers[1]["stop_type"] == "eos"
            assert answers[1]["timings"]["predicted_n"] == 2

    asyncio.run(scene())


def test_a_model_is_loaded_and_let_go_by_bodies_without_text(harness: Any, daemon: Any) -> None:
    """Ollama's clients load a model by an empty body and unload it by `keep_alive` 0."""

    async def scene() -> None:
        async with daemon(harness) as it:
            status, answer = await it.post("/api/generate", {"model": "alpha"})
            assert (status, answer["done_reason"]) == (200, "load")
            assert it.model().state == "ready"
            status, answer = await it.post("/api/chat", {"model": "alpha", "keep_alive": "0s"})
            assert (status, answer["done_reason"]) == (200, "unload")
            assert (await it.get("/api/ps"))["models"] == []
            for stream in (False, True):
                last = OLLAMA | {"stream": stream, "keep_alive": 0}
                async with it.http.post("/api/chat", json=last) as response:
                    assert '"done":true' in await response.text()
                await it.until(lambda: "alpha" not in it.server.supervisor.pool.models)
            assert (await it.get("/api/version"))["version"].count(".") == 2

    asyncio.run(scene())


def test_a_model_stays_as_long_as_was_last_said(harness: Any, daemon: Any) -> None:
    """keep_alive is a span, seconds or for ever; without it nothing changes, nonsense is 400."""
    harness.configure(server={"keep_alive": "10m"})

    async def scene() -> None:
        async with daemon(harness, tick_seconds=3600) as it:
            pool = it.server.supervisor.pool

            async def stays(keep_alive: object) -> float:
                said = {} if keep_alive is None else {"keep_alive": keep_alive}
                assert (await it.post("/api/chat", OLLAMA | {"stream": False} | said))[0] == 200
                (shown,) = (await it.get("/api/ps"))["models"]
                left = datetime.fromisoformat(shown["expires_at"]).timestamp() - time.time()
                return round(left, -1)

            assert [await stays(said) for said in (None, "1h", None, 90, "30m", 40.5)] == [
                600, 3600, 3600, 90, 1800, 40,
            ]  # fmt: skip
            for said in (-1, "-1m", "-1"):
                assert await stays(said) > 9 * 365 * 86_400
            pool.tick(asyncio.get_running_loop().time() + 10**6)
            assert it.model().resident
            assert await stays("20s") == 20
            pool.tick(asyncio.get_running_loop().time() + 21)
            await it.until(lambda: not it.model().resident)
            for nonsense in ("soon", True, [1], {"a": 1}, "1e999", "NaN", 10**400):
                status, answer = await it.post("/api/chat", OLLAMA | {"keep_alive": nonsense})
                assert (status, "keep_alive" in answer["error"]) == (400, True)

    asyncio.run(scene())


def test_an_encoder_stays_as_long_as_was_last_said(harness: Any, daemon: Any) -> None:
    """Both embedding endpoints take keep_alive; 0 unloads, nonsense is 400."""
    encoders.bert(harness.models / "encoder.gguf")
    harness.configure(server={"keep_alive": "10m"})

    async def scene() -> None:
        async with daemon(harness, COMMAND, tick_seconds=3600) as it:
            for path, field in (("/api/embed", "input"), ("/api/embeddings", "prompt")):
                asked = {"model": "encoder:latest", field: "abc"}
                for said, seconds in (({}, 600), ({"keep_alive": "1h"}, 3600), ({}, 3600)):
                    assert (await it.post(path, asked | said))[0] == 200
                    (shown,) = (await it.get("/api/ps"))["models"]
                    left = datetime.fromisoformat(shown["expires_at"]).timestamp() - time.time()
                    assert round(left, -1) == seconds
                status, answer = await it.post(path, asked | {"keep_alive": "soon"})
                assert (status, "keep_alive" in answer["error"]) == (400, True)
                assert (await it.post(path, asked | {"keep_alive": 0}))[0] == 200
                await it.until(lambda: "encoder" not in it.server.supervisor.pool.models)

    asyncio.run(scene())


def test_ollamas_lists_tell_what_a_name_tells(harness: Any, daemon: Any) -> None:
    """Lists show size and quantization read from the name, if it has them."""
    harness.add("some-1.5b-instruct-q4_k_m")

    async def scene() -> None:
        async with daemon(harness) as it:
            told = {each["name"]: each["details"] for each in (await it.get("/api/tags"))["models"]}
            fields = ("parameter_size", "quantization_level")
            assert [told["some-1.5b-instruct-q4_k_m"][field] for field in fields] == [
                "1.5B", "Q4_K_M",
            ]  # fmt: skip
            assert [told["alpha"][field] for field in fields] == ["", ""]

    asyncio.run(scene())


def test_changes_of_models_are_told_as_they_happen(harness: Any, daemon: Any) -> None:
    """The events begin with the present state; then comes each change, also of a draft's load."""
    harness.add("little")
    (harness.models / "drafts.json").write_text('{"alpha":"little"}')

    async def scene() -> None:
        async with daemon(harness) as it, it.http.get("/models/sse") as response:
            told: list[Any] = []
            greeted = asyncio.Event()

            async def listen() -> None:
                async for line in response.content:
                    if line.startswith(b"data: "):
                        told.append(json.loads(line[6:]))
                        if len(told) == 2:
                            greeted.set()
                        if told[-1]["data"]["status"] == "loaded":
                            return

            listening = asyncio.create_task(listen())
            await asyncio.wait_for(greeted.wait(), 20)
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


CALLED = (
    Started("x", 10, 4),
    Delta("x", "", [1], reasoning="hm"),
    Delta("x", "ok", [2]),
    Delta("x", "", [3], calls=[CallDelta(0, "c1", "add"), CallDelta(0, arguments='{"a":')]),
    Delta("x", "", [4], calls=[CallDelta(0, arguments="1}"), CallDelta(1, "c2", "now")]),
    Delta("x", "", [5], calls=[CallDelta(1, arguments="{}")]),
)


def spoken(dialect: Dialect, body: Any) -> tuple[list[Any], Any]:
    """Returns the stream's objects and the whole answer for thoughts, a word and two calls."""
    asked = dialect.read(msgspec.json.encode(body), Config(), Caller("uid:1"))
    reply, answer = dialect.reply(asked, "m"), Answer()
    frames = list(reply.begin(CALLED[0]))
    for event in CALLED:
        answer.take(event)
        if isinstance(event, Delta):
            frames += reply.delta(0, event)
    finished = msgspec.structs.replace(FINISHED, tool_calls=2)
    answer.take(finished)
    frames += [*reply.finish(0, finished), *reply.end()]
    return frames, dialect.reply(asked, "m").whole([answer])


def test_messages_have_a_block_for_each_thing_that_is_said() -> None:
    """Thoughts, text and calls keep their order; pieces of arguments join to one object."""
    frames, whole = spoken(anthropic.MESSAGES, MESSAGE)
    blocks: list[Any] = []
    for frame in frames:
        if frame["type"] == "content_block_start":
            assert frame["index"] == len(blocks)
            blocks.append([frame["content_block"]["type"], ""])
        elif frame["type"] == "content_block_delta":
            delta = frame["delta"]
            said = [one for name, one in delta.items() if name != "type"]
            blocks[frame["index"]][1] += said[0]
    assert blocks == [
        ["thinking", "hm"], ["text", "ok"], ["tool_use", '{"a":1}'], ["tool_use", "{}"]
    ]  # fmt: skip
    starts = [frame for frame in frames if frame["type"] == "content_block_start"]
    stops = [frame for frame in frames if frame["type"] == "content_block_stop"]
    assert len(starts) == len(stops) == 4
    assert frames[-2]["delta"]["stop_reason"] == whole["stop_reason"] == "tool_use"
    assert [block["type"] for block in whole["content"]] == [kind for kind, _ in blocks]
    assert whole["content"][2] == {
        "type": "tool_use", "id": "c1", "name": "add", "input": {"a": 1}
    }  # fmt: skip
    assert frames[0]["message"]["id"].startswith("msg_")
    assert whole["id"].startswith("msg_")


def test_responses_have_an_item_for_each_thing_that_is_said() -> None:
    """An item is added, grows and is done before the next; the last event has them all."""
    frames, whole = spoken(responses.RESPONSES, RESPONSE)
    assert [frame["sequence_number"] for frame in frames] == list(range(len(frames)))
    added = [one for one in frames if one["type"] == "response.output_item.added"]
    done = [one for one in frames if one["type"] == "response.output_item.done"]
    kinds = ["reasoning", "message", "function_call", "function_call"]
    assert [one["item"]["type"] for one in added] == kinds
    assert [one["item"] for one in done] == whole["output"] == frames[-1]["response"]["output"]
    assert [one["output_index"] for one in done] == [0, 1, 2, 3]
    assert frames[0]["response"]["id"].startswith("resp_")
    assert whole["id"].startswith("resp_")
    call = whole["output"][2]
    assert (call["call_id"], call["name"], call["arguments"]) == ("c1", "add", '{"a":1}')
    assert (frames[-1]["type"], whole["status"]) == ("response.completed", "completed")


def test_a_function_of_a_namespace_is_called_by_both_names() -> None:
    """The model sees a flat name; Codex, which needs the namespace, gets it back."""
    inner = {"type": "function", "name": "add", "parameters": {"type": "object"}}
    space = {"type": "namespace", "name": "sums", "tools": [inner]}
    named = {"type": "function", "name": "add", "namespace": "sums"}
    call = {**named, "type": "function_call", "call_id": "c", "arguments": "{}"}
    body = {**RESPONSE, "tools": [inner, space], "tool_choice": named, "input": [call]}
    one = responses.RESPONSES.read(msgspec.json.encode(body), Config(), Caller("uid:1"))
    (asked,) = one.generates
    assert [tool["function"]["name"] for tool in asked.tools or ()] == ["add", "sums__add"]
    assert asked.tool_choice == {"type": "function", "function": {"name": "sums__add"}}
    assert asked.messages
    (turn,) = asked.messages
    assert turn.extra["tool_calls"][0]["function"]["name"] == "sums__add"
    reply, said = responses.RESPONSES.reply(one, "m"), Delta("x", "", [])
    for name in ("add", "sums__add"):
        said.calls.append(CallDelta(len(said.calls), name, name, "{}"))
    frames = [*reply.delta(0, said), *reply.finish(0, FINISHED)]
    done = [one["item"] for one in frames if one["type"] == "response.output_item.done"]
    assert [(one["name"], one.get("namespace")) for one in done] == [("add", None), ("add", "sums")]
    assert done == frames[-1]["response"]["output"]


def test_thoughts_before_a_call_stay_with_it() -> None:
    """A message of the model and the call behind it are one message, thoughts included."""
    thought = {"type": "thinking", "thinking": "hmm", "signature": "x"}
    items = [
        {
            "type": "message",
            "role": "assistant",
            "content": [thought, {"type": "output_text", "text": "a"}],
        },
        {"type": "function_call", "call_id": "c", "name": "now", "arguments": "{}"},
    ]
    read = responses.RESPONSES.read(
        msgspec.json.encode({**RESPONSE, "input": items}), Config(), Caller("uid:1")
    )
    messages = read.generates[0].messages
    assert messages
    (turn,) = messages
    assert (turn.content, turn.extra["reasoning_content"]) == ("a", "hmm")
    assert turn.extra["tool_calls"][0]["id"] == "c"


def test_a_conversation_that_began_elsewhere_goes_on_here() -> None:
    """Calls of custom tools become function calls; another server's own calls are left out."""
    items = [
        {"type": "web_search_call", "id": "w", "status": "completed"},
        {"type": "custom_tool_call", "call_id": "c", "name": "patch", "input": 'a"b'},
        {"type": "custom_tool_call_output", "call_id": "c", "output": "done"},
    ]
    body = msgspec.json.encode({"input": items})
    (asked,) = responses.RESPONSES.read(body, Config(), Caller("uid:1")).generates
    assert asked.messages
    call, result = asked.messages
    function = call.extra["tool_calls"][0]["function"]
    assert (function["name"], json.loads(function["arguments"])) == ("patch", {"input": 'a"b'})
    assert (result.role, result.content, result.extra["tool_call_id"]) == ("tool", "done", "c")


def test_ollama_is_told_thoughts_apart_and_calls_whole() -> None:
    """Arguments are objects, in lines and in one piece."""
    frames, whole = spoken(ollama.CHAT, OLLAMA)
    calls = [
        {"function": {"name": "add", "arguments": {"a": 1}}},
        {"function": {"name": "now", "arguments": {}}},
    ]
    assert whole["message"] == {
        "role": "assistant", "content": "ok", "thinking": "hm", "tool_calls": calls
    }  # fmt: skip
    assert [frame["message"].get("thinking") for frame in frames] == ["hm", None, None, None]
    assert frames[-2]["message"]["tool_calls"] == calls
    assert [frame["done"] for frame in frames] == [False, False, False, True]
