"""Clients from npm against a daemon with the real pair: `make npm-clients`, which installs them.

An agent's first prompt has ten thousand tokens, so this takes some minutes. What a small model says
is its own business: what is proved is that the client accepts it and comes to its end.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from clients.conftest import Served

from localspec.catalog.registry import Resolved
from localspec.client import Client

pytestmark = [pytest.mark.npm, pytest.mark.timeout(3600)]

INSTALLED = Path(os.environ.get("LOCALSPEC_NPM", Path(sys.prefix) / "npm"))
SDKS = INSTALLED / "sdks.mjs"
MIN_AGENT_TOKENS = 1000
"""An agent that sends less has not said what it can do."""
LOCALSPEC = (sys.executable, "-m", "localspec.cli.main")
CONFIG = """[server]
tcp = "127.0.0.1:{port}"
[engine]
context = 32768
slots = 2
exactness = "standard"  # prompts are read fastest
"""
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
def home() -> Iterator[Path]:
    """A user's home; its path is short, because a socket lies below."""
    with tempfile.TemporaryDirectory(prefix="ls") as path:
        yield Path(path)


@pytest.fixture(scope="module")
def environment(home: Path, real_pair: Resolved) -> Mapping[str, str]:
    """What a process of that user sees."""
    homes = {f"XDG_{name}_HOME": str(home / name.lower()) for name in ("CACHE", "DATA", "STATE")}
    here = {"HOME": str(home), "XDG_RUNTIME_DIR": str(home / "r")}
    (home / "r").mkdir(mode=0o700)
    (home / "work" / ".git").mkdir(parents=True)
    models = {"LOCALSPEC_MODELS": str(real_pair.target_path.parent)}
    path = os.pathsep.join((str(INSTALLED / "node_modules" / ".bin"), os.environ["PATH"]))
    python = {"PYTHONPATH": os.environ.get("PYTHONPATH", ""), "LANG": "C.UTF-8"}
    return homes | here | models | python | QUIET | {"PATH": path}


@pytest.fixture(scope="module")
def real(home: Path, environment: Mapping[str, str], real_pair: Resolved) -> Iterator[Served]:
    """A daemon of that user with the real pair, started as users do."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    config = home / ".config" / "localspec" / "config.toml"
    config.parent.mkdir(parents=True)
    config.write_text(CONFIG.format(port=port))
    run(environment, home, *LOCALSPEC, "start")
    try:
        token = (home / "state" / "localspec" / "token").read_text().strip()
        where = run(environment, home, *LOCALSPEC, "socket").strip()
        yield Served(where, f"http://127.0.0.1:{port}", token, real_pair.name)
    finally:
        run(environment, home, *LOCALSPEC, "stop")


def prompted(real: Served) -> int:
    """Tokens of answered prompts, also of one that was asked again and found in the cache."""
    names = ("llamacpp:prompt_tokens_total", "llamacpp:prompt_tokens_cached_total")
    return sum(map(real.figure, names))


def run(environment: Mapping[str, str], directory: Path, *command: str) -> str:
    """What a command writes; one that fails is an error with its last words."""
    done = subprocess.run(
        command, cwd=directory, env=environment, stdin=subprocess.DEVNULL, capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, (command, done.stdout[-2000:], done.stderr[-4000:])
    return done.stdout


def test_sdks_stream_call_shape_fail_and_cancel(
    real: Served, home: Path, environment: Mapping[str, str]
) -> None:
    """OpenAI's for Node, and Vercel's with its provider for compatible servers."""
    Client(Path(real.socket)).load()
    told = run(environment, home, "node", str(SDKS), real.url, real.token, real.model)
    found: dict[str, Any] = dict(json.loads(line) for line in told.splitlines())
    print(json.dumps(found, indent=2))  # noqa: T201  for `make npm-clients`
    assert "ello" in found["stream"]["text"]
    assert 0 < found["stream"]["tokens"] <= 20
    assert found["tool"]["name"] == "weather"
    assert found["tool"]["city"]
    assert found["error"] == {"name": "BadRequestError", "param": "temperature"}
    assert found["responses"]["whole"] == found["responses"]["streamed"]
    assert found["aborted"] == {"chunks": 3}
    real.until(lambda: real.outcomes("cancelled") == 1)
    assert found["steps"]["reasons"][0] == "tool-calls"
    assert isinstance(found["object"]["age"], int)
    assert len(found["object"]["name"]) <= 20
    assert found["streamed"]["tokens"] == 30
    assert not real.busy()


@pytest.mark.parametrize("tool", AGENTS)
def test_an_agent_is_connected_and_answers(
    tool: str, real: Served, home: Path, environment: Mapping[str, str]
) -> None:
    """As `localspec connect` writes it: a prompt with its tools, calls as it likes, and an end."""
    written = {"home": str(home), "model": real.model}
    run(environment, home, *LOCALSPEC, "connect", tool, "--write")
    before = prompted(real)
    asked = (*(part.format(**written) for part in AGENTS[tool]), "Say hello.")
    said = run(environment, home / "work", *asked)
    read = prompted(real) - before
    print(f"{tool}: {read} tokens of prompts, and then: {said.strip()[-400:]}")  # noqa: T201  the same
    assert said.strip()
    assert read > MIN_AGENT_TOKENS
    run(environment, home, *LOCALSPEC, "connect", tool, "--restore")
