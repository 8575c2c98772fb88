"""Connects to the remotes that take layers of the target, after a check of each.

llama.cpp aborts the process when a remote refuses, speaks another version or goes away, and waits
for ever for a busy one. So each gets ggml-rpc's hello here first, in bounded time.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from contextlib import closing
from typing import TYPE_CHECKING

from localspec.addresses import host_and_port
from localspec.errors import ConfigError, RemoteUnavailable
from localspec.wire.messages import REMOTE_LOST_EXIT

if TYPE_CHECKING:
    from localspec.engine.llama.rpc import Device

CONNECT_SECONDS = 3.0
HELLO_SECONDS = 10.0
"""A server may still be computing for a client that has died."""

VERSION = (7, 0)
"""RPC_PROTO_MAJOR_VERSION and RPC_PROTO_MINOR_VERSION of the llama.cpp in pyproject.toml."""

_CAPABILITIES = bytes(24)
"""No capabilities: plain TCP."""
HELLO = bytes([14]) + len(_CAPABILITIES).to_bytes(8, "little") + _CAPABILITIES
_ANSWER_BYTES = 8 + 4 + len(_CAPABILITIES)
_MOST_DEVICES = 15
"""GGML_SCHED_MAX_BACKENDS, less the CPU."""


def gather(remote: Sequence[str]) -> list[Device]:
    """The remotes' devices, which take layers of the target before this machine's devices.

    If there are any, a lost remote ends this process from now on, with the exit code
    REMOTE_LOST_EXIT.

    Raises:
        ConfigError: this llama.cpp has no RPC, or there are too many devices.
        RemoteUnavailable: one of them does not answer, or not as a worker-host.
    """
    if not remote:
        return []
    from localspec.engine.llama import rpc  # noqa: PLC0415 - see `assemble.load`

    rpc.require()
    for address in remote:
        greet(address)
    rpc.on_loss(lambda _: os._exit(REMOTE_LOST_EXIT))
    devices = [device for address in remote for device in rpc.connect(address)]
    if (count := len(devices) + len(rpc.local())) > _MOST_DEVICES:
        raise ConfigError(
            f"The remotes and this machine have {count} devices; {_MOST_DEVICES} are the "
            "most that llama.cpp can use.",
            fix="Lend fewer of them: `localspec worker-host --device`.",
            param="engine.remote",
        )
    return devices


def greet(
    address: str, *, connect_seconds: float = CONNECT_SECONDS, hello_seconds: float = HELLO_SECONDS
) -> None:
    """Say hello to a worker-host and leave. Raises RemoteUnavailable, ConfigError."""
    where = host_and_port(address)
    if where is None:
        raise ConfigError(f'"{address}" is no host:port.', param="engine.remote")
    try:
        connection = socket.create_connection(_ipv4(*where), connect_seconds)
    except OSError as error:
        raise _silent(address, error) from error
    with closing(connection):
        connection.settimeout(hello_seconds)
        try:
            connection.sendall(HELLO)
            answer = _read(connection, _ANSWER_BYTES)
        except ConnectionError:
            answer = b""
        except TimeoutError as error:
            raise RemoteUnavailable(
                f"The remote {address} takes connections and does not answer.",
                fix="It serves one client at a time: end the other one, or look whether a "
                "`localspec worker-host` listens there.",
            ) from error
        except OSError as error:
            raise _silent(address, error) from error
    check(address, answer)


def check(address: str, answer: bytes) -> None:
    """Check that llama.cpp accepts this answer to a hello. Raises RemoteUnavailable."""
    if not answer:
        raise RemoteUnavailable(
            f"The remote {address} ends the connection without a word.",
            fix="Start `localspec worker-host` there; of a tunnel, at its other end.",
        )
    said = int.from_bytes(answer[:8], "little")
    if len(answer) < _ANSWER_BYTES or said != _ANSWER_BYTES - 8:
        raise RemoteUnavailable(
            f"What listens at {address} does not speak llama.cpp's RPC.",
            fix="Start `localspec worker-host` there, of the same version as this LocalSpec.",
        )
    major, minor = answer[8], answer[9]
    if major != VERSION[0] or minor > VERSION[1]:
        raise RemoteUnavailable(
            f"The remote {address} speaks version {major}.{minor} of llama.cpp's RPC, "
            f"this machine {VERSION[0]}.{VERSION[1]}.",
            fix="Install the same version of LocalSpec on both.",
        )


def _ipv4(host: str, port: int) -> tuple[str, int]:
    """The address that llama.cpp will connect to: the first of IPv4. Raises OSError."""
    found = socket.getaddrinfo(host, port, socket.AF_INET, socket.SOCK_STREAM)
    return str(found[0][4][0]), port


def _read(connection: socket.socket, size: int) -> bytes:
    """Read `size` bytes, fewer if the other side ends before. Raises OSError."""
    data = b""
    while len(data) < size and (part := connection.recv(size - len(data))):
        data += part
    return data


def _silent(address: str, error: OSError) -> RemoteUnavailable:
    return RemoteUnavailable(
        f"The remote {address} does not answer: {error.strerror or error}.",
        fix="Start it with `localspec worker-host` there, or remove it from engine.remote.",
    )
