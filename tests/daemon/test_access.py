"""Access control: browsers, other users and endless senders against a running daemon."""

from __future__ import annotations

import asyncio
import itertools
import json
import socket
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from multidict import CIMultiDict, CIMultiDictProxy
from serving import tcp_client

from localspec import config, paths, web_origins
from localspec.errors import ConfigError, Forbidden
from localspec_daemon.http import access

ROUTES = [
    "/v1/chat/completions", "/v1/completions", "/v1/models", "/models", "/v1/models/alpha",
    "/v1/models/load", "/v1/models/unload", "/v1/status", "/health", "/v1/health", "/metrics",
    "/", "/nowhere", "/api/chat", "/v1/messages", "/completion", "/models/sse", "/tokenize",
]  # fmt: skip
POST = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
ORIGINS = ["http://evil.example", "null", "http://localhost:1", "http://127.0.0.1.evil.example"]


def headers(*pairs: tuple[str, str]) -> CIMultiDictProxy[str]:
    """Returns request headers."""
    return CIMultiDictProxy(CIMultiDict(pairs))


def test_no_web_page_reaches_any_route_by_any_method(harness: Any, daemon: Any) -> None:
    """403 before routing, without a CORS header, for every route, method and origin."""

    async def scene() -> None:
        async with daemon(harness) as it:
            methods = ["GET", "POST", "PUT", "DELETE", "OPTIONS", "PATCH"]
            marks = [{"Origin": origin} for origin in ORIGINS]
            marks += [{"Sec-Fetch-Site": site} for site in ("cross-site", "same-site")]
            for path, method, mark in itertools.product(ROUTES, methods, marks):
                async with it.http.request(method, path, headers=mark) as response:
                    assert response.status == 403, (path, method, mark)
                    assert not any(
                        name.lower().startswith("access-control") for name in response.headers
                    )
            assert not it.server.supervisor.pool.models

    asyncio.run(scene())


def test_a_form_or_plain_text_is_no_json_on_tcp(harness: Any, daemon: Any) -> None:
    """415 on TCP for bodies that a web page can send without preflight; the socket takes them."""
    harness.configure(server={"tcp": "127.0.0.1:0"})

    async def scene() -> None:
        async with daemon(harness) as it, tcp_client(it) as http:
            kinds = ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data")
            for client, expected in ((http, 415), (it.http, 200)):
                async with client.post("/v1/completions", data=b'{"prompt":"say x"}') as response:
                    assert response.status == 200, "without a type it is no form"
                for kind in kinds:
                    async with client.post(
                        "/v1/completions",
                        data=b'{"prompt":"say x"}',
                        headers={"Content-Type": kind},
                    ) as response:
                        assert response.status == expected
                        begins = b'{"error":{' if expected == 415 else b'{"id":'
                        assert (await response.read()).startswith(begins)

    asyncio.run(scene())


def test_a_curl_without_a_content_type_is_answered_on_the_socket(harness: Any, daemon: Any) -> None:
    """Editors' scripts send such requests."""

    async def scene() -> None:
        async with daemon(harness):
            process = await asyncio.create_subprocess_exec(
                "curl", "-s", "--unix-socket", str(harness.socket), "http://x/v1/completions",
                "-d", '{"prompt":"say hi"}', stdout=asyncio.subprocess.PIPE,
            )  # fmt: skip
            out, _ = await process.communicate()
            assert json.loads(out)["choices"][0]["text"] == "hi"

    asyncio.run(scene())


def test_any_host_is_fine_on_the_socket(harness: Any, daemon: Any) -> None:
    """Clients make up a host name for a Unix socket."""

    async def scene() -> None:
        async with daemon(harness) as it:
            for host in ("localspec", "x", "evil.example", ""):
                async with it.http.get("/health", headers={"Host": host}) as response:
                    assert response.status == 200

    asyncio.run(scene())


@pytest.mark.parametrize("address", ["127.0.0.1", "127.0.0.2", "[::1]"])
def test_tcp_needs_the_token_and_the_right_host(harness: Any, daemon: Any, address: str) -> None:
    """401 without it, 403 for a rebound name, 200 with both, whichever loopback address it is."""
    harness.configure(server={"tcp": f"{address}:0"})

    async def scene() -> None:
        async with daemon(harness) as it, tcp_client(it, token="") as http:
            bound = (await it.get("/v1/status"))["tcp"]
            port = bound.rpartition(":")[2]
            token = (paths.state_dir() / "token").read_text().strip()
            right = {"Authorization": f"Bearer {token}"}
            for sent, status in (
                ({}, 401),
                ({"Authorization": f"Bearer {token}x"}, 401),
                ({"Authorization": f"Basic {token}"}, 401),
                ({"Authorization": "Bearer "}, 401),
                ({"X-Api-Key": f"{token}x"}, 401),
                (right | {"X-Api-Key": "other"}, 401),
                ({"X-Api-Key": token}, 200),
                (right, 200),
                (right | {"Host": f"{address}:{port}"}, 200),
                (right | {"Host": f"localhost:{port}"}, 200),
                (right | {"Host": "localhost"}, 403),
                (right | {"Host": f"evil.example:{port}"}, 403),
                (right | {"Origin": "http://localhost"}, 403),
            ):
                async with http.get("/v1/models", headers=sent) as response:
                    assert response.status == status, sent
                    text = await response.text()
                    assert token not in text
                    if status == 401:
                        assert json.loads(text)["error"]["code"] == "invalid_api_key"
            for path in ("/health", "/v1/health"):
                async with http.get(path) as response:
                    assert response.status == 200
            async with http.get("/health", headers={"Host": "evil.example"}) as response:
                assert response.status == 403

    asyncio.run(scene())


def test_an_editors_webview_may_speak_and_no_other_page(harness: Any, daemon: Any) -> None:
    """A webview gets CORS headers and still needs the token; a web page gets neither."""
    harness.configure(server={"tcp": "127.0.0.1:0", "origins": ["vscode-webview://*"]})
    ask = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "x-a"}

    async def scene() -> None:
        async with daemon(harness) as it, tcp_client(it) as http, tcp_client(it, token="") as bare:
            editor = {"Origin": "vscode-webview://1ab", "Sec-Fetch-Site": "cross-site"}
            async with bare.options("/v1/chat/completions", headers=editor | ask) as response:
                assert response.status == 204
                assert response.headers["Access-Control-Allow-Methods"] == "POST"
                assert response.headers["Access-Control-Allow-Headers"] == "x-a"
            async with http.get("/v1/models", headers=editor) as response:
                assert response.status == 200
                shared = response.headers["Access-Control-Allow-Origin"]
                assert (shared, response.headers["Vary"]) == (editor["Origin"], "Origin")
            async with bare.get("/v1/models", headers=editor) as response:
                assert response.status == 401
            for origin in (*ORIGINS, "app://obsidian.md", "x-vscode-webview://1ab"):
                for sent in ({"Origin": origin}, {"Origin": origin} | ask):
                    async with http.options("/v1/models", headers=sent) as response:
                        assert response.status == 403
                        assert "Access-Control-Allow-Origin" not in response.headers

    asyncio.run(scene())


@pytest.mark.parametrize(
    "origins",
    [
        ["*"],
        ["*://x"],
        ["https://*"],
        ["http://localhost:*"],
        ["obsidian.md"],
        [""],
        ["?ttp://*"],
        ["h*p://x"],
        ["[h]ttp://*"],
        ["http://?"],
        ["HTTP://*"],
        ["http://[!a]"],
        ["http://a/*"],
        ["http://a/"],
        ["http://a b"],
        ["null"],
        ["://a"],
        ["http://"],
        ["http://a:99999"],
        ["http://a:b"],
        ["http://user@a"],
        ["app://*", "?*://*"],
        ["ht\ntp://a"],
        ["http://a\n"],
        ["http*://a"],
        ["app://" + "a" * 500],
        ["h\u0442tp://a"],
    ],
)
def test_a_pattern_that_any_page_could_have_is_refused(origins: list[str]) -> None:
    """The error names the configuration's key; a single page may be allowed."""
    with pytest.raises(ConfigError, match=r"server\.origins"):
        config.parse(f"[server]\norigins = {json.dumps(origins)}")
    config.parse('[server]\norigins = ["http://localhost:3000", "app://*", "http://[::1]:8"]')


PARTS = st.text(st.sampled_from("ab*?[].:/!-hpst"), max_size=12)


@given(st.builds("{}://{}".format, PARTS, PARTS), st.sampled_from(["http", "https"]), PARTS)
def test_no_pattern_that_is_taken_is_for_two_pages_of_the_web(
    pattern: str, scheme: str, host: str
) -> None:
    """An accepted pattern of http or https matches a single origin, its own."""
    taken = not web_origins.wrong(pattern)
    origin = f"{scheme}://{host}"
    if taken and web_origins.matches(origin, [pattern]):
        assert origin == pattern
    if taken and "*" not in pattern:
        assert web_origins.matches(pattern, [pattern])
    assert not web_origins.matches(origin, [pattern]) or taken


def test_a_star_is_for_the_name_and_nothing_else() -> None:
    """A star matches a webview's name; another scheme or port is another origin."""
    editor = ["vscode-webview://*", "http://[::1]:3000"]
    assert web_origins.matches("vscode-webview://1ab", editor)
    assert web_origins.matches("http://[::1]:3000", editor)
    others = ["x-vscode-webview://1ab", "http://1:3000", "http://a"]
    others += [f"vscode-webview://{rest}" for rest in ("", "*", "a/b", "a\n")]
    for origin in others:
        assert not web_origins.matches(origin, editor), origin


def test_nobody_is_asked_to_go_on_before_the_token_was_seen(harness: Any, daemon: Any) -> None:
    """`Expect: 100-continue` gets 401 without the token; with it the body is requested."""
    harness.configure(server={"tcp": "127.0.0.1:0"})

    async def scene() -> None:
        async with daemon(harness) as it:
            host, _, port = (await it.get("/v1/status"))["tcp"].rpartition(":")
            token = (paths.state_dir() / "token").read_text().strip()
            body = b'{"prompt":"say hi"}'
            head = (
                f"POST /v1/completions HTTP/1.1\r\nHost: {host}:{port}\r\nConnection: close\r\n"
                f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
            )
            for extra, begins in (
                ("Expect: 100-continue\r\n", b"HTTP/1.1 401 "),
                (f"X-Api-Key: {token}\r\nExpect: 100-continue\r\n", b"HTTP/1.1 100 "),
                (f"X-Api-Key: {token}\r\nExpect: <script>\r\n", b"HTTP/1.1 417 "),
            ):
                reader, writer = await asyncio.open_connection(host, int(port))
                writer.write((head + extra + "\r\n").encode())
                answer = await reader.readuntil(b"\r\n")
                assert answer.startswith(begins)
                writer.write(body)
                rest = await reader.read()
                assert b"<script>" not in rest
                assert (b"HTTP/1.1 200 " in rest) == (begins == b"HTTP/1.1 100 ")
                writer.close()

    asyncio.run(scene())


def test_without_the_setting_nothing_listens_on_tcp(harness: Any, daemon: Any) -> None:
    """Without server.tcp only the socket is open."""

    async def scene() -> None:
        async with daemon(harness) as it:
            assert (await it.get("/v1/status"))["tcp"] is None
            assert not (paths.state_dir() / "token").exists()

    asyncio.run(scene())


@given(st.text(st.characters(min_codepoint=33, max_codepoint=126), max_size=30))
def test_only_names_of_loopback_with_this_port_pass(host: str) -> None:
    """Host names are checked against an allow-list."""
    allowed = {"127.0.0.1:8080", "localhost:8080", "[::1]:8080"}
    for name in (host, *(name + host for name in allowed), *(host + name for name in allowed)):
        if name.lower() in allowed:
            access.check_host(headers(("Host", name)), "127.0.0.1", 8080)
        else:
            with pytest.raises(Forbidden):
                access.check_host(headers(("Host", name)), "127.0.0.1", 8080)


def test_two_hosts_or_none_are_refused() -> None:
    """A proxy and a server could read such requests differently."""
    right = ("Host", "localhost:1")
    for pairs in ((), (right, right), (right, ("host", "evil.example"))):
        with pytest.raises(Forbidden):
            access.check_host(headers(*pairs), "127.0.0.1", 1)
    with pytest.raises(access.Unauthorized):
        access.check_token(
            headers(("Authorization", "Bearer a"), ("Authorization", "Bearer b")), b""
        )


def test_a_body_over_the_limit_is_refused_announced_or_not(harness: Any, daemon: Any) -> None:
    """413, with a length and without one, before it is parsed."""
    harness.configure(server={"max_body_bytes": 2048})

    async def scene() -> None:
        async with daemon(harness) as it:
            status, answer = await it.ask("x" * 5000)
            assert (status, answer["error"]["code"]) == (413, "too_large")

            async def endless() -> Any:
                for _ in range(100):
                    yield b" " * 100

            kind = {"Content-Type": "application/json"}
            async with it.http.post("/v1/completions", data=endless(), headers=kind) as response:
                assert response.status == 413
                assert json.loads(await response.read())["error"]["fix"]

    asyncio.run(scene())


@pytest.mark.parametrize(
    "request_",
    [
        b"GET /health\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
        POST + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\nabc",
        POST + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\nabc",
        POST + b"Transfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"GET /" + b"x" * 20_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: x\r\nX: " + b"y" * 20_000 + b"\r\n\r\n",
        b"GET /health HTTP/1.1\r\n" + b"X: y\r\n" * 200 + b"\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(64),
        b"\x00" * 64 + b"\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost : x\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: x\r\n folded: y\r\n\r\n",
    ],
)
def test_malformed_http_gets_4xx_and_the_next_request_an_answer(
    harness: Any, daemon: Any, request_: bytes
) -> None:
    """Random bytes end their own connection and nothing else."""

    async def scene() -> None:
        async with daemon(harness) as it:
            reader, writer = await asyncio.open_unix_connection(harness.socket)
            writer.write(request_)
            writer.write_eof()
            answer = await reader.read()
            writer.close()
            if answer:
                head, _, body = answer.partition(b"\r\n\r\n")
                assert 400 <= int(head.split()[1]) < 500
                assert json.loads(body)["error"]["type"] == "invalid_request_error"
                assert b"yyyy" not in body
                assert b"xxxx" not in body
            assert await it.get("/health") == {"status": "ok"}

    asyncio.run(scene())


def test_a_client_that_closes_half_of_its_connection_disturbs_nobody(
    harness: Any, daemon: Any
) -> None:
    """After a half-close or a reset in mid-stream, another client's stream is complete."""

    async def scene() -> None:
        async with daemon(harness) as it:
            body = b'{"stream":true,"messages":[{"role":"user","content":"wait"}]}'
            head = b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n"
            head += b"Content-Type: application/json\r\n\r\n"
            for how in (socket.SHUT_WR, socket.SHUT_RDWR):
                reader, writer = await asyncio.open_unix_connection(harness.socket)
                writer.write(head % len(body) + body)
                await reader.readuntil(b"waiting")
                writer.get_extra_info("socket").shutdown(how)
                writer.close()  # who only writes no more is answered: test_halfclosed.py
                await it.until(lambda: it.model().requests == 0)
            async with it.streaming("say all is well") as stream:
                assert (await stream.rest())[-1] == "data: [DONE]"

    asyncio.run(scene())


def test_a_head_that_never_ends_is_not_waited_for(harness: Any, daemon: Any) -> None:
    """The server closes after a timeout, with or without bytes of a head."""

    async def scene() -> None:
        async with daemon(harness, idle_seconds=0.1):
            for sent in (b"", b"GET /health HTTP/1.1\r\nHost: x\r\nX-Slow: "):
                reader, writer = await asyncio.open_unix_connection(harness.socket)
                writer.write(sent)
                assert await reader.read() == b""
                writer.close()

    asyncio.run(scene())


def test_connections_over_the_limit_are_told_so_and_places_become_free(
    harness: Any, daemon: Any
) -> None:
    """One connection too many gets 503; after another has closed it gets an answer."""

    async def scene() -> None:
        async with daemon(harness, max_connections=2) as it:
            idle = [await asyncio.open_unix_connection(harness.socket) for _ in range(2)]
            for reader, writer in idle:  # an answer proves that the connection was taken
                writer.write(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
                await reader.readuntil(b"}")
            reader, writer = await asyncio.open_unix_connection(harness.socket)
            assert (await reader.read()).startswith(b"HTTP/1.1 503 ")
            writer.close()
            idle[0][1].write(b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            await idle[0][0].read()
            assert await it.get("/health") == {"status": "ok"}
            for _, writer in idle:
                writer.close()

    asyncio.run(scene())


@pytest.mark.parametrize(
    ("path", "begins"),
    [
        ("/v1/messages", b'{"error":{"type":"invalid_request_error"'),
        ("/api/chat", b'{"error":"The head'),
        ("/v1/responses", b'{"error":{"message":"The head'),
    ],
)
def test_a_head_that_is_too_large_is_told_in_the_shape_of_who_asked(
    harness: Any, daemon: Any, path: str, begins: bytes
) -> None:
    """The error has the dialect's shape, also on a reused connection."""

    async def scene() -> None:
        async with daemon(harness) as it:
            assert await it.get("/health")
            headers = {"X-Big": "y" * 100_000}
            async with it.http.post(path, json={}, headers=headers) as response:
                assert response.status == 431
                assert (await response.read()).startswith(begins)

    asyncio.run(scene())
