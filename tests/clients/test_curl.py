"""curl: what scripts and editors that start it send, by both doors."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from typing import Any

import pytest
from clients import asking

Curl = Callable[..., list[str]]


@pytest.fixture
def curl(served: Any, door: str) -> Curl:
    """A command that posts an object; on the socket without a content type, as scripts do."""
    to = (
        ["--unix-socket", served.socket]
        if door == "socket"
        else ["-H", f"Authorization: Bearer {served.token}", "-H", "Content-Type: application/json"]
    )

    def command(path: str, **body: Any) -> list[str]:
        data = json.dumps({"model": served.model, **body})
        return ["curl", "-sS", "-N", *to, f"{served.base(door)}{path}", "-d", data]

    return command


def answered(command: list[str]) -> str:
    """Output of a command."""
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@asking.ON_BOTH
def test_an_answer_comes_whole_and_as_lines(curl: Curl, served: Any) -> None:
    """A function, an object of a schema and an error too."""
    body: Any = {"messages": [{"role": "user", "content": asking.HELLO}], "temperature": 0}
    path = "/v1/chat/completions"
    whole = json.loads(answered(curl(path, **body)))
    text = whole["choices"][0]["message"]["content"]
    assert served.hello in text
    events = answered(curl(path, **body, stream=True)).strip().split("\n\n")
    assert events.pop() == "data: [DONE]"
    deltas = [json.loads(event.removeprefix("data: "))["choices"] for event in events]
    assert "".join(one[0]["delta"].get("content") or "" for one in deltas if one) == text
    named = {"type": "function", "function": {"name": "guess"}}
    asked = {**body, "messages": [{"role": "user", "content": asking.WHICH}]}
    called = json.loads(answered(curl(path, **asked, tools=[asking.TOOL], tool_choice=named)))
    (call,) = called["choices"][0]["message"]["tool_calls"]
    assert json.loads(call["function"]["arguments"]) == {"word": "left"}
    schema = {"name": "side", "schema": asking.Side.model_json_schema()}
    shape = {"type": "json_schema", "json_schema": schema}
    shaped = json.loads(answered(curl(path, **asked, response_format=shape)))
    asking.Side.model_validate_json(shaped["choices"][0]["message"]["content"])
    refused = json.loads(answered(curl(path, **body | {"temperature": -1})))
    assert refused["error"]["param"] == "temperature"


@asking.ON_BOTH
def test_a_process_that_is_killed_is_a_request_that_ends(curl: Curl, served: Any) -> None:
    """In the middle of a stream."""
    before = served.cancelled()
    messages = [{"role": "user", "content": asking.FOR_EVER}]
    command = curl("/v1/chat/completions", messages=messages, stream=True)
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout
        assert process.stdout.readline().startswith(b"data: ")
        process.kill()
    served.until(lambda: served.cancelled() == before + 1)
