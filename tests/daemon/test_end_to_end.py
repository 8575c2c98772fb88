"""End to end: a client's library, the socket, the supervisor, the real worker, llama.cpp."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Iterator
from typing import Any

import gguf
import httpx2
import msgspec
import numpy as np
import openai
import pytest
import tiny

from localspec.catalog.plan import PROCESS_BYTES
from localspec_daemon.supervisor.worker import COMMAND

TEXT = "def add(a, b):\n    return a + b\n" * 4


@pytest.fixture
def real(harness: Any, daemon: Any) -> Any:
    """A daemon's directory with a small real pair; `daemon(...)` serves it with the real worker."""
    (harness.models / "alpha.gguf").unlink()
    tiny.build(harness.models / "alpha.gguf")
    tiny.build(harness.models / "little.gguf", like=0, noise=0.02)
    (harness.models / "drafts.json").write_text('{"alpha":"little"}')
    harness.configure(engine={"context": 512, "slots": 2, "exactness": "strict"})
    return lambda: daemon(harness, COMMAND)


async def in_thread(function: Any, *arguments: Any) -> Any:
    """Runs a blocking client beside the daemon's loop."""
    return await asyncio.to_thread(function, *arguments)


def openai_client(harness: Any) -> openai.OpenAI:
    """OpenAI's own client on the Unix socket."""
    transport = httpx2.HTTPTransport(uds=str(harness.socket))
    return openai.OpenAI(
        base_url="http://localspec/v1",
        api_key="none",
        max_retries=0,
        http_client=openai.DefaultHttpxClient(transport=transport),
    )


def test_the_openai_client_streams_and_asks_from_the_socket(harness: Any, real: Any) -> None:
    """Stream and whole answer are the same text for the same seed; models are listed."""

    def scene() -> None:
        with openai_client(harness) as client:
            common: Any = {
                "model": "alpha",
                "messages": [{"role": "user", "content": TEXT}],
                "max_tokens": 24,
                "seed": 7,
                "temperature": 0.8,
            }
            chunks = list(
                client.chat.completions.create(
                    **common, stream=True, stream_options={"include_usage": True}
                )
            )
            text = "".join(
                chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices
            )
            whole = client.chat.completions.create(**common)
            assert text
            assert whole.choices[0].message.content == text
            assert chunks[-1].usage is not None
            assert chunks[-1].usage.completion_tokens == 24
            assert chunks[-2].choices[0].finish_reason == "length"
            assert [model.id for model in client.models.list()] == ["alpha", "little"]
            with pytest.raises(openai.NotFoundError):
                client.chat.completions.create(**common | {"model": "nobody"})
            with pytest.raises(openai.BadRequestError):
                client.chat.completions.create(**common | {"messages": []})
            completion = client.completions.create(model="alpha", prompt="def add", max_tokens=4)
            assert completion.usage is not None
            assert completion.usage.completion_tokens == 4

    async def served() -> None:
        async with real():
            await in_thread(scene)

    asyncio.run(served())


def test_the_openai_client_predicts_an_answer(harness: Any, real: Any) -> None:
    """The same text, predicted tokens counted where OpenAI counts them; parts are the same text."""

    def scene() -> None:
        with openai_client(harness) as client:
            common: Any = {
                "model": "alpha",
                "messages": [{"role": "user", "content": TEXT}],
                "max_tokens": 64,
                "temperature": 0,
                "logit_bias": {str(token): 40 for token in range(32, 127)},
            }
            create: Any = client.chat.completions.create
            text = create(**common).choices[0].message.content
            parts = [{"type": "text", "text": text[:20]}, {"type": "text", "text": text[20:]}]
            counts = []
            for content, mode in ((text, "always"), (parts, "always"), (text, "off")):
                answer = create(
                    **common,
                    prediction={"type": "content", "content": content},
                    extra_body={"speculation": {"mode": mode}},
                )
                assert answer.choices[0].message.content == text
                assert answer.usage.completion_tokens == 64
                details = answer.usage.completion_tokens_details
                counts.append(
                    (details.accepted_prediction_tokens, details.rejected_prediction_tokens)
                )
            assert counts[0][0] > 40
            assert counts[1][0] > 40
            assert counts[2] == (0, 0)
            with pytest.raises(openai.BadRequestError, match="prediction"):
                create(**common, prediction={"type": "content", "content": 3})

    async def served() -> None:
        async with real():
            await in_thread(scene)

    asyncio.run(served())


def test_speculation_is_reported_and_changes_nothing(real: Any) -> None:
    """Strict mode, a seed: with both drafters and without, the same text; drafts were accepted."""

    async def scene() -> None:
        async with real() as it:
            fields = {"max_tokens": 48, "seed": 3, "temperature": 0.7, "ignore_eos": True}
            _, on = await it.ask(TEXT, speculation={"mode": "always"}, **fields)
            _, off = await it.ask(TEXT, speculation={"mode": "off"}, **fields)
            assert on["choices"] == off["choices"]
            report = on["speculation"]
            assert 0 < report["accepted"] <= report["drafted"]
            assert on["timings"]["draft_n_accepted"] == report["accepted"]
            assert off["speculation"]["drafted"] == 0
            assert report["seed"] == off["speculation"]["seed"] == 3

    asyncio.run(scene())


def test_a_follow_up_turn_prefills_only_what_is_new(real: Any) -> None:
    """The second turn of a conversation reuses its prefix in the slot."""

    async def scene() -> None:
        async with real() as it:
            _, first = await it.ask(TEXT, max_tokens=4)
            messages = [
                {"role": "user", "content": TEXT},
                {"role": "assistant", "content": first["choices"][0]["message"]["content"]},
                {"role": "user", "content": "more"},
            ]
            body = {"messages": messages, "max_tokens": 4}
            _, second = await it.post("/v1/chat/completions", body)
            assert first["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
            assert second["usage"]["prompt_tokens_details"]["cached_tokens"] > 100

    asyncio.run(scene())


def test_the_origins_of_a_stream_add_up_to_its_text(real: Any) -> None:
    """Each chunk gives each token's length and the drafter that proposed it."""

    async def scene() -> None:
        async with real() as it:
            fields = {"return_origins": True, "max_tokens": 40, "speculation": {"mode": "always"}}
            async with it.streaming(TEXT, **fields) as stream:
                lines = await stream.rest()
            chunks = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
            sources = set()
            for chunk in chunks:
                if text := chunk["choices"][0]["delta"].get("content"):
                    assert sum(length for length, _ in chunk["origins"]) == len(text)
                    sources |= {source for _, source in chunk["origins"]}
            assert "target" in sources
            assert sources <= {"target", "lookup", "model"}

    asyncio.run(scene())


def test_kill_9_of_the_worker_cuts_no_answer(real: Any) -> None:
    """A whole answer and a stream continue on the next worker, with unchanged text."""

    async def scene() -> None:
        async with real() as it:
            asked = {"max_tokens": 400, "ignore_eos": True, "seed": 5, "temperature": 0.8}
            _, calm = await it.ask("tell me", **asked)
            whole = asyncio.create_task(it.ask("tell me", **asked))
            async with it.streaming("tell me", **asked) as stream:
                await stream.next('data: {"id"')
                os.kill(it.model().worker.pid, signal.SIGKILL)
                await stream.next(": going on")
                assert (await stream.rest())[-1] == "data: [DONE]"
            status, answer = await whole
            assert (status, answer["choices"]) == (200, calm["choices"])
            assert answer["usage"]["completion_tokens"] == 400

    asyncio.run(scene())


def test_a_client_that_leaves_frees_its_slot_while_reading_and_while_answering(real: Any) -> None:
    """After long prompts and answers are abandoned, the worker becomes idle and serves others."""

    async def scene() -> None:
        async with real() as it:
            await it.ask("hello", max_tokens=1)
            for prompt, fields in (("x " * 180, {}), ("hello", {"max_tokens": 400})):
                asking = [
                    asyncio.create_task(it.ask(prompt, ignore_eos=True, **fields)) for _ in range(6)
                ]
                await it.until(lambda: it.model().requests == 6)
                for task in asking:
                    task.cancel()
                await it.until(lambda: it.model().requests == 0)
                assert (await it.ask("hello", max_tokens=2))[0] == 200

    asyncio.run(scene())


def chat(**fields: Any) -> bytes:
    """Sends a chat of one word, with these fields."""
    return msgspec.json.encode({"messages": [{"role": "user", "content": "x"}], **fields})


NO_SCHEMA = {"type": "json_schema", "json_schema": {"schema": 3}}
LONG = [{"role": "user", "content": "word " * 2000}]

BAD_BODIES: dict[str, tuple[bytes, int]] = {
    "no json": (b"{", 400),
    "invalid utf-8": (b'{"messages":[{"role":"user","content":"\xff"}]}', 400),
    "a lone surrogate": (b'{"messages":[{"role":"user","content":"\\ud800"}]}', 400),
    "deep nesting": (b"[" * 100_000, 400),
    "empty messages": (chat(messages=[]), 400),
    "an unknown model": (chat(model="../x"), 404),
    "a token out of the vocabulary": (chat(logit_bias={"100000": 1}), 400),
    "an unknown drafter": (chat(speculation={"drafters": ["oracle"]}), 400),
    "a prompt longer than the context": (chat(messages=LONG), 400),
    "variables that the template owns": (chat(chat_template_kwargs={"messages": 1}), 400),
    "a schema that is none": (chat(response_format=NO_SCHEMA), 400),
}


def test_bad_bodies_are_refused_by_the_worker_that_stays(real: Any) -> None:
    """Each has the right status, as a stream or not, and the same process answers afterwards."""

    async def scene() -> None:
        async with real() as it:
            await it.ask("hello", max_tokens=1)
            pid = it.model().worker.pid
            for what, (body, status) in BAD_BODIES.items():
                streamed = body.replace(b"{", b'{"stream":true,', 1)
                for data in (body, streamed):
                    async with it.http.post(
                        "/v1/chat/completions",
                        data=data,
                        headers={"Content-Type": "application/json"},
                    ) as response:
                        answer = await response.read()
                        assert response.status == status, (what, answer)
                        assert answer.startswith(b'{"error":{"message":"'), what
            tokens = {"prompt": [1, 2, 99_999]}
            assert (await it.post("/v1/completions", tokens))[0] == 400
            assert (await it.ask("hello", max_tokens=1))[0] == 200
            assert it.model().worker.pid == pid

    asyncio.run(scene())


SCHEMA = {"type": "nonsense"}
FORM = {"type": "json_schema", "schema": SCHEMA}
HELLO = [{"role": "user", "content": "x"}]
CHATS, LIMITED = "/v1/chat/completions", {"messages": HELLO, "max_tokens": 1}
CALLED: list[tuple[str, dict[str, Any], str]] = [
    (CHATS, {"messages": HELLO, "response_format": NO_SCHEMA}, "response_format"),
    (CHATS, {"messages": HELLO, "json_schema": SCHEMA}, "json_schema"),
    (CHATS, {"messages": HELLO, "guided_regex": "("}, "guided_regex"),
    (CHATS, LIMITED | {"chat_template_kwargs": {"messages": 1}}, "chat_template_kwargs"),
    ("/completion", {"prompt": "x", "grammar": "root"}, "grammar"),
    ("/v1/responses", {"input": "x", "text": {"format": FORM}}, "text.format"),
    ("/v1/responses", {"input": "word " * 2000}, "input"),
    ("/v1/messages", LIMITED | {"output_config": {"format": FORM}}, "output_config.format"),
    ("/v1/messages", LIMITED | {"output_format": FORM}, "output_format"),
]


def test_the_workers_refusal_names_the_field_that_the_client_sent(real: Any) -> None:
    """Each dialect has its own names for what the worker is asked; one choice or several."""

    async def scene() -> None:
        async with real() as it:
            for path, body, param in CALLED:
                status, answer = await it.post(path, body)
                assert (status, answer["error"]["param"]) == (400, param), answer
                inner = {"chat_template_kwargs", "response_format"} - set(body)
                assert not any(name in answer["error"]["message"] for name in inner), answer
            body = {"prompt": "x", "n": 2, "guided_grammar": "root"}
            status, answer = await it.post("/v1/completions", body)
            assert (status, answer["error"]["param"]) == (400, "guided_grammar")

    asyncio.run(scene())


def broken_models(harness: Any) -> Iterator[str]:
    """Returns names of models whose files are broken, each in another way."""
    whole = (harness.models / "alpha.gguf").read_bytes()
    for name, data in {
        "empty": b"",
        "magic": b"FUGG" + whole[4:],
        "cut": whole[: len(whole) // 2],
        "header-cut": whole[:100],
        "counts": whole[:8] + b"\xff" * 16 + whole[24:],
        "noise": np.random.default_rng(0).bytes(4096),
    }.items():
        (harness.models / f"{name}.gguf").write_bytes(data)
        yield name
    writer = gguf.GGUFWriter(harness.models / "strange.gguf", "no-such-architecture")
    writer.add_block_count(1)
    writer.add_tensor("a", np.zeros(32, dtype=np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    yield "strange"


def test_a_file_that_is_no_model_is_refused_and_costs_nobody_anything(
    harness: Any, real: Any
) -> None:
    """It gets 422 with a sentence, and the loaded model answers as before."""

    async def scene() -> None:
        async with real() as it:
            await it.ask("hello", max_tokens=1)
            pid = it.model().worker.pid
            for name in broken_models(harness):
                status, answer = await it.ask("hello", model=name)
                assert (status, answer["error"]["code"]) == (422, "bad_gguf"), (name, answer)
            assert (await it.ask("hello", max_tokens=1))[0] == 200
            assert it.model().worker.pid == pid

    asyncio.run(scene())


def test_a_draft_that_cannot_be_used_costs_its_target_nothing(harness: Any, real: Any) -> None:
    """The target answers with the other drafters, and the status gives the reason."""
    draft = harness.models / "little.gguf"
    draft.write_bytes(draft.read_bytes()[:-4096])

    async def scene() -> None:
        async with real() as it:
            assert (await it.ask("hello", max_tokens=2))[0] == 200
            (told, *_) = (await it.get("/v1/status"))["models"]
            assert "lookup" in told["drafters"]
            assert "model" not in told["drafters"]
            assert told["speculation_off"].startswith("little.gguf cannot be used.")

    asyncio.run(scene())


def test_models_stay_while_there_is_memory_and_the_oldest_leaves(harness: Any, real: Any) -> None:
    """Two of three models fit the bound; the status has their memory and last use."""
    for seed, name in enumerate(("beta", "gamma"), 1):
        tiny.build(harness.models / f"{name}.gguf", seed=seed)

    async def scene() -> None:
        async with real() as it:

            async def pid(name: str) -> int:
                assert (await it.ask("hello", model=name, max_tokens=2))[0] == 200
                return int(it.model(name).worker.pid)

            alpha = await pid("alpha")
            status = await it.get("/v1/status")
            (held,) = [one["memory"]["CPU"] for one in status["models"] if one.get("memory")]
            assert PROCESS_BYTES < held < 4 * PROCESS_BYTES
            host = status["devices"][0]
            assert (host["name"], host["held_bytes"]) == ("CPU", pytest.approx(held, rel=0.1))
            assert 0 < host["free_bytes"] < host["total_bytes"]
            harness.configure(server={"memory_bytes": 5 * held // 2})
            await it.until(lambda: it.server.supervisor.config.server.memory_bytes > 0)
            beta = await pid("beta")
            assert [await pid("alpha"), await pid("beta"), await pid("alpha")] == [
                alpha,
                beta,
                alpha,
            ]
            await pid("gamma")
            assert it.model("gamma").displaced == ["beta"]
            assert await pid("alpha") == alpha
            cards = {card["id"]: card["meta"] for card in (await it.get("/v1/models"))["data"]}
            assert {name for name, meta in cards.items() if "memory" in meta} == {"alpha", "gamma"}
            assert cards["gamma"]["used_at"] < cards["alpha"]["used_at"]
            sizes = {one["name"]: one["size"] for one in (await it.get("/api/ps"))["models"]}
            assert sizes["alpha"] >= PROCESS_BYTES

    asyncio.run(scene())


def test_a_model_larger_than_the_bound_is_refused_with_the_numbers(harness: Any, real: Any) -> None:
    """It is refused at once, before a worker is started."""
    harness.configure(server={"memory_bytes": PROCESS_BYTES})

    async def scene() -> None:
        async with real() as it:
            status, answer = await it.ask("hello")
            assert (status, answer["error"]["code"]) == (507, "out_of_memory")
            assert "alpha does not fit into 75.5 MB of CPU" in answer["error"]["message"]

    asyncio.run(scene())


def test_what_is_found_in_pauses_is_in_the_status_and_a_strict_request_waits_for_it(
    harness: Any, real: Any
) -> None:
    """The first answer claims no exactness; the idle probe's result is in the status."""
    harness.configure(engine={"context": 512, "slots": 2, "exactness": "auto"})

    async def scene() -> None:
        async with real() as it:
            status, first = await it.ask("abc", max_tokens=4)
            assert (status, first["speculation"]["exactness"]) == (200, "standard")
            (before,) = [one for one in (await it.get("/v1/status"))["models"] if "pid" in one]
            status, strict = await it.ask("abc", max_tokens=4, speculation={"exactness": "strict"})
            (after,) = [one for one in (await it.get("/v1/status"))["models"] if "pid" in one]
            assert after["pid"] == before["pid"]
            assert "not checked yet" not in after["exactness_detail"]
            if after["exactness"] == "strict":
                assert (status, strict["speculation"]["exactness"]) == (200, "strict")
            else:
                assert (status, strict["error"]["param"]) == (400, "speculation.exactness")

    asyncio.run(scene())
