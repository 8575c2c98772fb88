"""Ollama's own client: chat, generate, models, what is fetched and deleted, errors."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import httpx
import ollama
import pytest
from clients import asking

USER: Any = [{"role": "user", "content": "def add(a, b):"}]
SHORT: Any = {"num_predict": 8, "temperature": 0}


@pytest.fixture
def client(served: Any, door: str) -> Iterator[ollama.Client]:
    """The client, which still is one of httpx 1."""
    transport = httpx.HTTPTransport(uds=served.socket if door == "socket" else None)
    headers = {"Authorization": f"Bearer {served.token}"}
    with ollama.Client(served.base(door), headers=headers, transport=transport) as client:
        yield client


@asking.ON_BOTH
def test_a_stream_is_the_whole_answer(client: ollama.Client, served: Any) -> None:
    """Line by line, the last with the counts; chat and generate of one turn are the same."""
    whole = client.chat(served.model, USER, options=SHORT)
    lines = list(client.chat(served.model, USER, options=SHORT, stream=True))
    assert "".join(line.message.content or "" for line in lines) == whole.message.content
    assert [line.done for line in lines] == [False] * (len(lines) - 1) + [True]
    assert lines[-1].eval_count == whole.eval_count
    assert lines[-1].prompt_eval_count
    assert lines[-1].total_duration
    generated = client.generate(served.model, "def add(a, b):", options=SHORT)
    assert generated.response == whole.message.content
    raw = client.generate(served.model, "def add(a, b):", raw=True, options=SHORT)
    assert (raw.prompt_eval_count or 0) < (generated.prompt_eval_count or 0)


@asking.ON_BOTH
def test_an_answer_follows_its_format(client: ollama.Client, served: Any) -> None:
    """A schema is kept."""
    ok = {"type": "boolean"}
    schema: Any = {"type": "object", "properties": {"ok": ok}, "required": ["ok"]}
    schema["additionalProperties"] = False
    answer = client.chat(served.model, USER, format=schema, options={"temperature": 0})
    assert json.loads(answer.message.content or "")["ok"] in {True, False}


@asking.ON_BOTH
def test_a_tool_is_called_and_its_result_is_read(client: ollama.Client, served: Any) -> None:
    """A function of Python's is offered, as this client does; whole and in a stream."""
    asked: Any = [{"role": "user", "content": asking.WHICH}]
    options: Any = {"temperature": 0, "num_predict": 60}
    whole = client.chat(served.model, asked, tools=[asking.guess], options=options).message
    (call,) = whole.tool_calls or ()
    assert (call.function.name, call.function.arguments) == ("guess", {"word": "left"})
    lines = client.chat(served.model, asked, tools=[asking.guess], options=options, stream=True)
    assert [one for line in lines for one in line.message.tool_calls or ()] == [call]
    result = {"role": "tool", "tool_name": "guess", "content": asking.guess("left")}
    told = client.chat(served.model, [*asked, whole, result], options=options)
    assert served.result in (told.message.content or "")


@asking.ON_BOTH
def test_a_stream_that_is_left_is_a_request_that_ends(client: ollama.Client, served: Any) -> None:
    """A generator that is closed closes its connection."""
    before = served.cancelled()
    lines: Any = client.generate(served.model, asking.FOR_EVER, stream=True)
    assert next(line.response for line in lines if line.response)
    lines.close()
    served.until(lambda: served.cancelled() == before + 1)


@asking.ON_BOTH
def test_models_are_listed_shown_and_loaded(client: ollama.Client, served: Any) -> None:
    """By their names, with the tag that clients add or without."""
    assert served.model in [model.model for model in client.list().models]
    assert client.generate(served.model, "").done_reason == "load"
    assert served.model in [model.model for model in client.ps().models]
    shown = client.show(f"{served.model}:latest")
    assert shown.capabilities == ["completion", "tools", "insert"]
    assert shown.modelinfo
    assert shown.modelinfo[f"{shown.modelinfo['general.architecture']}.context_length"] >= 4096
    assert client.pull(served.model).status == "success"
    assert [line.status for line in client.pull(served.model, stream=True)][-1] == "success"


def test_a_models_capabilities_are_shown(client: ollama.Client) -> None:
    """Neither tools nor insertion for a file without them; embedding for an encoder."""
    assert client.show("alpha").capabilities == ["completion"]
    assert [model.model for model in client.list().models] == ["alpha", "beta", "encoder", "ranker"]


@asking.ON_BOTH
def test_unsupported_requests_name_the_alternative(client: ollama.Client, served: Any) -> None:
    """Pull and delete are refused; errors are one sentence."""
    for call, words in (
        (lambda: client.pull("nobody-has-this"), "localspec models pull nobody-has-this"),
        (lambda: client.delete(served.model), f"localspec models remove {served.model}"),
        (lambda: client.embed(served.model, "x"), "embeddings"),
        (lambda: client.chat("nobody", USER), "no model"),
        (lambda: client.chat(served.model, USER, options={"temperature": -1}), "temperature"),
    ):
        with pytest.raises(ollama.ResponseError, match=words) as caught:
            call()
        assert caught.value.status_code in {400, 404}


def test_embeddings_come_one_by_one_and_together(client: ollama.Client) -> None:
    """Of the same direction; what is too long is cut unless that is refused."""
    together = client.embed(model="encoder", input=["abc", "a" * 1000]).embeddings
    alone = client.embeddings(model="encoder", prompt="abc").embedding
    assert [len(one) for one in together] == [len(alone)] * 2
    length = sum(number**2 for number in alone) ** 0.5
    assert list(together[0]) == pytest.approx([number / length for number in alone], abs=1e-4)
    with pytest.raises(ollama.ResponseError, match="tokens"):
        client.embed(model="encoder", input="a" * 1000, truncate=False)
    with pytest.raises(ollama.ResponseError, match="gives no embeddings"):
        client.embed(model="alpha", input="abc")
