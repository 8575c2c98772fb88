"""Simon Willison's llm: its command line, as `localspec connect llm` configures it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import llm
import openai
import pytest
from click.testing import CliRunner, Result
from clients import asking
from llm.cli import cli
from llm.default_plugins.openai_models import Chat

from localspec.cli.connections.agents import RECIPES
from localspec.cli.connections.recipe import Daemon

Run = Callable[..., Result]


@pytest.fixture
def run(
    served: Any, openai_client: openai.OpenAI, own_home: Path, monkeypatch: Any
) -> Iterator[Run]:
    """Its command line in this process, with models that go through the door, and a tool."""

    class Local(Chat):
        needs_key: Any = None

        def get_client(self, key: Any, *, async_: bool = False) -> Any:
            assert (key, async_) == (None, False)
            return openai_client

    class Plugin:
        @llm.hookimpl
        def register_models(self, register: Any) -> None:
            make: Any = Local
            for name in (served.model, "nobody"):
                register(make(name, supports_tools=True, supports_schema=True))

        @llm.hookimpl
        def register_tools(self, register: Any) -> None:
            register(asking.guess)

    plugin = Plugin()
    monkeypatch.setenv("LLM_USER_PATH", str(own_home / "llm"))
    llm.plugins.pm.register(plugin)
    greedy = ("-o", "temperature", "0")
    yield lambda *given: CliRunner().invoke(cli, ["prompt", *greedy, "-m", *given])
    llm.plugins.pm.unregister(plugin)


@asking.ON_BOTH
def test_a_prompt_streams_and_comes_whole(run: Run, served: Any) -> None:
    """The same, with its usage."""
    shown = run(served.model, asking.HELLO, "--usage")
    assert served.hello in shown.stdout
    assert "input" in shown.stderr
    assert run(served.model, asking.HELLO, "--no-stream").stdout == shown.stdout


@asking.ON_BOTH
def test_the_model_calls_a_tool(run: Run, served: Any) -> None:
    """The call is reported. A small real model may repeat it until llm stops it."""
    shown = run(served.model, asking.WHICH, "-T", "guess", "--td")
    assert shown.exit_code == 0, shown.output
    assert "it was left" in shown.stderr


def test_the_answer_follows_a_tools_result(run: Run, served: Any) -> None:
    """The tool's result is part of the next request."""
    assert served.result in run(served.model, asking.WHICH, "-T", "guess").stdout


@asking.ON_BOTH
def test_a_schema_is_kept_and_errors_are_shown(run: Run, served: Any) -> None:
    """In its own shorthand; a refusal is a sentence and exit code 1."""
    found = json.loads(run(served.model, asking.HELLO, "--schema", "sure bool").stdout)
    assert found["sure"] in {True, False}
    refused = run("nobody", asking.HELLO)
    assert refused.exit_code == 1
    assert "404" in refused.output
    assert "temperature" in run(served.model, asking.HELLO, "-o", "temperature", "-1").output


@asking.ON_BOTH
def test_a_process_that_is_interrupted_is_a_request_that_ends(served: Any, own_home: Path) -> None:
    """Configured as `localspec connect llm` writes it; Ctrl-C in the middle of a stream."""
    config = own_home / "llm" / "extra-openai-models.yaml"
    config.parent.mkdir()
    config.write_text(
        RECIPES["llm"].text(Daemon(served.model, served.socket, served.url, served.token))
    )
    before = served.cancelled()
    command = [sys.executable, "-m", "llm", "-m", "localspec", asking.FOR_EVER]
    homes = {"LLM_USER_PATH": str(config.parent), "OPENAI_API_KEY": ""}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=os.environ | homes) as process:
        assert process.stdout
        assert process.stdout.read(1)
        process.kill()
    served.until(lambda: served.cancelled() == before + 1)
