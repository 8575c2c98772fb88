"""litellm: its OpenAI provider by both doors, its Anthropic and Ollama ones over TCP."""

from __future__ import annotations

import asyncio
import importlib
import json
from collections.abc import Callable, Iterator
from typing import Any

import openai
import pytest
from clients import asking

pytestmark = pytest.mark.filterwarnings("ignore")  # its own, of what it takes from pydantic

USER = [{"role": "user", "content": asking.HELLO}]
WHICH = [{"role": "user", "content": asking.WHICH}]
Complete = Callable[..., Any]


@pytest.fixture(scope="module")
def litellm() -> Iterator[Any]:
    """The module, of seconds and 200 MB, with a loop: it takes the thread's and would leave one.

    It would also fetch prices while it is imported.
    """
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")
        yield importlib.import_module("litellm")
    asyncio.set_event_loop(None)
    loop.close()


@pytest.fixture
def complete(litellm: Any, served: Any, door: str, openai_client: openai.OpenAI) -> Complete:
    """Its one function."""

    def completed(model: str = "", **fields: Any) -> Any:
        return litellm.completion(
            **{
                "model": f"openai/{model or served.model}",
                "messages": USER,
                "temperature": 0,
                "api_base": f"{served.base(door)}/v1",
                "api_key": served.token,
                "client": openai_client,
                "max_retries": 0,
            }
            | fields
        )

    return completed


@asking.ON_BOTH
def test_words_come_whole_and_streamed(complete: Complete, served: Any) -> None:
    """The same, with the usage of both."""
    whole = complete()
    text = whole.choices[0].message.content
    assert served.hello in text
    chunks = [*complete(stream=True, stream_options={"include_usage": True})]
    texts = [chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices]
    assert "".join(texts) == text
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens


@asking.ON_BOTH
def test_a_tool_is_called_and_an_object_has_its_shape(complete: Complete, served: Any) -> None:
    """The result of the call is read as well; the shape is that of a class."""
    message = complete(tools=[asking.TOOL], messages=WHICH).choices[0].message
    (call,) = message.tool_calls
    assert call.function.name == "guess"
    assert json.loads(call.function.arguments) == {"word": "left"}
    result = {"role": "tool", "tool_call_id": call.id, "content": "it was left"}
    answer = complete(messages=[*WHICH, message, result])
    assert served.result in answer.choices[0].message.content
    shaped = complete(response_format=asking.Side)
    asking.Side.model_validate_json(shaped.choices[0].message.content)


@asking.ON_BOTH
def test_failures_raise_and_leaving_cancels(complete: Complete, litellm: Any, served: Any) -> None:
    """Errors are its own; closing a stream closes the connection."""
    with pytest.raises(litellm.NotFoundError):
        complete("nobody")
    with pytest.raises(litellm.ContextWindowExceededError):
        complete(messages=[{"role": "user", "content": "word " * served.context}])
    before = served.cancelled()
    stream = complete(messages=[{"role": "user", "content": asking.FOR_EVER}], stream=True)
    assert next(text for chunk in stream if (text := chunk.choices[0].delta.content))
    stream.completion_stream.close()
    served.until(lambda: served.cancelled() == before + 1)


@asking.ON_BOTH
@pytest.mark.parametrize("provider", ["anthropic", "ollama_chat"])
def test_other_dialects_give_the_same_answer(litellm: Any, served: Any, provider: str) -> None:
    """Whole, streamed and with a tool."""
    asked = {
        "model": f"{provider}/{served.model}",
        "messages": USER,
        "api_base": served.url,
        "api_key": served.token,
        "max_tokens": 50,
        "temperature": 0,
    }
    text = litellm.completion(**asked).choices[0].message.content
    assert served.hello in text
    chunks = litellm.completion(**asked, stream=True)
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == text
    tools = {"tools": [asking.TOOL], "messages": WHICH}
    called = litellm.completion(**asked | tools).choices[0].message
    assert called.tool_calls[0].function.name == "guess"
