"""Calls of every family through real clients: a real model writes them, a client gets them.

A model that knows one record by heart, behind its family's own template, is asked by each client as
a person's program asks it: whole, as a stream, and once more with the call and its result in the
history, which the template has to render, and to which the model says a sentence.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import anthropic
import httpx2
import ollama
import openai
import pytest
import scripted_model
import templates
from clients.conftest import Served, daemon
from langchain_openai import ChatOpenAI
from pydantic_ai import Agent, Tool, direct
from pydantic_ai.messages import ModelRequest
from pydantic_ai.models import ModelRequestParameters
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider
from pydantic_ai.tools import ToolDefinition

from localspec.wire.messages import Message

Record = dict[str, Any]
Calls = list[tuple[str, Any]]

USER: Any = [{"role": "user", "content": "Please help."}]
RESULT = "№7·№9"
SAID = "Zwölf Möwen."
"""A result and an answer to it, in tokens that no record has."""
DAILY = ("gpt-oss", "gemma4", "qwen3.5", "mistral")
"""Families of every `make test`; the others take minutes, and are asked by `make clients`."""


def _records() -> list[Record]:
    """One record with a call for each template, without variables where there is such a one."""
    found: dict[tuple[str, str], Record] = {}
    for one in sorted(templates.records(), key=lambda one: bool(one.get("variables"))):
        if one["calls"] and one["ends"] == "stop":
            found.setdefault((one["family"], one["template"] or ""), one)
    return list(found.values())


def _parameters() -> Iterator[Any]:
    daily = set(DAILY)
    for one in _records():
        marks = () if one["family"] in daily else (pytest.mark.clients,)
        daily.discard(one["family"])
        yield pytest.param(one, id=one["id"], marks=marks)


def name_of(record: Record) -> str:
    """The name of the model that knows a record."""
    return "".join(char if char.isalnum() else "-" for char in record["id"])


@pytest.fixture(scope="module")
def families(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[Served]:
    """A daemon with a model for each record that is asked."""
    folder = tmp_path_factory.mktemp("families")
    items: Any = request.session.items
    asked = [item.callspec.params["record"] for item in items
             if getattr(item, "callspec", None) and "record" in item.callspec.params]  # fmt: skip
    models = {name_of(one): one for one in asked}
    files = [_model(folder, name, one) for name, one in models.items()]
    with daemon(tmp_path_factory.mktemp("f"), *map(str, files)) as served:
        yield served


def _model(folder: Path, name: str, record: Record) -> Path:
    template = templates.template_of(record)
    request = templates.chat(
        [Message("user", "Please help.")],
        record["tools"],
        template_kwargs=record.get("variables") or {},
    )
    turn, form = templates.dialogue(template).turn(request), templates.dialogue(template).format
    ends = form.thoughts[0].closing if turn.offer.thinking else ""
    source = template.read_text(encoding="utf-8") + scripted_model.turns(RESULT, ends + "\t")
    head = form.heads.says if form.heads else ""
    answers = {turn.prompt: record["emitted"], "\t": head + SAID}
    return scripted_model.turning(folder / f"{name}.gguf", source, answers)


@pytest.mark.parametrize("record", [*_parameters()])
def test_a_familys_calls_arrive(record: Record, families: Served) -> None:
    """By name and value, without marks; with the call and its result behind it, once more."""
    name, more = name_of(record), {}
    if record.get("variables"):
        more = {"chat_template_kwargs": record["variables"]}
    with ExitStack() as stack:
        asked = _openai(families, stack)
        _whole_and_streamed(asked, name, record, more)
        _langchain(families, asked, name, record, more)
        asyncio.run(_pydantic_ai(families, name, record, more))
        if not more:  # the other interfaces have no field for them
            _anthropic(families, stack, name, record)
        _ollama(families, name, record, known=not more)


def wanted(record: Record) -> Calls:
    """The record's calls."""
    return [(one["name"], one["arguments"]) for one in record["calls"]]


def offered(record: Record) -> list[Any]:
    """Its functions, as OpenAI's API has them."""
    return [{"type": "function", "function": one} for one in record["tools"]]


def _openai(families: Served, stack: ExitStack) -> openai.OpenAI:
    return stack.enter_context(
        openai.OpenAI(
            base_url=f"{families.url}/v1",
            api_key=families.token,
            max_retries=0,
            http_client=openai.DefaultHttpxClient(transport=httpx2.HTTPTransport()),
        )
    )


def _whole_and_streamed(client: openai.OpenAI, name: str, record: Record, more: Any) -> None:
    asked: Any = {"model": name, "tools": offered(record), "extra_body": more, "temperature": 0}
    whole = client.chat.completions.create(messages=USER, **asked).choices[0]
    calls = whole.message.tool_calls or []
    assert [(one.function.name, json.loads(one.function.arguments)) for one in calls] == wanted(
        record
    )
    assert whole.finish_reason == "tool_calls"
    assert (whole.message.content or "").strip() == record["content"]
    thought = getattr(whole.message, "reasoning_content", None) or ""
    assert thought.strip() == record["reasoning"]
    with client.chat.completions.stream(messages=USER, **asked) as stream:
        final = stream.get_final_completion().choices[0]
    streamed = final.message.tool_calls or []
    assert [(one.function.name, one.function.arguments) for one in streamed] == [
        (one.function.name, one.function.arguments) for one in calls
    ]
    assert (final.message.content or "") == (whole.message.content or "")
    results = [{"role": "tool", "tool_call_id": one.id, "content": RESULT} for one in calls]
    history: Any = [*USER, whole.message.model_dump(exclude_none=True), *results]
    again = client.chat.completions.create(messages=history, **asked)
    assert again.choices[0].message.content == SAID


def _langchain(
    families: Served, client: openai.OpenAI, name: str, record: Record, more: Any
) -> None:
    of_its_own: Any = client._client  # noqa: SLF001 - one of httpx 2
    token: Any = families.token
    chat = ChatOpenAI(
        model=name, base_url=f"{families.url}/v1", api_key=token, temperature=0,
        http_client=of_its_own, max_retries=0, extra_body=more,
    )  # fmt: skip
    answer: Any = chat.bind_tools(offered(record)).invoke("Please help.")
    assert [(one["name"], one["args"]) for one in answer.tool_calls] == wanted(record)
    assert not answer.invalid_tool_calls


async def _pydantic_ai(families: Served, name: str, record: Record, more: Any) -> None:
    """A request with definitions of tools, and an agent that runs them and answers.

    It makes every function strict whose schema allows that, which each record has.
    """
    http = openai.DefaultAsyncHttpxClient(transport=httpx2.AsyncHTTPTransport())
    async with openai.AsyncOpenAI(
        base_url=f"{families.url}/v1", api_key=families.token, max_retries=0, http_client=http
    ) as client:
        model = OpenAIChatModel(name, provider=OpenAIProvider(openai_client=client))
        settings: Any = {"temperature": 0, "extra_body": more}
        shown = [
            ToolDefinition(
                name=one["name"],
                description=one.get("description"),
                parameters_json_schema=one["parameters"],
            )
            for one in record["tools"]
        ]
        answer = await direct.model_request(
            model,
            [ModelRequest.user_text_prompt("Please help.")],
            model_settings=settings,
            model_request_parameters=ModelRequestParameters(function_tools=shown),
        )
        assert [(one.tool_name, one.args_as_dict()) for one in answer.tool_calls] == wanted(record)
        assert (answer.text or "").strip() == record["content"]
        assert answer.finish_reason == "tool_call"
        made: Calls = []
        agent = Agent(model, tools=_recorded(record, made), model_settings=settings)
        done = await agent.run("Please help.")
    assert sorted(map(str, made)) == sorted(map(str, wanted(record)))  # it runs them side by side
    assert done.output == SAID
    assert done.usage.requests == 2


def _recorded(record: Record, made: Calls) -> list[Tool[None]]:
    """The functions of a record, which note each call in `made`."""

    def tool(one: Any) -> Tool[None]:
        def run(**arguments: Any) -> str:
            made.append((one["name"], arguments))
            return RESULT

        return Tool.from_schema(run, one["name"], one.get("description"), one["parameters"])

    return [tool(one) for one in record["tools"]]


def _anthropic(families: Served, stack: ExitStack, name: str, record: Record) -> None:
    client = stack.enter_context(
        anthropic.Anthropic(base_url=families.url, api_key=families.token, max_retries=0)
    )
    tools: Any = [
        {"name": one["name"], "description": one.get("description", ""),
         "input_schema": one["parameters"]}
        for one in record["tools"]
    ]  # fmt: skip
    asked: Any = {"model": name, "max_tokens": 2000, "tools": tools}
    asked["extra_body"] = {"temperature": 0}
    whole = client.messages.create(messages=USER, **asked)
    with client.messages.stream(messages=USER, **asked) as stream:
        streamed = stream.get_final_message()
    for one in (whole, streamed):
        blocks: Any = [block for block in one.content if block.type == "tool_use"]
        assert [(block.name, block.input) for block in blocks] == wanted(record)
        assert one.stop_reason == "tool_use"
    results = [
        {"type": "tool_result", "tool_use_id": block.id, "content": RESULT} for block in blocks
    ]
    said = {"role": "assistant", "content": [block.model_dump() for block in whole.content]}
    history: Any = [*USER, said, {"role": "user", "content": results}]
    again: Any = client.messages.create(messages=history, **asked)
    assert [block.text for block in again.content if block.type == "text"] == [SAID]


def _ollama(families: Served, name: str, record: Record, *, known: bool) -> None:
    headers = {"Authorization": f"Bearer {families.token}"}
    with ollama.Client(families.url, headers=headers) as client:
        if known:
            answer = client.chat(name, USER, tools=offered(record), options={"temperature": 0})
            calls = answer.message.tool_calls or []
            found = [(one.function.name, dict(one.function.arguments)) for one in calls]
            assert found == wanted(record)
            results = [{"role": "tool", "tool_name": call, "content": RESULT} for call, _ in found]
            history: Any = [*USER, answer.message, *results]
            assert client.chat(name, history, tools=offered(record)).message.content == SAID
        client.generate(name, keep_alive=0)  # its worker ends
