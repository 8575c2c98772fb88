"""The process that lends devices: where it listens, what it refuses, what it gives up."""

from __future__ import annotations

import ipaddress
import os
import re
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from worker_hosts import free_address, needs_rpc, worker_hosts

from localspec.errors import ConfigError, Forbidden
from localspec.worker.rpc_host import exposure, listening

AS_ROOT = ["--allow-root"] if os.geteuid() == 0 else []


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    """The process, with arguments that end it."""
    command = [sys.executable, "-P", "-m", "localspec.worker.rpc_host", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


@given(st.ip_addresses(v=4), st.integers(1, 65535))
def test_an_address_is_taken_as_it_is_unless_it_means_all(address: object, port: int) -> None:
    """0.0.0.0 is every network that the machine is in."""
    text = f"{address}:{port}"
    if int(ipaddress.ip_address(str(address))) == 0:
        with pytest.raises(ConfigError):
            listening(text)
    else:
        assert listening(text) == (str(address), port)


@pytest.mark.parametrize(
    "text", ["", "127.0.0.1", "127.0.0.1:0", "127.0.0.1:65536", ":50052", "[::1]:50052",
             "0.0.0.0:50052", "no-such-interface:50052", "127.0.0.1:50052:1"],
)  # fmt: skip
def test_invalid_listen_addresses_are_refused(text: str) -> None:
    """With a valid example."""
    with pytest.raises(ConfigError) as caught:
        listening(text)
    assert caught.value.fix


@pytest.mark.skipif(sys.platform != "linux", reason="interfaces are named on Linux only")
def test_an_interface_is_its_address() -> None:
    """The loopback interface is on every machine."""
    assert listening("lo:50052") == ("127.0.0.1", 50052)


def test_loopback_needs_no_warning_and_everything_else_the_line_that_makes_it_safe() -> None:
    """SSH and WireGuard, with the port in them."""
    assert exposure("127.0.0.1", 50052) == exposure("127.8.8.8", 1) == ""
    warning = exposure("10.0.0.2", 50099)
    assert "ssh -N -L 50099:127.0.0.1:50099" in warning
    assert "wg0:50099" in warning
    assert "no password and no\nencryption" in warning


@pytest.mark.skipif(os.geteuid() != 0, reason="this is not root")
def test_root_is_refused_unless_it_insists() -> None:
    """Exit code and the way out."""
    done = run()
    assert done.returncode == Forbidden.exit_code
    assert "--allow-root" in done.stderr


def test_a_taken_port_and_a_strange_number_of_threads_are_refused() -> None:
    """Before llama.cpp is loaded, whose error would have no reason."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        taken = run(*AS_ROOT, "--listen", address)
    assert (taken.returncode, address in taken.stderr) == (78, True)
    assert run(*AS_ROOT, "--threads", "-1").returncode == 78


@needs_rpc
def test_a_device_that_is_not_here_is_refused_with_those_that_are() -> None:
    """The CPU is everywhere."""
    done = run(*AS_ROOT, "--listen", free_address(), "--device", "QUANTUM7")
    assert done.returncode == 78
    assert re.search(r"Here: .*CPU", done.stderr)


@needs_rpc
@pytest.mark.skipif(sys.platform != "linux", reason="/proc")
def test_a_worker_host_drops_privileges() -> None:
    """No new privileges, no core dumps, no tracing, private files."""
    with worker_hosts(1) as (host,):
        proc = Path(f"/proc/{host.process.pid}")
        status = dict(line.split(":\t", 1) for line in (proc / "status").read_text().splitlines())
        assert status["NoNewPrivs"] == "1"
        assert status["Umask"] == "0077"
        assert re.search(r"core file size +0 +0", (proc / "limits").read_text())
        assert (proc / "environ").stat().st_uid == 0  # the mark of a process that is not dumpable
