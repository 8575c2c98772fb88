"""Time and memory that the doors cost: the figures in docs/clients.md."""

from __future__ import annotations

import http.client
import json
import os
import socket
import statistics
import sys
import time
from pathlib import Path

import pytest
from clients.conftest import Served

from localspec.client import Client

CONNECTIONS = 200
MAX_IDLE_BYTES = 64 * 1024 * 1024
MAX_ADDED_SECONDS = 0.002
ASKED = 60


class Door(http.client.HTTPConnection):
    """A connection to the socket that stays open."""

    def __init__(self, path: str) -> None:
        super().__init__("localspec")
        self._path = path

    def connect(self) -> None:
        """Where the daemon listens."""
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self._path)

    def healthy(self) -> bool:
        """One request, which proves that the connection was taken."""
        self.request("GET", "/health")
        return self.getresponse().read() == b'{"status":"ok"}'

    def first_text(self) -> float:
        """Seconds until the first text of an answer, less what the worker took for its prompt."""
        body = {"prompt": "Once upon a time", "max_tokens": 2, "stream": True, "seed": 1}
        began, first, last = time.perf_counter(), 0.0, b""
        self.request("POST", "/v1/completions", json.dumps(body))
        for line in self.getresponse():
            first = first or time.perf_counter() - began
            last = line if b'"timings"' in line else last
        timings = json.loads(last.removeprefix(b"data: "))["timings"]
        return first - float(timings["prompt_ms"]) / 1000


def resident_bytes(pid: int) -> int:
    """Memory of a process, as Linux counts it."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.skipif(sys.platform != "linux", reason="memory is read from /proc")
def test_two_hundred_idle_connections_cost_little(served: Served) -> None:
    """They stay open and usable, and the daemon stays small."""
    pid = Client(Path(served.socket)).status()["pid"]
    before = resident_bytes(pid)
    doors = [Door(served.socket) for _ in range(CONNECTIONS)]
    assert all(door.healthy() for door in doors)
    cost = resident_bytes(pid) - before
    assert all(door.healthy() for door in doors)
    for door in doors:
        door.close()
    print(f"{CONNECTIONS} idle connections: {cost / 1024:.0f} KiB")  # noqa: T201  for the table
    assert cost < MAX_IDLE_BYTES


@pytest.mark.typing
def test_the_socket_adds_little_to_the_first_text(served: Served) -> None:
    """HTTP, the supervisor, frames and the reading of the request, all together, at their best."""
    door = Door(served.socket)
    added = sorted(door.first_text() for _ in range(ASKED))
    door.close()
    shown = [round(1000 * each, 2) for each in (added[0], statistics.median(added))]
    print(f"added to the first text: {shown} ms (least, median)")  # noqa: T201  the same
    assert added[0] < MAX_ADDED_SECONDS
