"""Endpoints for editors and dashboards: models, status, metrics, health, errors, raw bytes."""

from __future__ import annotations

import asyncio
import json
import logging
import os
from typing import Any

import aiohttp
import pytest
from prometheus_client.parser import text_string_to_metric_families


def test_every_byte_of_a_stream_is_as_clients_expect_it(harness: Any, daemon: Any) -> None:
    """Compact JSON, one data line per event, usage right before the end, a constant id."""

    async def scene() -> None:
        async with daemon(harness) as it:
            options = {"stream_options": {"include_usage": True}, "return_origins": True}
            body = {"messages": [{"role": "user", "content": "say é b"}], "stream": True} | options
            async with it.http.post("/v1/chat/completions", json=body) as response:
                assert response.status == 200
                assert response.content_type == "text/event-stream"
                assert "Content-Encoding" not in response.headers
                raw = (await response.read()).decode()
            events = [event for event in raw.split("\n\n") if event and not event.startswith(":")]
            assert all(event.startswith("data: ") and "\n" not in event for event in events)
            assert events[-1] == "data: [DONE]"
            chunks = [json.loads(event[6:]) for event in events[:-1]]
            compact = json.dumps(chunks[1], separators=(",", ":"), ensure_ascii=False)
            assert events[1] == "data: " + compact
            assert len({(chunk["id"], chunk["created"]) for chunk in chunks}) == 1
            assert chunks[1]["origins"] == [[1, "lookup"]]
            assert chunks[-1]["choices"] == []
            assert chunks[-1]["usage"]["prompt_tokens_details"] == {"cached_tokens": 2}
            assert chunks[-2]["choices"][0]["finish_reason"] == "stop"
            assert chunks[-2]["speculation"]["sources"]["model"]["accepted"] == 1
            async with it.http.get("/v1/models") as response:
                assert b'": ' not in await response.read()

    asyncio.run(scene())


def test_an_error_before_the_first_event_has_its_own_status(harness: Any, daemon: Any) -> None:
    """Streams too get an HTTP status, if no loading was reported before."""

    async def scene() -> None:
        async with daemon(harness) as it:
            await it.ask("say hello")
            for stream in (False, True):
                status, answer = await it.ask("fail", stream=stream)
                assert status == 400
                assert answer["error"] == {
                    "message": "too long.",
                    "type": "exceed_context_size_error",
                    "param": "messages",
                    "code": "context_length_exceeded",
                    "fix": "Shorten it.",
                    "n_prompt_tokens": 9000,
                    "n_ctx": 8192,
                }

    asyncio.run(scene())


def test_completions_speak_their_own_shape(harness: Any, daemon: Any) -> None:
    """Completions have text instead of messages, whole and as a stream."""

    async def scene() -> None:
        async with daemon(harness) as it:
            status, answer = await it.post("/v1/completions", {"prompt": ["say a b"], "seed": 5})
            assert (status, answer["choices"][0]["text"]) == (200, "ab")
            assert answer["speculation"]["seed"] == 5
            body = {"prompt": "say a b", "stream": True}
            async with it.http.post("/v1/completions", json=body) as response:
                events = (await response.read()).decode().split("\n\n")
            assert json.loads(events[0][6:])["choices"][0]["text"] == "a"

    asyncio.run(scene())


def test_models_are_listed_without_loading_any(harness: Any, daemon: Any) -> None:
    """Models are listed, found by id, suggested for a wrong name, and shown with their state."""
    harness.add("beta:q4")

    async def scene() -> None:
        async with daemon(harness) as it:
            listed = await it.get("/v1/models")
            assert listed["object"] == "list"
            assert {card["id"] for card in listed["data"]} == {"alpha", "beta:q4"}
            assert all(card["owned_by"] == "llamacpp" for card in listed["data"])
            assert {card["status"]["value"] for card in listed["data"]} == {"unloaded"}
            assert await it.get("/models") == listed
            assert (await it.get("/v1/models/beta:q4"))["id"] == "beta:q4"
            assert not it.server.supervisor.pool.models
            for path in ("alhpa", "a/b:c", "..%2f..%2fetc%2fpasswd", "%00", "x" * 3000):
                async with it.http.get(f"/v1/models/{path}") as response:
                    assert response.status == 404
                    error = json.loads(await response.read())["error"]
                    assert error["code"] == "model_not_found"
            status, answer = await it.ask("say hi", model="alhpa")
            assert (status, answer["error"]["param"]) == (404, "model")
            assert "alpha" in answer["error"]["fix"]
            assert (await it.ask("say hi", model=""))[1]["model"] == "alpha"
            card = await it.get("/v1/models/alpha")
            assert (card["status"]["value"], card["meta"]["n_ctx"]) == ("loaded", 8192)

    asyncio.run(scene())


def test_a_model_can_be_loaded_and_unloaded_by_hand(harness: Any, daemon: Any) -> None:
    """A load returns at once; an unload lets open requests finish."""

    async def scene() -> None:
        async with daemon(harness) as it:
            assert (await it.post("/v1/models/load", {}))[1]["status"] == "loading"
            await it.until(lambda: it.model().worker is not None)
            worker = it.model().worker
            async with it.streaming("wait") as stream:
                await stream.next("data: ")
                assert (await it.post("/v1/models/unload", {"model": "alpha"}))[0] == 200
                assert not worker.exited.done()
            exit_ = await asyncio.shield(worker.exited)
            assert exit_.goodbye

    asyncio.run(scene())


def test_the_status_tells_what_each_model_is_and_does(harness: Any, daemon: Any) -> None:
    """The status has the daemon, devices, exactness, drafters, routing, speed and cost by rows."""

    async def scene() -> None:
        async with daemon(harness) as it:
            (before,) = (await it.get("/v1/status"))["models"]
            assert (before["state"], before["default"]) == ("unloaded", True)
            await it.ask("say hello")
            report = await it.get("/v1/status")
            assert report["socket"] == str(harness.socket)
            assert report["uptime_seconds"] >= 0
            assert (report["config_error"], report["loading"]) == (None, None)
            (model,) = report["models"]
            assert (model["state"], model["drafters"]) == ("ready", ["lookup"])
            assert model["devices"][0]["device"] == "CPU"
            assert model["exactness_detail"] == "1, 2 and 4 rows agree"
            assert model["routing"] == {"speculating": 1}
            assert model["cost_ms_by_rows"] == {"1": 20.0, "4": 60.0}
            assert (model["draft_ms"], model["host_ms"]) == ({"model": 4.0}, 0.25)
            assert model["row_multiple"] == 1
            assert model["tokens_per_second"] == 50.0
            assert model["pid"] == it.model().worker.pid

    asyncio.run(scene())


def test_the_status_answers_when_the_models_directory_is_broken(harness: Any, daemon: Any) -> None:
    """The status reports the fault instead of failing."""
    (harness.models / "drafts.json").write_text("{")

    async def scene() -> None:
        async with daemon(harness) as it:
            report = await it.get("/v1/status")
            assert "drafts.json cannot be read" in report["config_error"]
            assert report["models"] == []
            assert (await it.ask("say hi"))[0] == 400
            (harness.models / "drafts.json").unlink()
            assert (await it.ask("say hi"))[0] == 200
            assert (await it.get("/v1/status"))["config_error"] is None

    asyncio.run(scene())


def test_metrics_use_the_names_that_dashboards_know(harness: Any, daemon: Any) -> None:
    """llama-server's counters sum up all finished requests and survive the worker."""

    async def metrics(it: Any) -> dict[tuple[str, ...], float]:
        async with it.http.get("/metrics") as response:
            assert response.content_type == "text/plain"
            text = (await response.read()).decode()
        return {
            (sample.name, *sample.labels.values()): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }

    async def scene() -> None:
        async with daemon(harness) as it:
            empty = await metrics(it)
            assert empty["llamacpp:spec_decode_num_draft_tokens_total",] == 0
            for _ in range(2):
                await it.ask("say a b c")
            await it.ask("crash")
            found = await metrics(it)
            assert found["llamacpp:spec_decode_num_draft_tokens_total",] == 12
            assert found["llamacpp:spec_decode_num_accepted_tokens_total",] == 8
            assert found["llamacpp:spec_decode_num_accepted_tokens_per_pos_total", "0"] == 6
            assert found["llamacpp:tokens_predicted_total",] == 6
            assert found["llamacpp:prompt_tokens_total",] == 16
            assert found["llamacpp:prompt_tokens_cached_total",] == 4
            assert found["llamacpp:requests_processing",] == 0
            assert found["localspec_requests_total", "alpha", "stop"] == 2
            assert found["localspec_requests_total", "alpha", "poisonous"] == 1
            assert found["localspec_drafted_tokens_total", "alpha", "lookup"] == 8

    asyncio.run(scene())


def test_wrong_paths_and_methods_are_errors_of_the_api(harness: Any, daemon: Any) -> None:
    """404 and 405 in the same shape as every other error."""

    async def scene() -> None:
        async with daemon(harness) as it:
            for method, path, status in (
                ("GET", "/nowhere", 404),
                ("GET", "/v1/chat/completions", 405),
                ("DELETE", "/v1/models", 405),
            ):
                async with it.http.request(method, path) as response:
                    assert response.status == status
                    assert (await response.read()).startswith(b'{"error":{"message":')

    asyncio.run(scene())


def test_each_request_is_one_log_line_without_a_word_of_the_prompt(
    harness: Any, daemon: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """A finished, failed, cancelled or crashed request is key=value pairs without its text."""
    caplog.set_level(logging.DEBUG)

    async def scene() -> None:
        async with daemon(harness) as it:
            await it.ask("say CANARY CANARY")
            await it.ask("fail CANARY")
            async with it.streaming("wait CANARY") as stream:
                await stream.next("data: ")
            await it.until(lambda: it.model().requests == 0)
            await it.ask("crash CANARY")
            await it.post("/v1/chat/completions", {"messages": ["CANARY"]})

    asyncio.run(scene())
    lines = [record.getMessage() for record in caplog.records if record.name == "localspec.request"]
    outcomes = [line.split("finish=")[1].split()[0] for line in lines]
    assert outcomes == ["stop", "context_length_exceeded", "cancelled", "poisonous"]
    assert "drafted=6 accepted=4 routing=speculating" in lines[0]
    assert "CANARY" not in caplog.text


def test_many_clients_at_once_are_all_answered_or_told_to_wait(harness: Any, daemon: Any) -> None:
    """In a burst over every limit each client gets an answer or a 429."""
    harness.configure(server={"max_queue": 40}, engine={"slots": 4})

    async def scene() -> None:
        async with daemon(harness) as it:
            await it.ask("say hello")
            connector = aiohttp.UnixConnector(path=str(harness.socket), limit=0)
            async with aiohttp.ClientSession("http://x", connector=connector) as http:

                async def one() -> int:
                    body = {"prompt": "say a b c d"}
                    async with http.post("/v1/completions", json=body) as response:
                        await response.read()
                        return response.status

                statuses = await asyncio.gather(*(one() for _ in range(200)))
            assert set(statuses) <= {200, 429}
            assert statuses.count(200) >= 44
            assert it.model().requests == 0

    asyncio.run(scene())


def test_a_replay_is_answered_whole(harness: Any, daemon: Any) -> None:
    """A replay of a chat or completion runs under the caller's name and counts as a replay."""

    async def scene() -> None:
        async with daemon(harness) as it:
            chat = {"messages": [{"role": "user", "content": "Why?"}], "text": "Because I say so"}
            status, told = await it.post("/v1/replay", chat)
            assert status == 200
            assert told["tokens"] == len(told["gaps"]) == 4
            assert told["after"] == {"pieces": [f"uid:{os.getuid()}", "other"], "gap": 0.25}
            assert told["drafters"]["lookup"]["survives"] == [1] * 4
            status, told = await it.post("/v1/replay", {"prompt": "Why?", "text": ""})
            assert (status, told["tokens"]) == (200, 0)
            async with it.http.get("/metrics") as response:
                assert 'outcome="replayed"} 2.0' in await response.text()

    asyncio.run(scene())


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"prompt": "Why?"}, "text"),
        ({"prompt": "Why?", "text": 7}, "text"),
        ({"text": "Because"}, "prompt"),
        ({"messages": [], "text": "Because"}, "messages"),
    ],
)
def test_a_wrong_replay_is_refused_before_a_worker_sees_it(
    harness: Any, daemon: Any, body: Any, param: str | None
) -> None:
    """The error names the field, and no model is loaded."""

    async def scene() -> None:
        async with daemon(harness) as it:
            status, told = await it.post("/v1/replay", body)
            assert (status, told["error"]["param"]) == (400, param)
            assert (await it.get("/v1/status"))["models"][0]["state"] == "unloaded"

    asyncio.run(scene())


@pytest.mark.parametrize("loose", ["[" * 975 + "]" * 975, str(1 << 70), str(-(1 << 64))])
@pytest.mark.parametrize(
    "field",
    [
        '"chat_template_kwargs": {"x": LOOSE}',
        '"response_format": {"type": "json_object", "schema": {"const": LOOSE}}',
        '"messages": [{"role": "user", "content": "a", "tool_calls": [{"id": LOOSE}]}]',
    ],
)
def test_json_without_end_is_the_clients_error(
    harness: Any, daemon: Any, field: str, loose: str
) -> None:
    """Deep nesting or numbers beyond 64 bits give 400 on every endpoint, and others go on."""

    async def scene() -> None:
        async with daemon(harness) as it:
            body = '{"messages": [{"role": "user", "content": "a"}], ' + field + "}"
            async with it.http.post(
                "/v1/chat/completions",
                data=body.replace("LOOSE", loose),
                headers={"Content-Type": "application/json"},
            ) as response:
                assert response.status == 400
                assert "error" in await response.json()
            assert (await it.ask("say a"))[0] == 200

    asyncio.run(scene())
