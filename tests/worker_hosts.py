"""Real worker-hosts on loopback, for tests whose llama.cpp was built with RPC (`make REMOTE=1`)."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from localspec.engine.llama import rpc
from localspec.errors import ConfigError, RemoteUnavailable
from localspec.worker.remotes import greet


def built_with_rpc() -> bool:
    """Whether the llama.cpp of this environment knows remotes."""
    try:
        rpc.require()
    except ConfigError:
        return False
    return True


needs_rpc = pytest.mark.skipif(
    not built_with_rpc(), reason="this llama.cpp has no RPC: make remote-test"
)


def free_address() -> str:
    """A loopback address on which nobody listens."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{taken.getsockname()[1]}"


class WorkerHost:
    """One `localspec worker-host` of the CPU, with one thread."""

    def __init__(self, address: str) -> None:
        self.address = address
        command = [sys.executable, "-P", "-m", "localspec.worker.rpc_host"]
        command += ["--listen", address, "--threads", "1"]
        if os.geteuid() == 0:
            command.append("--allow-root")
        self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        while not self._answers():
            with suppress(subprocess.TimeoutExpired):
                raise AssertionError(f"exit code {self.process.wait(0.05)}")

    def _answers(self) -> bool:
        try:
            greet(self.address)
        except RemoteUnavailable:
            return False
        return True

    def kill(self) -> None:
        """SIGKILL."""
        self.process.kill()
        self.process.wait()


@contextmanager
def worker_hosts(count: int) -> Iterator[list[WorkerHost]]:
    """So many of them; whatever the list holds at the end is killed."""
    hosts: list[WorkerHost] = []
    try:
        hosts += (WorkerHost(free_address()) for _ in range(count))
        yield hosts
    finally:
        for host in hosts:
            host.kill()
