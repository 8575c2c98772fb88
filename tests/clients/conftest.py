"""Daemons for the client tests, on both doors: one with tiny models, one with the real pair."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx2
import openai
import pytest
import scripted_model

from localspec.catalog.registry import Resolved
from localspec.client import Client

LOCALSPEC = (sys.executable, "-m", "localspec.cli.main")
CONTEXT = 32768
CONFIG = """[server]
tcp = "127.0.0.1:{port}"
[models]
aliases = {{ nobody = "no-such-model", "*" = "" }}
[engine]
context = {context}
slots = 2
exactness = "standard"  # loaded at once, and prompts are read fastest
"""


@dataclass(frozen=True)
class Served:
    """Running daemon as a client sees it, with the answers that its model knows."""

    socket: str
    url: str
    token: str
    model: str = "beta"
    context: int = 1536
    hello: str = "".join(scripted_model.SPEECH)
    result: str = "".join(scripted_model.RESULT)

    def base(self, door: str) -> str:
        """The address that a client is given; on the socket any host will do."""
        return "http://localspec" if door == "socket" else self.url

    def cancelled(self) -> int:
        """How many requests were cancelled so far."""
        return self.outcomes("cancelled")

    def outcomes(self, outcome: str) -> int:
        """How many requests ended so."""
        labels = f'model="{self.model}",outcome="{outcome}"'
        return self.figure(f"localspec_requests_total{{{labels}}}")

    def until(self, condition: Callable[[], bool]) -> None:
        """Wait for a condition that other processes bring about."""
        deadline = time.monotonic() + 20
        while not condition():
            assert time.monotonic() < deadline, "it never came to that"

    def busy(self) -> bool:
        """Whether a request is being answered."""
        return self.figure("llamacpp:requests_processing") > 0

    def figure(self, name: str) -> int:
        """Value of a metric in /metrics; 0 where it is missing."""
        with httpx2.Client(transport=httpx2.HTTPTransport(uds=self.socket)) as http:
            lines = http.get("http://localspec/metrics").text.splitlines()
        return sum(int(float(line.split()[-1])) for line in lines if line.startswith(f"{name} "))


@contextmanager
def daemon(root: Path, *arguments: str) -> Iterator[Served]:
    """A daemon with models that know their answers, its first one loaded."""
    homes = dict.fromkeys(("HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME"), str(root))
    here = Path(__file__)
    search = os.pathsep.join(filter(None, (str(here.parents[1]), os.environ.get("PYTHONPATH"))))
    with subprocess.Popen(
        [sys.executable, here.with_name("daemon_process.py"), root, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ | homes | {"PYTHONPATH": search},
    ) as process:
        assert process.stdout
        yield Served(*json.loads(process.stdout.readline()))
        process.communicate()
    assert process.returncode == 0


@pytest.fixture(scope="session")
def tiny_models(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """The daemon that most tests ask."""
    with daemon(tmp_path_factory.mktemp("s")) as served:
        yield served


@pytest.fixture(scope="session")
def home() -> Iterator[Path]:
    """A user's home; its path is short, because a socket lies below."""
    with tempfile.TemporaryDirectory(prefix="ls") as path:
        yield Path(path)


@pytest.fixture(scope="session")
def environment(home: Path, real_pair: Resolved) -> Mapping[str, str]:
    """Environment variables of a process of that user."""
    homes = {f"XDG_{name}_HOME": str(home / name.lower()) for name in ("CACHE", "DATA", "STATE")}
    here = {"HOME": str(home), "XDG_RUNTIME_DIR": str(home / "r")}
    (home / "r").mkdir(mode=0o700)
    models = {"LOCALSPEC_MODELS": str(real_pair.target_path.parent)}
    python = {"PYTHONPATH": os.environ.get("PYTHONPATH", ""), "LANG": "C.UTF-8"}
    return homes | here | models | python | {"PATH": os.environ["PATH"]}


@pytest.fixture(scope="session")
def real_models(
    home: Path, environment: Mapping[str, str], real_pair: Resolved
) -> Iterator[Served]:
    """A daemon of that user with the real pair, started as users do, and loaded."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    config = home / ".config" / "localspec" / "config.toml"
    config.parent.mkdir(parents=True)
    config.write_text(CONFIG.format(port=port, context=CONTEXT))
    run(environment, home, *LOCALSPEC, "start")
    try:
        token = (home / "state" / "localspec" / "token").read_text().strip()
        where = run(environment, home, *LOCALSPEC, "socket").strip()
        Client(Path(where)).load()
        yield Served(
            where, f"http://127.0.0.1:{port}", token, real_pair.name, CONTEXT, "ello", "left"
        )
    finally:
        run(environment, home, *LOCALSPEC, "stop")


def run(environment: Mapping[str, str], directory: Path, *command: str) -> str:
    """Output of a command; a failure raises with the end of its output."""
    done = subprocess.run(
        command, cwd=directory, env=environment, stdin=subprocess.DEVNULL, capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, (command, done.stdout[-2000:], done.stderr[-4000:])
    return done.stdout


@pytest.fixture
def served(request: pytest.FixtureRequest) -> Served:
    """Daemon of a test: with the real pair where the test is marked `clients`, else tiny models."""
    real = request.node.get_closest_marker("clients")
    answer: Served = request.getfixturevalue("real_models" if real else "tiny_models")
    return answer


@pytest.fixture(params=["socket", "tcp"])
def door(request: pytest.FixtureRequest) -> str:
    """Both doors."""
    return str(request.param)


@pytest.fixture
def transport(served: Served, door: str) -> httpx2.HTTPTransport:
    """How a client of httpx2 gets through the door."""
    return httpx2.HTTPTransport(uds=served.socket if door == "socket" else None)


@pytest.fixture
def openai_client(
    served: Served, door: str, transport: httpx2.HTTPTransport
) -> Iterator[openai.OpenAI]:
    """OpenAI's client, which others are built on."""
    with openai.OpenAI(
        base_url=f"{served.base(door)}/v1",
        api_key=served.token,
        max_retries=0,
        http_client=openai.DefaultHttpxClient(transport=transport),
    ) as client:
        yield client
