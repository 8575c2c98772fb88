"""`localspec lsp` as an editor drives it: a process on stdio, asked by pygls' own client."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from hypothesis import given
from hypothesis import strategies as st
from lsprotocol import types as lsp
from pygls.exceptions import JsonRpcRequestCancelled
from pygls.lsp.client import LanguageClient
from scripted import Peer

from localspec.cli import ghost
from localspec.cli.ghost import Buffer
from localspec.cli.lsp import infill
from localspec.client import Client

CODE = "def add(a, b):\n    ret\n\nprint(add(1, 2))\n"
PLACE = lsp.Position(1, 7)


@given(st.text(alphabet="ab \n", max_size=60), st.integers(0, 60), st.booleans())
def test_a_request_has_the_text_around_its_place(text: str, offset: int, typing: bool) -> None:
    """All of a short text; a line where the line goes on, a block where it does not."""
    offset = min(offset, len(text))
    others = [Buffer("b.py", "one"), Buffer("a.py", text), Buffer("c.py", " \n")]
    body = ghost.request(Buffer("a.py", text), offset, others, typing=typing, model="")
    assert body["input_prefix"] + body["prompt"] + body["input_suffix"] == text
    assert body["prompt"] == text[:offset].rpartition("\n")[2]
    assert [extra["filename"] for extra in body["input_extra"]] == ["b.py"]
    line = text[offset:].partition("\n")[0]
    assert bool(body["stop"]) == bool(line.strip())
    assert (body["t_max_predict_ms"] == ghost.TYPING_MS) == typing


def test_a_long_text_is_cut_at_a_line_and_others_are_bounded() -> None:
    """Text before the place is cut at a line; of many documents the latest are read."""
    text = "x = 1\n" * 9000
    others = [Buffer(f"{index}.py", "y" * 9000) for index in range(9)]
    body = ghost.request(Buffer("a.py", text), len(text), others, typing=True, model="m")
    assert body["input_prefix"].startswith("x = 1\n")
    assert 0 < len(body["input_prefix"]) <= ghost.MAX_BEFORE_CHARS
    line = ghost.request(Buffer("a.py", "y" * 9000), 9000, (), typing=True, model="m")
    assert len(line["prompt"]) == ghost.MAX_TYPED_CHARS
    assert [one["filename"] for one in body["input_extra"]] == ["5.py", "6.py", "7.py", "8.py"]
    assert {len(one["text"]) for one in body["input_extra"]} == {ghost.MAX_OTHER_CHARS}


def test_what_only_repeats_the_line_is_not_shown() -> None:
    """Nor is a blank end."""
    assert ghost.shown("urn a + b\n  ", "") == "urn a + b"
    assert ghost.shown(")\n", ")\nx") == ""
    assert ghost.shown(" \n", "") == ""


@asynccontextmanager
async def editor() -> AsyncIterator[LanguageClient]:
    """An editor with one document open."""
    client = LanguageClient("test", "1")
    await client.start_io(sys.executable, "-m", "localspec.cli.main", "lsp", "--model", "tiny")
    known = await client.initialize_async(lsp.InitializeParams(lsp.ClientCapabilities()))
    assert known.capabilities.inline_completion_provider
    client.initialized(lsp.InitializedParams())
    for name, text in (("a.py", CODE), ("b.py", "import a\n")):
        item = lsp.TextDocumentItem(f"file:///x/{name}", lsp.LanguageKind.Python, 1, text)
        client.text_document_did_open(lsp.DidOpenTextDocumentParams(item))
    yield client
    await client.shutdown_async(None)
    client.exit(None)
    await client.stop()  # type: ignore[no-untyped-call]


def asked(
    kind: lsp.InlineCompletionTriggerKind = lsp.InlineCompletionTriggerKind.Automatic,
) -> lsp.InlineCompletionParams:
    """A wish for ghost text behind "ret"."""
    document = lsp.TextDocumentIdentifier("file:///x/a.py")
    return lsp.InlineCompletionParams(lsp.InlineCompletionContext(kind), document, PLACE)


def test_an_editor_is_shown_what_the_model_would_write(peer: Peer) -> None:
    """With the other document as context, what was typed since, and nothing where there is none."""
    peer.streams = [(200, {"content": "urn a + b\n"}), (200, {"content": ""}), (200, {})]

    async def scene() -> None:
        async with editor() as client:
            (item,) = await client.text_document_inline_completion_async(asked()) or []  # type: ignore[misc]
            assert (item.insert_text, item.range) == ("urn a + b", lsp.Range(PLACE, PLACE))
            typed = lsp.TextDocumentContentChangePartial(lsp.Range(PLACE, PLACE), "urn")
            document = lsp.VersionedTextDocumentIdentifier(2, "file:///x/a.py")
            client.text_document_did_change(lsp.DidChangeTextDocumentParams(document, [typed]))
            wish = asked(lsp.InlineCompletionTriggerKind.Invoked)
            assert await client.text_document_inline_completion_async(wish) == []
            assert await client.text_document_inline_completion_async(asked()) == []

    asyncio.run(scene())
    first, second, _ = [one.body for one in peer.asked if one.path == "/infill"]
    assert (first["input_prefix"], first["prompt"]) == ("def add(a, b):\n", "    ret")
    assert first["model"] == "tiny"
    assert first["input_extra"] == [{"filename": "b.py", "text": "import a\n"}]
    assert second["input_suffix"].startswith("urn\n")
    assert first["t_max_predict_ms"] < second["t_max_predict_ms"]


def test_a_wish_that_is_taken_back_ends_the_daemons_work(peer: Peer) -> None:
    """`$/cancelRequest` closes the connection, and the server goes on."""
    held: list[bytes] = []
    peer.streams = [held, (200, {"content": "urn"})]

    async def scene() -> None:
        async with editor() as client:
            method = lsp.TEXT_DOCUMENT_INLINE_COMPLETION
            wish = client.protocol.send_request_async(method, asked(), msg_id="wish")
            waiting = asyncio.ensure_future(wish)
            assert await asyncio.to_thread(peer.held.wait, 20)
            client.cancel_request(lsp.CancelParams("wish"))
            assert await asyncio.to_thread(peer.left.wait, 20)
            with pytest.raises(JsonRpcRequestCancelled):
                await waiting
            (item,) = await client.text_document_inline_completion_async(asked()) or []  # type: ignore[misc]
            assert item.insert_text == "urn"

    asyncio.run(scene())


def test_a_later_wish_ends_the_one_before(peer: Peer) -> None:
    """For the same document: Neovim sends new requests during typing and cancels none."""
    held: list[bytes] = []
    peer.streams = [held, (200, {"content": "urn"})]

    async def scene() -> None:
        async with editor() as client:
            waiting = asyncio.ensure_future(client.text_document_inline_completion_async(asked()))
            assert await asyncio.to_thread(peer.held.wait, 20)
            (item,) = await client.text_document_inline_completion_async(asked()) or []  # type: ignore[misc]
            assert item.insert_text == "urn"
            assert await asyncio.to_thread(peer.left.wait, 20)
            assert await waiting == []

    asyncio.run(scene())


def framed(body: bytes) -> bytes:
    """A message behind its head."""
    return b"Content-Length: %d\r\n\r\n%s" % (len(body), body)


def driven(sent: bytes) -> tuple[list[tuple[object, object]], str, int]:
    """The id and the error's code of each answer, what was complained of, and the exit code."""
    command = [sys.executable, "-m", "localspec.cli.main", "lsp"]
    done = subprocess.run(command, input=sent, capture_output=True, timeout=60, check=False)
    answers, rest = [], done.stdout
    while rest:
        head, _, rest = rest.partition(b"\r\n\r\n")
        length = int(head.split(b"\r\n")[0].partition(b":")[2])
        answer, rest = json.loads(rest[:length]), rest[length:]
        answers.append((answer.get("id"), answer.get("error", {}).get("code")))
    return answers, done.stderr.decode(), done.returncode


STARTS = b'{"jsonrpc": "2.0", "id": 7, "method": "initialize", "params": {"capabilities": {}}}'


@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
def test_any_loopback_address_is_asked(host: str) -> None:
    """One of IPv6 stands in brackets in a URL."""

    async def answered(_: web.Request) -> web.Response:
        return web.json_response({"content": "urn"})

    async def scene() -> str:
        app = web.Application()
        app.router.add_post("/infill", answered)
        async with TestServer(app, host=host) as server:
            return await infill(Client(tcp=(host, server.port or 0)), {})

    assert asyncio.run(scene()) == "urn"


NO_MESSAGES = {
    b"[]": (None, -32600),
    b"[1, 2]": (None, -32600),
    b"3": (None, -32600),
    b"null": (None, -32600),
    b"{}": (None, -32600),
    b"{": (None, -32700),
    b"\xff\xfe": (None, -32700),
    b"[" * 100_000: (None, -32700),
    b'{"jsonrpc": "1.0", "id": 1, "method": "shutdown"}': (1, -32600),
    b'{"jsonrpc": "2.0", "id": 1}': (1, -32600),
    b'{"jsonrpc": "2.0", "id": 2, "method": 5}': (2, -32600),
    b'{"jsonrpc": "2.0", "id": [], "method": "shutdown"}': (None, -32600),
    b'{"jsonrpc": "2.0", "id": null, "method": "shutdown"}': (None, -32600),
    b'{"jsonrpc": "2.0", "id": 3, "method": "shutdown", "params": 1}': (3, -32600),
    b'{"jsonrpc": "2.0", "id": "x", "method": "initialize", "params": {}}': ("x", -32602),
}


def test_what_is_no_message_gets_an_error_and_the_next_is_answered(peer: Peer) -> None:
    """JSON-RPC's errors, with the id where one can be read."""
    assert peer
    sent = b"".join(map(framed, NO_MESSAGES)) + framed(STARTS)
    answers, complaint, code = driven(sent)
    assert answers == [*NO_MESSAGES.values(), (7, None)]
    assert (complaint, code) == ("", 0)


@pytest.mark.parametrize(
    "head",
    [
        b"Content-Length: 9000000000000000000000\r\n\r\n",
        b"Content-Length: 3000000000\r\n\r\n",
        b"Content-Length: -5\r\n\r\n",
        b"Content-Length: five\r\n\r\n",
        b"Content-Type: x\r\n\r\n",
        b"x" * 100_000,
        b"X: y\r\n" * 1000,
    ],
    ids=["vast", "3 GB", "negative", "word", "none", "long line", "many lines"],
)
def test_behind_a_head_that_is_none_it_ends_with_a_sentence(peer: Peer, head: bytes) -> None:
    """Where the next message begins nobody knows."""
    assert peer
    answers, complaint, code = driven(framed(STARTS) + head + b"{}")
    assert sorted(answers, key=str) == [(7, None), (None, -32700)]
    assert "message" in complaint
    assert "bug" not in complaint
    assert code == 2
