"""Questions of the tests to the machine: which processes run, and a server that says nothing."""

from __future__ import annotations

import contextlib
import socket
import subprocess
from collections.abc import Iterator


def children_of(pid: int) -> list[int]:
    """The processes that `pid` has started and that still run."""
    found = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True, check=False)
    return [int(line) for line in found.stdout.split()]


@contextlib.contextmanager
def silent_server() -> Iterator[str]:
    """The address of a listener that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}"
