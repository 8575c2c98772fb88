"""Clients from npm against a daemon with the real pair: `make clients`, which installs them.

An agent's first prompt has ten thousand tokens, so this takes some minutes. What a small model says
is its own business: what is proved is that the client accepts it and comes to its end.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from clients.conftest import LOCALSPEC, Served, run

INSTALLED = Path(os.environ.get("LOCALSPEC_NPM", Path(sys.prefix) / "npm"))
SDKS = INSTALLED / "sdks.mjs"
pytestmark = [
    pytest.mark.clients,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(not SDKS.exists(), reason="not installed. Run: make clients"),
]
MIN_AGENT_TOKENS = 1000
"""An agent that sends less has not listed its tools."""
QUIET = {
    "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    "DISABLE_AUTOUPDATER": "1",
    "OPENCODE_DISABLE_AUTOUPDATE": "1",
    "OPENCODE_DISABLE_MODELS_FETCH": "1",
}
"""Agents talk to nobody but the daemon."""
AGENTS = {
    "codex": ("codex", "exec", "--skip-git-repo-check", "--profile", "localspec"),
    "opencode": ("opencode", "run", "-m", "localspec/{model}"),
    "claude-code": ("claude", "-p"),
    "continue": ("cn", "--config", "{home}/.continue/assistants/localspec.yaml", "-p"),
}
"""By the name that `localspec connect` knows: how each is asked something."""


@pytest.fixture(scope="module")
def agents(home: Path, environment: Mapping[str, str]) -> Mapping[str, str]:
    """Environment of the agents: their paths, and no other service to connect to."""
    (home / "work" / ".git").mkdir(parents=True)
    path = os.pathsep.join((str(INSTALLED / "node_modules" / ".bin"), environment["PATH"]))
    return {**environment, **QUIET, "PATH": path}


def prompted(served: Served) -> int:
    """Prompt tokens of finished requests, cached ones included."""
    names = ("llamacpp:prompt_tokens_total", "llamacpp:prompt_tokens_cached_total")
    return sum(map(served.figure, names))


def test_sdks_stream_call_shape_fail_and_cancel(
    served: Served, home: Path, agents: Mapping[str, str]
) -> None:
    """OpenAI's for Node, and Vercel's with its provider for compatible servers."""
    before = served.cancelled()
    output = run(
        agents,
        home,
        "node",
        str(SDKS),
        served.url,
        served.token,
        served.model,
    )
    found: dict[str, Any] = dict(json.loads(line) for line in output.splitlines())
    print(json.dumps(found, indent=2))  # noqa: T201  for `make clients`
    assert "ello" in found["stream"]["text"]
    assert 0 < found["stream"]["tokens"] <= 20
    assert found["tool"]["name"] == "weather"
    assert found["tool"]["city"]
    assert found["error"] == {"name": "BadRequestError", "param": "temperature"}
    assert found["responses"]["whole"] == found["responses"]["streamed"]
    assert found["aborted"] == {"chunks": 3}
    served.until(lambda: served.cancelled() == before + 1)
    assert found["steps"]["reasons"][0] == "tool-calls"
    assert isinstance(found["object"]["age"], int)
    assert len(found["object"]["name"]) <= 20
    assert found["streamed"]["tokens"] == 30
    assert not served.busy()


@pytest.mark.parametrize("tool", AGENTS)
def test_an_agent_is_connected_and_answers(
    tool: str, served: Served, home: Path, agents: Mapping[str, str]
) -> None:
    """As `localspec connect` writes it: a prompt with its tools, calls as it likes, and an end."""
    written = {"home": str(home), "model": served.model}
    run(agents, home, *LOCALSPEC, "connect", tool, "--write")
    before = prompted(served)
    asked = (*(part.format(**written) for part in AGENTS[tool]), "Say hello.")
    output = run(agents, home / "work", *asked)
    read = prompted(served) - before
    print(f"{tool}: {read} tokens of prompts, and then: {output.strip()[-400:]}")  # noqa: T201  the same
    assert output.strip()
    assert read > MIN_AGENT_TOKENS
    run(agents, home, *LOCALSPEC, "connect", tool, "--restore")
