"""A client that half-closed its connection is answered; one that left is cancelled."""

from __future__ import annotations

import asyncio
import json
import socket
import sys
from typing import Any

import pytest

from localspec import paths

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="elsewhere both look the same")
DOORS = ["socket", "tcp"]


async def opened(it: Any, harness: Any, door: str) -> tuple[Any, Any, str]:
    """Opens a connection, and returns it with the head of a request."""
    if door == "socket":
        return *await asyncio.open_unix_connection(harness.socket), "Host: x\r\n"
    address = (await it.get("/v1/status"))["tcp"]
    host, _, port = address.rpartition(":")
    token = (paths.state_dir() / "token").read_text().strip()
    head = f"Host: {address}\r\nX-Api-Key: {token}\r\n"
    return *await asyncio.open_connection(host.strip("[]"), int(port)), head


def asking(head: str, prompt: str, **fields: Any) -> bytes:
    """Returns a chat as bytes."""
    messages = [{"role": "user", "content": prompt}]
    body = json.dumps({"messages": messages, **fields}).encode()
    begun = f"POST /v1/chat/completions HTTP/1.1\r\n{head}Content-Length: {len(body)}\r\n\r\n"
    return begun.encode() + body


@pytest.mark.parametrize("address", ["127.0.0.1", "[::1]"])
@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("stream", [False, True])
def test_who_writes_no_more_gets_the_answer(
    harness: Any, daemon: Any, door: str, address: str, *, stream: bool
) -> None:
    """One request or several are answered, whole or as a stream; then the connection is closed."""
    harness.configure(server={"tcp": f"{address}:0"})

    async def scene() -> None:
        async with daemon(harness, idle_seconds=2) as it:
            for count in (1, 2):
                reader, writer, head = await opened(it, harness, door)
                writer.write(asking(head, "say well done", stream=stream) * count)
                writer.write_eof()
                answer = (await reader.read()).decode()
                assert answer.count("HTTP/1.1 200 OK") == count
                assert answer.count("done") >= count
                assert answer.count("[DONE]") == count * stream
                writer.close()

    asyncio.run(scene())


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("how", ["close", "half, then close", "reset"])
@pytest.mark.parametrize("stream", [False, True])
def test_who_has_left_is_not_answered(
    harness: Any, daemon: Any, door: str, how: str, *, stream: bool
) -> None:
    """The request is cancelled, however the connection ended."""
    harness.configure(server={"tcp": "127.0.0.1:0"})

    async def scene() -> None:
        async with daemon(harness) as it:
            assert (await it.ask("say hello"))[0] == 200
            _, writer, head = await opened(it, harness, door)
            writer.write(asking(head, "wait", stream=stream))
            await it.until(lambda: it.model().requests == 1)
            if how == "half, then close":
                writer.write_eof()
            elif how == "reset" and door == "tcp":
                linger = (1).to_bytes(4, sys.byteorder) + bytes(4)
                connection = writer.get_extra_info("socket")
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
            writer.close()
            await it.until(lambda: it.model().requests == 0)

    asyncio.run(scene())


@pytest.mark.parametrize("door", DOORS)
@pytest.mark.parametrize("kind", ["length", "chunks", "second", "unknown path"])
def test_a_body_that_is_cut_is_answered_with_400(
    harness: Any, daemon: Any, door: str, kind: str
) -> None:
    """Its end cannot come: a sentence, and the connection is closed; so is one with half a head."""
    harness.configure(server={"tcp": "127.0.0.1:0"})

    async def scene() -> None:
        async with daemon(harness) as it:
            reader, writer, head = await opened(it, harness, door)
            whole = asking(head, "say hello")
            sent = {
                "length": whole[:-3],
                "chunks": f"POST /v1/chat/completions HTTP/1.1\r\n{head}Transfer-Encoding: chunked"
                "\r\n\r\n5\r\n{".encode(),
                "second": whole + whole[:-3],
                "unknown path": whole[:-3].replace(b"/v1/chat/completions", b"/nope"),
            }[kind]
            writer.write(sent)
            writer.write_eof()
            answer = (await reader.read()).decode()
            status = 404 if kind == "unknown path" else 400
            assert f"HTTP/1.1 {status} " in answer
            assert answer.count("HTTP/1.1 ") == 1 + (kind == "second")
            assert ("cut" in answer) == (status == 400)
            writer.close()
            reader, writer, head = await opened(it, harness, door)
            writer.write(whole[:5])
            writer.write_eof()
            assert await reader.read() == b""
            writer.close()

    asyncio.run(scene())
