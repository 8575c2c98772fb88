"""One daemon with tiny models on the real worker, for clients of all kinds, by both doors."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx2
import openai
import pytest


@dataclass(frozen=True)
class Served:
    """A running daemon, as a client sees it."""

    socket: str
    url: str
    token: str
    model: str = "beta"

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
        """Wait for what other processes do."""
        deadline = time.monotonic() + 20
        while not condition():
            assert time.monotonic() < deadline, "it never came to that"

    def busy(self) -> bool:
        """Whether a request is being answered."""
        return self.figure("llamacpp:requests_processing") > 0

    def figure(self, name: str) -> int:
        """A figure of /metrics; 0 where it is not there."""
        with httpx2.Client(transport=httpx2.HTTPTransport(uds=self.socket)) as http:
            lines = http.get("http://localspec/metrics").text.splitlines()
        return sum(int(float(line.split()[-1])) for line in lines if line.startswith(f"{name} "))


@pytest.fixture(scope="session")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """The daemon, a process with a home of its own, its model loaded."""
    root = tmp_path_factory.mktemp("s")
    homes = dict.fromkeys(("HOME", "XDG_STATE_HOME", "XDG_CACHE_HOME"), str(root))
    here = Path(__file__)
    search = os.pathsep.join(filter(None, (str(here.parents[1]), os.environ.get("PYTHONPATH"))))
    with subprocess.Popen(
        [sys.executable, here.with_name("lent.py"), root],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ | homes | {"PYTHONPATH": search},
    ) as process:
        assert process.stdout
        yield Served(*json.loads(process.stdout.readline()))
        process.communicate()
    assert process.returncode == 0


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
