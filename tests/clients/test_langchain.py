"""langchain-openai: messages, streams, tools, structured output, errors, a stream left early."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import openai
import pytest
from clients import asking
from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI

Make = Callable[..., ChatOpenAI]


@pytest.fixture
def make(served: Any, door: str, openai_client: openai.OpenAI) -> Make:
    """Its chat models, of any name and parameters."""

    def made(model: str = served.model, **fields: Any) -> ChatOpenAI:
        return ChatOpenAI(
            model=model,
            base_url=f"{served.base(door)}/v1",
            api_key=served.token,
            http_client=openai_client._client,  # noqa: SLF001 - it goes through the door
            max_retries=0,
            **{"temperature": 0} | fields,
        )

    return made


@asking.ON_BOTH
def test_words_come_whole_and_streamed_with_their_usage(make: Make, served: Any) -> None:
    """The same."""
    chat = make(stream_usage=True)
    whole = chat.invoke(asking.HELLO)
    assert served.hello in whole.content
    streamed: Any = None
    for chunk in chat.stream(asking.HELLO):
        streamed = chunk if streamed is None else streamed + chunk
    assert streamed.content == whole.content
    assert whole.usage_metadata
    assert streamed.usage_metadata["output_tokens"] == whole.usage_metadata["output_tokens"]


@asking.ON_BOTH
def test_a_tool_is_called_and_its_result_is_read(make: Make, served: Any) -> None:
    """As the model likes, and by name; whole and in a stream."""
    guess = tool(asking.guess)
    chat = make().bind_tools([guess])
    question = HumanMessage(asking.WHICH)
    asked = chat.invoke([question])
    (call,) = asked.tool_calls
    assert (call["name"], call["args"]) == ("guess", {"word": "left"})
    result = ToolMessage(guess.invoke(call["args"]), tool_call_id=call["id"])
    assert served.result in make().invoke([question, asked, result]).content
    stream: Any = chat.stream([question])
    chunks = [chunk.tool_call_chunks for chunk in stream]
    arguments = "".join(part["args"] or "" for parts in chunks for part in parts)
    assert json.loads(arguments) == {"word": "left"}
    named = make().bind_tools([asking.TOOL], tool_choice="guess").invoke([question])
    assert named.tool_calls[0]["args"]["word"] in {"left", "right"}


@asking.ON_BOTH
@pytest.mark.parametrize("method", ["json_schema", "function_calling"])
def test_an_object_has_its_shape(make: Make, method: Any) -> None:
    """By a format and by a function."""
    side = make().with_structured_output(asking.Side, method=method).invoke(asking.WHICH)
    assert isinstance(side, asking.Side)


@asking.ON_BOTH
def test_failures_raise_and_leaving_cancels(make: Make, served: Any) -> None:
    """OpenAI's errors; closing a generator closes the connection."""
    with pytest.raises(openai.NotFoundError):
        make("nobody").invoke(asking.HELLO)
    with pytest.raises(openai.BadRequestError, match="temperature"):
        make(temperature=-1).invoke(asking.HELLO)
    before = served.cancelled()
    stream: Any = make().stream(asking.FOR_EVER)
    assert next(chunk for chunk in stream if chunk.content)
    stream.close()
    served.until(lambda: served.cancelled() == before + 1)
