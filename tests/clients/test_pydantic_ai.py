"""pydantic-ai: an agent with a tool, answers with a shape, streams, errors, a run left early."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import httpx2
import openai
import pytest
from clients import asking
from pydantic_ai import Agent, NativeOutput
from pydantic_ai.exceptions import ModelHTTPError
from pydantic_ai.messages import ModelMessage, ToolReturnPart
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

Scene = Callable[[Callable[..., Agent[None, Any]]], Coroutine[Any, Any, None]]
Play = Callable[[Scene], None]


@pytest.fixture
def play(served: Any, door: str) -> Play:
    """Runs a scene with what makes agents, all on one client of one loop."""

    async def played(scene: Scene) -> None:
        transport = httpx2.AsyncHTTPTransport(uds=served.socket if door == "socket" else None)
        async with openai.AsyncOpenAI(
            base_url=f"{served.base(door)}/v1",
            api_key=served.token,
            max_retries=0,
            http_client=openai.DefaultAsyncHttpxClient(transport=transport),
        ) as client:
            provider = OpenAIProvider(openai_client=client)

            def agent(name: str = served.model, **fields: Any) -> Agent[None, Any]:
                model = OpenAIChatModel(name, provider=provider)
                return Agent(model, model_settings={"temperature": 0}, **fields)

            await scene(agent)

    return lambda scene: asyncio.run(played(scene))


def returned(messages: list[ModelMessage]) -> list[str]:
    """Results of tools in these messages."""
    parts = [part for message in messages for part in message.parts]
    return [str(part.content) for part in parts if isinstance(part, ToolReturnPart)]


@asking.ON_BOTH
def test_an_agents_tool_is_called_and_its_result_goes_back(play: Play) -> None:
    """In a run and in a stream; the model's comment on it is not tested."""

    async def scene(agent: Any) -> None:
        one = agent(tools=[asking.guess])
        result = await one.run(asking.WHICH)
        assert returned(result.all_messages())[0].startswith("it was")
        assert result.usage.requests >= 2
        async with one.run_stream(asking.WHICH) as stream:
            assert [text async for text in stream.stream_text()][-1]
            assert returned(stream.all_messages())[0].startswith("it was")

    play(scene)


def test_an_agent_answers_after_its_tool(play: Play, served: Any) -> None:
    """In a run and in a stream, with the usage of both requests."""

    async def scene(agent: Any) -> None:
        one = agent(tools=[asking.guess])
        result = await one.run(asking.WHICH)
        assert served.result in result.output
        assert result.usage.requests == 2
        async with one.run_stream(asking.WHICH) as stream:
            assert served.result in [text async for text in stream.stream_text()][-1]

    play(scene)


@asking.ON_BOTH
@pytest.mark.parametrize("output", [asking.Side, NativeOutput(asking.Side)])
def test_an_answer_has_its_shape(play: Play, output: Any) -> None:
    """By a function that it must call, and by a schema."""

    async def scene(agent: Any) -> None:
        shaped = await agent(output_type=output).run(asking.WHICH)
        assert isinstance(shaped.output, asking.Side)

    play(scene)


@asking.ON_BOTH
def test_failures_raise_and_leaving_cancels(play: Play, served: Any) -> None:
    """The exception has the status; cancelling a run cancels the request."""
    before = served.cancelled()

    async def scene(agent: Any) -> None:
        with pytest.raises(ModelHTTPError) as caught:
            await agent("nobody").run(asking.HELLO)
        assert caught.value.status_code == 404
        running = asyncio.create_task(agent().run(asking.FOR_EVER))
        await asyncio.to_thread(served.until, served.busy)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running

    play(scene)
    served.until(lambda: served.cancelled() == before + 1)
