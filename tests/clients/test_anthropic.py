"""Anthropic's own client: messages, whole and as streams, counting, errors."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import anthropic
import httpx2
import pytest
from clients import asking

GREEDY: Any = {"extra_body": {"temperature": 0}}
"""The client's own signature has no temperature any more."""
USER: Any = [{"role": "user", "content": "def add(a, b):"}]


@pytest.fixture
def client(
    served: Any, door: str, transport: httpx2.HTTPTransport
) -> Iterator[anthropic.Anthropic]:
    """The client, which sends its key as x-api-key."""
    with anthropic.Anthropic(
        base_url=served.base(door),
        api_key=served.token,
        max_retries=0,
        http_client=anthropic.DefaultHttpxClient(transport=transport),
    ) as client:
        yield client


@asking.ON_BOTH
def test_a_stream_is_the_whole_message(client: anthropic.Anthropic) -> None:
    """System blocks, prefill, counts; an agent's line that differs each time changes nothing."""
    asked: Any = {
        "model": "claude-local",
        "max_tokens": 8,
        **GREEDY,
        "messages": [*USER, {"role": "assistant", "content": "return"}],
    }
    systems: Any = [
        [
            {"type": "text", "text": f"x-anthropic-billing-header: cch={count}"},
            {"type": "text", "text": "Be brief."},
        ]
        for count in range(2)
    ]
    whole = client.messages.create(**asked, system=systems[0])
    with client.messages.stream(**asked, system=systems[1]) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    block = whole.content[0]
    assert block.type == "text"
    assert block.text == text == final.content[0].text  # type: ignore[union-attr]
    assert whole.stop_reason == final.stop_reason
    assert final.usage.output_tokens == whole.usage.output_tokens
    assert final.usage.cache_read_input_tokens
    counted = client.messages.count_tokens(
        model="claude-local", messages=asked["messages"], system="Be brief."
    )
    assert counted.input_tokens == whole.usage.input_tokens + (
        whole.usage.cache_read_input_tokens or 0
    )


@asking.ON_BOTH
def test_a_stop_sequence_is_reported(client: anthropic.Anthropic, served: Any) -> None:
    """By its text; the token limit is another reason."""
    asked: Any = {"model": served.model, "messages": USER, "max_tokens": 30} | GREEDY
    whole = client.messages.create(**asked)
    text = whole.content[0].text
    stop = next(char for char in text[2:] if char.isprintable() and not char.isspace())
    cut = client.messages.create(**asked, stop_sequences=[stop])
    assert (cut.stop_reason, cut.stop_sequence) == ("stop_sequence", stop)
    assert cut.content[0].text == text[: text.index(stop)]


@asking.ON_BOTH
def test_an_object_follows_its_schema(client: anthropic.Anthropic, served: Any) -> None:
    """As the client sends a schema; `strict` of a tool is accepted."""
    ok = {"type": "boolean"}
    schema: Any = {"type": "object", "properties": {"ok": ok}, "required": ["ok"]}
    schema["additionalProperties"] = False
    tool: Any = {"name": "f", "input_schema": schema, "strict": True}
    answer = client.messages.create(
        model=served.model,
        max_tokens=40,
        messages=USER,
        tools=[tool],
        tool_choice={"type": "none"},
        output_config={"format": {"type": "json_schema", "schema": schema}},
    )
    [block] = answer.content
    assert block.type == "text"
    assert json.loads(block.text)["ok"] in {True, False}


@asking.ON_BOTH
def test_the_results_of_tools_are_turns(client: anthropic.Anthropic, served: Any) -> None:
    """Calls and results in the history are read; what is no text is refused by its place."""
    history: Any = [
        *USER,
        {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": "t1", "name": "f", "input": {"a": 1}}],
        },
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "t1",
                    "content": [{"type": "text", "text": "42"}],
                }
            ],
        },
    ]
    answer = client.messages.create(model=served.model, max_tokens=2, messages=history)
    assert answer.usage.output_tokens
    image: Any = [{"role": "user", "content": [{"type": "image", "source": {}}]}]
    with pytest.raises(anthropic.BadRequestError, match=r"messages\[0\]\.content\[0\]"):
        client.messages.create(model=served.model, max_tokens=2, messages=image)


@asking.ON_BOTH
def test_a_tool_is_called_whole_and_in_a_stream(client: anthropic.Anthropic, served: Any) -> None:
    """By its name; its input comes in parts."""
    function = asking.TOOL["function"]
    tool = {"name": function["name"], "input_schema": function["parameters"]}
    asked: Any = {
        "model": served.model,
        "max_tokens": 100,
        "messages": [{"role": "user", "content": asking.WHICH}],
        "tools": [tool],
        "tool_choice": {"type": "tool", "name": "guess"},
        **GREEDY,
    }
    whole = client.messages.create(**asked)
    with client.messages.stream(**asked) as stream:
        parts = "".join(event.partial_json for event in stream if event.type == "input_json")
        final = stream.get_final_message()
    for message in (whole, final):
        assert message.stop_reason == "tool_use"
        assert [(block.name, block.input) for block in message.content] == [  # type: ignore[union-attr]
            ("guess", {"word": "left"})
        ]
    assert json.loads(parts) == {"word": "left"}


@asking.ON_BOTH
def test_a_stream_that_is_left_is_a_request_that_ends(
    client: anthropic.Anthropic, served: Any
) -> None:
    """In the middle of its text."""
    before = served.cancelled()
    messages: Any = [{"role": "user", "content": asking.FOR_EVER}]
    with client.messages.stream(model=served.model, max_tokens=900, messages=messages) as stream:
        assert next(stream.text_stream)
    served.until(lambda: served.cancelled() == before + 1)


@asking.ON_BOTH
def test_errors_are_anthropics_own(client: anthropic.Anthropic, served: Any, door: str) -> None:
    """404, 400 and 401 with the types of its API; models are listed."""
    with pytest.raises(anthropic.NotFoundError) as caught:
        client.messages.create(model="nobody", max_tokens=2, messages=USER)
    assert caught.value.body["error"]["type"] == "not_found_error"  # type: ignore[index]
    with pytest.raises(anthropic.BadRequestError) as refused:
        client.messages.create(model=served.model, max_tokens=2, messages=[])
    assert refused.value.body["type"] == "error"  # type: ignore[index]
    long: Any = [{"role": "user", "content": "word " * served.context}]
    with pytest.raises(anthropic.BadRequestError, match=r"prompt is too long: \d+ tokens > \d+"):
        client.messages.create(model=served.model, max_tokens=2, messages=long)
    if door == "tcp":
        with pytest.raises(anthropic.AuthenticationError):
            client.with_options(api_key="wrong").messages.create(
                model=served.model, max_tokens=2, messages=USER
            )
    assert served.model in [model.id for model in client.models.list()]
