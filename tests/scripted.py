"""A scripted peer: a real HTTP server on a real Unix socket that says what a test tells it to."""

from __future__ import annotations

import json
import os
import socketserver
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any, Self

PATIENCE_SECONDS = 30.0

TIMINGS = {
    "cache_n": 96,
    "prompt_n": 20,
    "prompt_ms": 100.0,
    "prompt_per_second": 200.0,
    "predicted_n": 212,
    "predicted_ms": 4407.0,
    "predicted_per_second": 48.1,
    "draft_n": 180,
    "draft_n_accepted": 128,
}
SPECULATION = {
    "reason": "speculating",
    "verify": "coupled",
    "rounds": 84,
    "drafted": 180,
    "accepted": 128,
    "sources": {
        "lookup": {
            "drafted": 130,
            "accepted": 102,
            "drafted_by_position": [100, 30],
            "accepted_by_position": [87, 15],
        },
        "model": {
            "drafted": 50,
            "accepted": 26,
            "drafted_by_position": [50],
            "accepted_by_position": [26],
        },
    },
    "draft_seconds": 0.9,
    "verify_seconds": 3.3,
    "host_seconds": 0.05,
    "ttft_seconds": 0.14,
    "seed": 7,
}
USAGE = {
    "prompt_tokens": 116,
    "completion_tokens": 212,
    "total_tokens": 328,
    "prompt_tokens_details": {"cached_tokens": 96},
}


def chunk(text: str = "", finish: str | None = None, **extra: Any) -> bytes:
    """One chunk of a chat stream as a line of server-sent events."""
    choice = {"index": 0, "delta": {"content": text} if text else {}, "finish_reason": finish}
    return event({"object": "chat.completion.chunk", "model": "tiny", "choices": [choice], **extra})


def event(value: object) -> bytes:
    """One server-sent event."""
    return b"data: " + json.dumps(value).encode() + b"\n\n"


def answer(*texts: str, **report: Any) -> list[bytes]:
    """A whole answer in pieces, with the figures of a run; `report` changes the speculation."""
    speculation = {**SPECULATION, **report}
    return [
        *(chunk(text) for text in texts),
        chunk(finish="stop", timings=TIMINGS, speculation=speculation),
        event({"model": "tiny", "choices": [], "usage": USAGE}),
        b"data: [DONE]\n\n",
    ]


@dataclass
class Asked:
    """One request as it arrived."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]


@dataclass
class Peer:
    """The server. `streams` are answered to POSTs in order; use in `with`.

    A stream that does not end in [DONE] is held open until the client leaves, unless `drop` is
    set; `held` is set meanwhile, and `left` then. `statuses` come one by one, then `status`.
    """

    streams: list[list[bytes] | tuple[int, object]] = field(default_factory=list)
    status: dict[str, Any] = field(default_factory=lambda: {"pid": os.getpid(), "models": []})
    statuses: list[dict[str, Any]] = field(default_factory=list)
    models: list[dict[str, Any]] = field(default_factory=list)
    drop: bool = False
    tcp: bool = False
    asked: list[Asked] = field(default_factory=list)
    left: threading.Event = field(default_factory=threading.Event)
    held: threading.Event = field(default_factory=threading.Event)
    port: int = 0
    server: str = "scripted"

    def __enter__(self) -> Self:
        self._directory = tempfile.TemporaryDirectory(prefix="ls")  # a path of few bytes
        self.socket_path = Path(self._directory.name) / "s"
        handler = type("Handler", (_Handler,), {"peer": self})
        self._server: socketserver.BaseServer
        if self.tcp:
            server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), handler)
            self.port = server.socket.getsockname()[1]
            self._server = server
        else:
            path = str(self.socket_path)
            self._server = socketserver.ThreadingUnixStreamServer(path, handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
        self._directory.cleanup()

    @property
    def question(self) -> dict[str, Any]:
        """The body of the last request that had one."""
        return next(asked.body for asked in reversed(self.asked) if asked.body)

    @property
    def host(self) -> str:
        """The LOCALSPEC_HOST that reaches this peer."""
        return f"127.0.0.1:{self.port}" if self.tcp else f"unix://{self.socket_path}"


class _Handler(BaseHTTPRequestHandler):
    peer: Peer
    protocol_version = "HTTP/1.1"

    def log_message(self, *_: object) -> None:
        """Tests speak for themselves."""

    def do_GET(self) -> None:
        self.peer.asked.append(Asked(self.path, dict(self.headers), {}))
        known: dict[str, object] = {
            "/v1/status": self.peer.statuses.pop(0) if self.peer.statuses else self.peer.status,
            "/v1/models": {"object": "list", "data": self.peer.models},
        }
        self._json(200, known[self.path])

    def version_string(self) -> str:
        """The header "Server"."""
        return self.peer.server

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.peer.asked.append(Asked(self.path, dict(self.headers), body))
        if self.path == "/v1/models/load":
            self._json(200, {"model": body["model"] or "tiny", "status": "loading"})
            return
        reply = self.peer.streams.pop(0)
        if isinstance(reply, tuple):
            self._json(*reply)
            return
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        try:
            for part in _halves(reply):
                self.wfile.write(b"%x\r\n%s\r\n" % (len(part), part))
            self._end(reply)
        except ConnectionError:
            self.peer.left.set()
        self.close_connection = True

    def _end(self, reply: list[bytes]) -> None:
        if reply and b"[DONE]" in reply[-1]:
            self.wfile.write(b"0\r\n\r\n")
        elif not self.peer.drop:
            self.connection.settimeout(PATIENCE_SECONDS)
            self.peer.held.set()
            if not self.connection.recv(1):
                self.peer.left.set()

    def _json(self, status: int, value: object) -> None:
        data = value if isinstance(value, bytes) else json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)


def _halves(lines: list[bytes]) -> Iterator[bytes]:
    """Each line in two chunks, because the edges of chunks must not matter."""
    for line in lines:
        middle = len(line) // 2
        yield line[:middle]
        yield line[middle:]
