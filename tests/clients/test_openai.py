"""OpenAI's own client: chat, completions, Responses, models, errors."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest
from clients import asking

USER: Any = [{"role": "user", "content": "def add(a, b):"}]


@pytest.fixture
def client(openai_client: openai.OpenAI) -> openai.OpenAI:
    """The client."""
    return openai_client


def test_a_stream_equals_the_whole_answer_and_has_usage(client: openai.OpenAI) -> None:
    """The same seed, the same text; several choices side by side; the id comes back."""
    asked: Any = {"model": "gpt-4o", "messages": USER, "max_tokens": 12, "seed": 7, "n": 2}
    whole = client.chat.completions.with_raw_response.create(
        **asked, extra_headers={"X-Request-Id": "mine"}
    )
    assert whole.headers["x-request-id"] == "mine"
    answer = whole.parse()
    assert answer.model == "alpha"
    options: Any = {"stream": True, "stream_options": {"include_usage": True}}
    texts = ["", ""]
    usage = None
    for chunk in client.chat.completions.create(**asked, **options):
        for choice in chunk.choices:
            texts[choice.index] += choice.delta.content or ""
        usage = chunk.usage or usage
    assert [choice.message.content for choice in answer.choices] == texts
    assert texts[0] != texts[1]
    assert usage
    assert usage.completion_tokens == answer.usage.completion_tokens == 24


@asking.ON_BOTH
def test_every_token_has_logprobs(client: openai.OpenAI, served: Any) -> None:
    """In both shapes, and the first alternative is the greedy token."""
    chat = client.chat.completions.create(
        model=served.model,
        messages=USER,
        max_tokens=6,
        temperature=0,
        logprobs=True,
        top_logprobs=2,
    )
    told = chat.choices[0].logprobs
    assert told
    assert told.content
    assert len(told.content) <= 6
    for one in told.content:
        assert one.top_logprobs[0].logprob == one.logprob
        assert one.bytes == list(one.token.encode()) or "�" in one.token
    plain = client.completions.create(
        model=served.model, prompt="abc\n", max_tokens=4, temperature=0, logprobs=2
    )
    logs = plain.choices[0].logprobs
    assert logs
    assert logs.text_offset
    assert logs.text_offset[0] == 0
    assert len(logs.tokens or ()) == len(logs.token_logprobs or ())


def test_an_echo_has_logprobs_like_the_answer(client: openai.OpenAI) -> None:
    """Whole and as a stream: one entry per token with its offset, none for the first."""
    asked: Any = {"model": "alpha", "prompt": "abc", "max_tokens": 3, "seed": 1}
    asked |= {"echo": True, "logprobs": 1, "logit_bias": {"100": 100}}  # "d", whatever it thinks
    whole = client.completions.create(**asked).choices[0]
    assert whole.text == "abcddd"
    assert whole.logprobs
    assert "".join(whole.logprobs.tokens or ()) == whole.text
    assert whole.logprobs.text_offset == [0, 1, 2, 3, 4, 5]
    logs = whole.logprobs.token_logprobs or []
    assert logs[0] is None
    assert all(log < 0 for log in logs[1:])
    chunks = [chunk.choices[0] for chunk in client.completions.create(**asked, stream=True)]
    streamed = [chunk.logprobs for chunk in chunks if chunk.logprobs]
    assert [place for one in streamed for place in one.text_offset or ()] == [0, 1, 2, 3, 4, 5]
    assert next(log for one in streamed for log in one.token_logprobs or ()) is None


@asking.ON_BOTH
def test_completions_of_several_prompts_come_in_their_order(client: openai.OpenAI) -> None:
    """Each begins with its echo; nothing follows where no token was wanted."""
    answer = client.completions.create(
        model="", prompt=["abc", "xyz"], max_tokens=0, echo=True, extra_body={"best_of": 1}
    )
    assert [choice.text for choice in answer.choices] == ["abc", "xyz"]
    assert {choice.finish_reason for choice in answer.choices} == {"length"}


@asking.ON_BOTH
def test_responses_stream_in_the_order_of_the_clients_types(
    client: openai.OpenAI, served: Any
) -> None:
    """Whole and as a stream, with instructions and parts; the text is the same."""
    asked: Any = {
        "model": served.model,
        "instructions": "Be brief.",
        "input": [{"role": "user", "content": [{"type": "input_text", "text": asking.HELLO}]}],
        "max_output_tokens": 8,
        "temperature": 0,
        "store": False,
    }
    whole = client.responses.create(**asked)
    with client.responses.stream(**asked) as stream:
        events = list(stream)
    final: Any = events[-1].response  # type: ignore[union-attr]
    names = [event.type for event in events]
    assert names[:4] == [
        "response.created", "response.in_progress", "response.output_item.added",
        "response.content_part.added",
    ]  # fmt: skip
    assert names[-4:] == [
        "response.output_text.done", "response.content_part.done", "response.output_item.done",
        f"response.{final.status}",
    ]  # fmt: skip
    assert [event.sequence_number for event in events] == sorted(
        {event.sequence_number for event in events}
    )
    assert final.output[0].content[0].text == whole.output_text
    assert whole.usage
    assert final.usage.total_tokens == whole.usage.total_tokens
    with pytest.raises(openai.BadRequestError, match="previous_response_id"):
        client.responses.create(**asked, previous_response_id="resp-1")


@asking.ON_BOTH
def test_a_function_is_called_whole_and_in_a_stream(client: openai.OpenAI, served: Any) -> None:
    """By its name; a prediction changes nothing."""
    asked: Any = {
        "model": served.model,
        "messages": [{"role": "user", "content": asking.WHICH}],
        "tools": [asking.TOOL],
        "tool_choice": {"type": "function", "function": {"name": "guess"}},
        "prediction": {"type": "content", "content": '{"word": "left"}'},
        "temperature": 0,
    }
    whole: Any = client.chat.completions.create(**asked).choices[0]
    assert whole.finish_reason == "tool_calls"
    (call,) = whole.message.tool_calls
    assert json.loads(call.function.arguments) == {"word": "left"}
    with client.chat.completions.stream(**asked) as stream:
        final = stream.get_final_completion().choices[0]
    assert final.finish_reason == "tool_calls"
    assert final.message.tool_calls
    assert json.loads(final.message.tool_calls[0].function.arguments) == {"word": "left"}


@asking.ON_BOTH
def test_relaxed_schema_keys_are_reported(client: openai.OpenAI, served: Any) -> None:
    """In a header, whole and streamed; a strict schema is never relaxed."""
    schema: Any = {"type": "array", "items": {"type": "boolean"}, "uniqueItems": True}

    def asked(*, stream: bool, strict: bool = False) -> Any:
        shape: Any = {"name": "x", "schema": schema, "strict": strict}
        return client.chat.completions.with_raw_response.create(
            model=served.model,
            messages=USER,
            max_tokens=20,
            stream=stream,
            response_format={"type": "json_schema", "json_schema": shape},
        )

    for stream in (False, True):
        assert asked(stream=stream).headers["X-LocalSpec-Relaxed"] == "uniqueItems"
    with pytest.raises(openai.BadRequestError, match="uniqueItems"):
        asked(stream=False, strict=True)
    del schema["uniqueItems"]
    assert "X-LocalSpec-Relaxed" not in asked(stream=False).headers


@asking.ON_BOTH
def test_failures_are_the_clients_exceptions(client: openai.OpenAI, served: Any, door: str) -> None:
    """Unknown models, fields, lengths, and a wrong key where one is needed."""
    with pytest.raises(openai.NotFoundError):
        client.chat.completions.create(model="nobody", messages=USER)
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model=served.model, messages=USER, temperature=-1)
    assert caught.value.param == "temperature"
    long: Any = [{"role": "user", "content": "word " * served.context}]
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model=served.model, messages=long, stream=True)
    assert caught.value.code == "context_length_exceeded"
    with pytest.raises(openai.BadRequestError, match="embeddings"):
        client.embeddings.create(model=served.model, input="x")
    if door == "tcp":
        with pytest.raises(openai.AuthenticationError) as refused:
            client.with_options(api_key="wrong").models.list()
        assert refused.value.code == "invalid_api_key"
    assert served.model in [model.id for model in client.models.list()]


@asking.ON_BOTH
def test_a_stream_that_is_closed_frees_its_slot(client: openai.OpenAI, served: Any) -> None:
    """More of them than there are slots, and the next request is answered."""
    for _ in range(4):
        stream = client.chat.completions.create(
            model=served.model, messages=USER, stream=True, extra_body={"ignore_eos": True}
        )
        next(iter(stream))
        stream.close()
    answer = client.chat.completions.create(model=served.model, messages=USER, max_tokens=1)
    assert answer.usage


def test_embeddings_are_the_same_in_every_form(client: openai.OpenAI) -> None:
    """One text or several, text or tokens, numbers or Base64; any model name."""
    asked: Any = {"model": "text-embedding-3-small", "input": ["abc", "a longer text"]}
    found = client.embeddings.create(**asked, encoding_format="float")
    packed = client.embeddings.create(**asked)  # which this client asks for in Base64
    assert [one.index for one in found.data] == [0, 1]
    assert found.model == packed.model == "encoder"
    assert found.usage.prompt_tokens == found.usage.total_tokens == 16
    for one, other in zip(found.data, packed.data, strict=True):
        assert one.embedding == pytest.approx(other.embedding, abs=1e-4)
        assert sum(number**2 for number in one.embedding) == pytest.approx(1, abs=1e-4)
    tokens = client.embeddings.create(model="encoder", input=[97, 98, 99], dimensions=8).data[0]
    assert len(tokens.embedding) == 8
    scale = tokens.embedding[0] / found.data[0].embedding[0]
    kept = [number * scale for number in found.data[0].embedding[:8]]
    assert tokens.embedding == pytest.approx(kept, abs=1e-3)
    with pytest.raises(openai.BadRequestError, match="gives no embeddings"):
        client.embeddings.create(model="alpha", input="abc")
    with pytest.raises(openai.BadRequestError, match="dimensions"):
        client.embeddings.create(model="encoder", input="abc", dimensions=10_000)
