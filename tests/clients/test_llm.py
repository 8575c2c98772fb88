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
    said = run(served.model, asking.HELLO, "--usage")
    assert served.hello in said.stdout
    assert "input" in said.stderr
    assert run(served.model, asking.HELLO, "--no-stream").stdout == said.stdout


@asking.ON_BOTH
def test_a_tool_is_called_of_its_own_will(run: Run, served: Any) -> None:
    """And told of; a small real model may call it again and again, until llm has enough of it."""
    told = run(served.model, asking.WHICH, "-T", "guess", "--td")
    assert told.exit_code == 0, told.output
    assert "it was left" in told.stderr


def test_a_tool_that_was_called_is_spoken_of(run: Run, served: Any) -> None:
    """The answer behind its result."""
    assert served.result in run(served.model, asking.WHICH, "-T", "guess").stdout


@asking.ON_BOTH
def test_a_schema_is_kept_and_errors_are_told(run: Run, served: Any) -> None:
    """In its own shorthand; what the daemon refuses is a sentence and exit code 1."""
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
