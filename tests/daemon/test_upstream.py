"""Remote models: requests forwarded to a real server, and to servers that misbehave."""

from __future__ import annotations

import asyncio
import json
import shutil
import ssl
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from aiohttp import web
from worker_hosts import free_address

Handler: TypeAlias = Callable[[web.Request], Awaitable[web.StreamResponse]]

CHAT = {"id": "1", "object": "chat.completion", "choices": [{"message": {"content": "far"}}]}


@asynccontextmanager
async def server(handler: Handler, context: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    """Runs a server that answers every path by `handler`; yields its address."""
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", handler)
    runner = web.AppRunner(app, handler_cancellation=True)
    await runner.setup()
    address = free_address()
    host, _, port = address.partition(":")
    await web.TCPSite(runner, host, int(port), ssl_context=context).start()
    try:
        yield f"http{'s' if context else ''}://{address}"
    finally:
        await runner.cleanup()


def upstream(harness: Any, url: str, **fields: Any) -> None:
    """Configures an upstream that serves the model `far`."""
    harness.configure(**{"upstream.rack": {"url": f"{url}/v1", "models": ["far"], **fields}})


def run(daemon: Any, harness: Any, handler: Handler, scene: Any, **fields: Any) -> None:
    """Runs a scene with a daemon whose upstream is `handler`."""

    async def play() -> None:
        async with server(handler) as url:
            upstream(harness, url, **fields)
            async with daemon(harness) as it:
                await scene(it)

    asyncio.run(play())


async def sse(request: web.Request, *lines: bytes) -> web.StreamResponse:
    """Returns a stream of these lines that then ends."""
    response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
    await response.prepare(request)
    for line in lines:
        await response.write(line + b"\n\n")
    return response


def test_what_is_forwarded_is_the_body_and_nothing_of_the_client(
    harness: Any, daemon: Any, tmp_path: Path
) -> None:
    """Unknown fields stay, LocalSpec's go; no header or cookie passes; the token is added."""
    seen: list[tuple[str, str, dict[str, str], Any]] = []
    token = tmp_path / "token"
    token.write_text("secret\n")
    token.chmod(0o600)

    async def handler(request: web.Request) -> web.StreamResponse:
        seen.append((request.method, request.path, dict(request.headers), await request.json()))
        return web.json_response(CHAT, headers={"Set-Cookie": "id=1", "X-Other": "1"})

    async def scene(it: Any) -> None:
        body = {
            "model": "far", "messages": [{"role": "user", "content": "x"}], "n": 2,
            "tools": [{"type": "function"}], "speculation": {"mode": "off"}, "return_origins": True,
        }  # fmt: skip
        headers = {"Cookie": "a=b", "X-Mine": "1", "Authorization": "Bearer mine"}
        for _ in range(2):
            async with it.http.post("/v1/chat/completions", json=body, headers=headers) as got:
                assert got.status == 200
                assert "Set-Cookie" not in got.headers
                assert "X-Other" not in got.headers
                assert await got.read() == json.dumps(CHAT, separators=(",", ":")).encode()
        assert (await it.post("/v1/completions", {"model": "far", "prompt": "x"}))[0] == 200

    run(daemon, harness, handler, scene, token_file=str(token))
    assert [path for _, path, _, _ in seen] == ["/v1/chat/completions"] * 2 + ["/v1/completions"]
    for method, _, headers, body in seen:
        assert method == "POST"
        assert headers.pop("Authorization") == "Bearer secret"
        assert set(headers) == {
            "Host", "Content-Type", "Content-Length", "Accept", "Accept-Encoding", "User-Agent",
            "Connection",
        }  # fmt: skip
        assert not {"speculation", "return_origins"} & set(body)
        assert body["model"] == "far"
    assert seen[0][3]["tools"] == [{"type": "function"}]


def test_nothing_that_is_not_named_is_ever_forwarded(harness: Any, daemon: Any) -> None:
    """Local models, unknown ones and other endpoints never reach the upstream."""
    heard: list[str] = []

    async def handler(request: web.Request) -> web.StreamResponse:
        heard.append(request.path)
        return web.json_response(CHAT)

    async def scene(it: Any) -> None:
        assert (await it.ask("say hello"))[0] == 200
        assert (await it.ask("say hello", model="alpha"))[0] == 200
        assert (await it.ask("say hello", model="farther"))[0] == 404
        for path in ("/v1/models/load", "/v1/models/unload"):
            status, answer = await it.post(path, {"model": "far"})
            assert status == 400
            assert "upstream rack" in answer["error"]["message"]
        replay = {"model": "far", "prompt": "x", "text": "y"}
        assert (await it.post("/v1/replay", replay))[0] == 400
        assert (await it.post("/v1/embeddings", {"model": "far", "input": "x"}))[0] == 400
        assert heard == []
        assert (await it.ask("hello", model="far"))[0] == 200

    run(daemon, harness, handler, scene)
    assert heard == ["/v1/chat/completions"]


def test_a_model_that_is_here_answers_itself_also_where_an_upstream_names_it(
    harness: Any, daemon: Any
) -> None:
    """A local model stays local; a remote default is forwarded."""

    async def handler(request: web.Request) -> web.StreamResponse:
        return web.json_response(CHAT | {"asked": (await request.json())["model"]})

    async def scene(it: Any) -> None:
        assert "far" not in json.dumps((await it.ask("say hello", model="alpha"))[1]["choices"])
        _, answer = await it.ask("say hello")
        assert answer["asked"] == "far"
        listed = {card["id"]: card for card in (await it.get("/v1/models"))["data"]}
        assert list(listed) == ["far", "alpha"], "the default first"
        assert listed["alpha"]["owned_by"] == "llamacpp"
        assert listed["far"]["owned_by"] == "upstream:rack"
        assert (await it.get("/v1/models/far"))["upstream"]["name"] == "rack"
        status = await it.get("/v1/status")
        assert status["upstreams"][0]["models"] == ["far", "alpha"]

    harness.configure(models={"default": "far"})
    run(daemon, harness, handler, scene, models=["far", "alpha"])


def test_a_stream_passes_through_chunk_by_chunk(harness: Any, daemon: Any) -> None:
    """Each chunk arrives before the next is sent; metrics and log count it."""
    go_on = asyncio.Event()

    async def handler(request: web.Request) -> web.StreamResponse:
        response = await sse(request, b'data: {"n": 1}')
        await go_on.wait()
        await response.write(b'data: {"n": 2}\n\ndata: [DONE]\n\n')
        return response

    async def scene(it: Any) -> None:
        async with it.streaming("hello", model="far") as stream:
            assert await stream.next("data:") == 'data: {"n":1}'
            go_on.set()
            assert await stream.rest() == ['data: {"n":2}', "data: [DONE]"]
        assert it.server.supervisor.tallies["far"].requests["forwarded"] == 1

    run(daemon, harness, handler, scene)


def test_a_client_that_leaves_is_gone_upstream_too(harness: Any, daemon: Any) -> None:
    """Both before the first word and in mid-stream."""
    cancelled: asyncio.Queue[str] = asyncio.Queue()
    reached: asyncio.Queue[str] = asyncio.Queue()

    async def handler(request: web.Request) -> web.StreamResponse:
        streamed = (await request.json()).get("stream")
        try:
            if streamed:
                await sse(request, b'data: {"n":1}')
            reached.put_nowait("")
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            cancelled.put_nowait("stream" if streamed else "whole")
            raise
        raise AssertionError

    async def scene(it: Any) -> None:
        asking = asyncio.create_task(it.ask("hello", model="far"))
        await reached.get()
        asking.cancel()
        assert await cancelled.get() == "whole"
        async with it.streaming("hello", model="far") as stream:
            await stream.next("data:")
        assert await cancelled.get() == "stream"

    run(daemon, harness, handler, scene)


async def redirecting(request: web.Request) -> web.StreamResponse:
    """Redirects to another server, and back."""
    if request.path == "/trap":
        return web.json_response(CHAT)
    raise web.HTTPTemporaryRedirect("/trap")


async def packed(_request: web.Request) -> web.StreamResponse:
    """Sends an encoding that was not requested."""
    return web.Response(body=b"x" * 20, headers={"Content-Encoding": "gzip"})


async def a_page(_request: web.Request) -> web.StreamResponse:
    """Sends a proxy's HTML page."""
    return web.Response(text="<html>busy</html>", content_type="text/html")


async def endless(request: web.Request) -> web.StreamResponse:
    """Sends zeros for ever."""
    response = web.StreamResponse(headers={"Content-Type": "application/json"})
    await response.prepare(request)
    while True:
        await response.write(bytes(1024 * 1024))


async def silent(_request: web.Request) -> web.StreamResponse:
    """Reads the request and never answers."""
    await asyncio.Event().wait()
    raise AssertionError


@pytest.mark.parametrize(
    ("handler", "status", "words"),
    [
        (redirecting, 502, "redirects, and that is not followed"),
        (packed, 502, "encoding that was not asked for"),
        (a_page, 502, "not a JSON object"),
        (endless, 502, "more than 67108864 bytes"),
        (silent, 503, "sent nothing for 0.2 s"),
    ],
)
def test_an_upstream_that_misbehaves_is_an_error_with_its_name(
    harness: Any, daemon: Any, handler: Handler, status: int, words: str
) -> None:
    """Whole or streamed, the client gets a sentence in bounded time."""

    async def scene(it: Any) -> None:
        got, answer = await it.ask("hello", model="far")
        assert got == status
        assert answer["error"]["message"].startswith("The upstream rack (http://127.0.0.1:")
        assert words in answer["error"]["message"]
        got, answer = await it.ask("hello", model="far", stream=True)
        assert got == status

    run(daemon, harness, handler, scene, idle_seconds=0.2)


def test_a_stream_that_breaks_ends_with_an_error_event(harness: Any, daemon: Any) -> None:
    """Cut off, silent, in error, endless: the last event has the reason."""
    ends: dict[str, tuple[str, str]] = {
        "cut": ("upstream_failed", "broke off"),
        "aborted": ("upstream_failed", "broke off"),
        "silent": ("upstream_unavailable", "sent nothing"),
        "error": ("upstream_failed", "failed: too hot"),
        "endless": ("upstream_failed", "without end"),
    }

    async def handler(request: web.Request) -> web.StreamResponse:
        how = (await request.json())["messages"][0]["content"]
        response = await sse(request, b'data: {"n":1}')
        if how == "aborted":
            assert request.transport
            request.transport.abort()
        if how == "silent":
            await asyncio.Event().wait()
        if how == "error":
            await response.write(b'data: {"error":{"message":"too hot"}}\n\n')
        while how == "endless":
            await response.write(bytes(1024 * 1024))
        return response

    async def scene(it: Any) -> None:
        for how, (code, words) in ends.items():
            async with it.streaming(how, model="far") as stream:
                assert await stream.next("data:") == 'data: {"n":1}'
                lines = await stream.rest()
            error = json.loads(lines[-1].removeprefix("data: "))["error"]
            assert (error["code"], words in error["message"]) == (code, True), (how, error)
            assert it.server.supervisor.tallies["far"].requests[code]
        assert it.server.supervisor.upstreams.open == 0

    run(daemon, harness, handler, scene, idle_seconds=0.3)


def test_a_token_file_that_is_no_secret_is_refused(
    harness: Any, daemon: Any, tmp_path: Path
) -> None:
    """Missing, readable by others, empty, of two lines: a sentence, and nothing is sent."""
    token = tmp_path / "token"

    async def handler(_request: web.Request) -> web.StreamResponse:
        raise AssertionError("reached")

    async def scene(it: Any) -> None:
        for text, mode, words in (
            (None, 0, "cannot be read"), ("secret", 0o644, "others may read"),
            ("", 0o600, "not one line"), ("a\nb", 0o600, "not one line"),
            ("sécret", 0o600, "cannot be read"),
        ):  # fmt: skip
            if text is not None:
                token.write_text(text)
                token.chmod(mode)
            status, answer = await it.ask("hello", model="far")
            assert (status, answer["error"]["code"]) == (400, "config_error")
            assert words in answer["error"]["message"]

    run(daemon, harness, handler, scene, token_file=str(token))


def test_as_many_are_forwarded_at_once_as_may_wait_here(harness: Any, daemon: Any) -> None:
    """One more gets 429."""
    reached, go_on = asyncio.Event(), asyncio.Event()

    async def handler(_request: web.Request) -> web.StreamResponse:
        reached.set()
        await go_on.wait()
        return web.json_response(CHAT)

    async def scene(it: Any) -> None:
        first = asyncio.create_task(it.ask("hello", model="far"))
        await reached.wait()
        assert (await it.ask("hello", model="far"))[0] == 429
        go_on.set()
        assert (await first)[0] == 200

    harness.configure(server={"max_queue": 1})
    run(daemon, harness, handler, scene)


def test_a_drain_that_is_over_ends_what_is_forwarded(harness: Any, daemon: Any) -> None:
    """A forwarded stream ends with an event that gives the reason, as every other."""

    async def handler(request: web.Request) -> web.StreamResponse:
        await sse(request, b'data: {"n":1}')
        await asyncio.Event().wait()
        raise AssertionError

    async def scene(it: Any) -> None:
        async with it.streaming("hello", model="far") as stream:
            await stream.next("data:")
            it.server.stop()
            lines = await stream.rest()
        assert json.loads(lines[-1].removeprefix("data: "))["error"]["code"] == "server_shutdown"

    harness.configure(server={"drain_seconds": 0.1})
    run(daemon, harness, handler, scene)


@pytest.mark.skipif(not shutil.which("openssl"), reason="makes the certificate")
def test_a_certificate_is_verified(harness: Any, daemon: Any, tmp_path: Path) -> None:
    """An untrusted one is refused before anything is sent."""
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2",
         "-subj", "/CN=localhost", "-keyout", tmp_path / "key", "-out", tmp_path / "certificate"],
        check=True, capture_output=True,
    )  # fmt: skip
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "certificate", tmp_path / "key")

    async def handler(_request: web.Request) -> web.StreamResponse:
        raise AssertionError("reached")

    async def play() -> None:
        async with server(handler, context) as url:
            upstream(harness, url)
            async with daemon(harness) as it:
                status, answer = await it.ask("hello", model="far")
                assert (status, answer["error"]["code"]) == (502, "upstream_failed")
                assert "cannot be trusted" in answer["error"]["message"]
                assert "SSL_CERT_FILE" in answer["error"]["fix"]

    asyncio.run(play())


def test_an_upstream_that_is_not_there_is_named_with_what_to_do(harness: Any, daemon: Any) -> None:
    """503; without the upstream's configuration the model is unknown."""
    address = free_address()

    async def play() -> None:
        upstream(harness, f"http://{address}")
        async with daemon(harness) as it:
            for stream in (False, True):
                status, answer = await it.ask("hello", model="far", stream=stream)
                assert (status, answer["error"]["code"]) == (503, "upstream_unavailable")
                assert answer["error"]["message"] == (
                    f"The upstream rack (http://{address}/v1) does not answer: Connection refused."
                )
                assert answer["error"]["fix"] == "Start it, or correct upstream.rack.url."
            del harness.settings["upstream.rack"]
            harness.configure()
            await it.server.supervisor.reload(changed=True)
            assert (await it.ask("hello", model="far"))[0] == 404

    asyncio.run(play())
