"""Greeting a remote device server: any listener gives a result in bounded time, or a sentence."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from hypothesis import given
from hypothesis import strategies as st
from worker_hosts import free_address, needs_rpc, worker_hosts

from localspec.errors import ConfigError, RemoteUnavailable
from localspec.worker.remotes import HELLO, VERSION, check, gather, greet

ANSWER_BYTES = 28


@contextmanager
def listener(serve: Callable[[socket.socket], None]) -> Iterator[str]:
    """An address where each connection is handed to `serve` and closed."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def run() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                with connection:
                    serve(connection)

        thread = threading.Thread(target=run)
        thread.start()
        try:
            yield f"127.0.0.1:{server.getsockname()[1]}"
        finally:
            server.shutdown(socket.SHUT_RDWR)
            thread.join()


def hello(major: int, minor: int, size: int = ANSWER_BYTES) -> bytes:
    """Response of a server with that version."""
    return size.to_bytes(8, "little") + bytes([major, minor, 0, 0]) + bytes(24)


def refusal(address: str) -> str:
    """The sentence that greeting it gives."""
    with pytest.raises(RemoteUnavailable) as caught:
        greet(address, hello_seconds=0.2)
    assert caught.value.fix
    return caught.value.message


def test_an_address_without_a_server_is_refused_with_a_fix() -> None:
    """The sentence names the address and the command to start there."""
    address = free_address()
    with pytest.raises(RemoteUnavailable) as caught:
        greet(address)
    assert caught.value.message == f"The remote {address} does not answer: Connection refused."
    assert caught.value.fix == (
        "Start it with `localspec worker-host` there, or remove it from engine.remote."
    )


def test_a_silent_server_times_out() -> None:
    """A worker-host is silent while another client has it."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        assert "does not answer" in refusal(address)


@pytest.mark.parametrize(
    "answer", [b"HTTP/1.1 400 Bad Request\r\n\r\nwhat was that", hello(*VERSION)[:-1],
               hello(*VERSION, size=27)],
)  # fmt: skip
def test_another_kind_of_server_is_recognized(answer: bytes) -> None:
    """A web server, a server that hangs up, half an answer."""

    def serve(connection: socket.socket) -> None:
        connection.recv(4096)
        connection.sendall(answer)

    with listener(serve) as address:
        assert "does not speak llama.cpp's RPC" in refusal(address)


def test_a_tunnel_without_a_server_is_recognized() -> None:
    """Ssh accepts the connection and closes it."""
    for bytes_read in (0, 4096):  # unread ones make a reset of the end

        def serve(connection: socket.socket, bytes_read: int = bytes_read) -> None:
            connection.recv(bytes_read)

        with listener(serve) as address:
            assert "without a word" in refusal(address)


@pytest.mark.parametrize("version", [(VERSION[0] - 1, 0), (VERSION[0] + 1, 0), (VERSION[0], 200)])
def test_another_version_is_refused_before_llama_cpp_would_abort(version: tuple[int, int]) -> None:
    """Both versions are in the sentence."""

    def serve(connection: socket.socket) -> None:
        connection.recv(4096)
        connection.sendall(hello(*version))

    with listener(serve) as address:
        message = refusal(address)
    assert f"{version[0]}.{version[1]}" in message
    assert f"{VERSION[0]}.{VERSION[1]}" in message


def test_the_same_version_is_accepted() -> None:
    """Byte by byte too."""

    def serve(connection: socket.socket) -> None:
        connection.recv(4096)
        for byte in hello(*VERSION):
            connection.sendall(bytes([byte]))

    with listener(serve) as address:
        greet(address)


@given(st.binary(max_size=64))
def test_only_the_right_answer_is_accepted(answer: bytes) -> None:
    """Any other bytes are an error of ours, never another exception."""
    welcome = hello(VERSION[0], 0)
    if answer[:10] != welcome[:10] or len(answer) < len(welcome):
        with pytest.raises(RemoteUnavailable):
            check("host:1", answer)


def test_without_remotes_no_connection_is_made() -> None:
    """Then there are the devices of this machine."""
    assert gather([]) == []


@needs_rpc
def test_a_real_worker_host_is_greeted_again_and_again() -> None:
    """The version above is that of the llama.cpp that is installed."""
    with worker_hosts(1) as (host,):
        for _ in range(3):
            greet(host.address)


@needs_rpc
def test_a_busy_worker_host_takes_no_second_client() -> None:
    """It serves one at a time; the sentence for the second client says so."""
    with worker_hosts(1) as (host,):
        name, _, port = host.address.partition(":")
        with socket.create_connection((name, int(port))) as first:
            first.sendall(HELLO)
            first.recv(64)
            assert "takes connections and does not answer" in refusal(host.address)
        greet(host.address)


def test_invalid_addresses_are_refused() -> None:
    """The configuration has checked them; the worker checks again."""
    with pytest.raises(ConfigError):
        greet("[::1]:50052")
