"""Fixtures: tiny models, and a fake Hub that serves them over real HTTP and fails on request."""

from __future__ import annotations

import hashlib
import json
import threading
import urllib.parse
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import gguf
import pytest
import tiny

from localspec.catalog.entries import Entry, HubFile
from localspec.catalog.transfer import Step

REPO = "someone/tiny-GGUF"


@pytest.fixture(scope="session")
def tiny_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sound model, read-only for all tests."""
    return tiny.build(tmp_path_factory.mktemp("tiny") / "tiny.gguf")


@pytest.fixture(scope="session")
def tiny_source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same weights in Q8_0, the source of an INT4 draft, read-only for all tests."""
    path = tmp_path_factory.mktemp("tiny") / "tiny-q8_0.gguf"
    return tiny.build(path, quantization=gguf.GGMLQuantizationType.Q8_0)


@dataclass
class Hub:
    """The state of the fake Hub: its files, its faults, and the requests received.

    Each of `repos` has all files; a gated one requires a token. `architecture` is the header's, as
    the Hub lists it, and `length` the Content-Length of HEAD for any file. The connection ends
    after `cut_after` bytes of a body, `cuts` times. With `hold` set, a file's response stops in the
    middle until the event is set. `ranges` are the Range headers received, and `sent` the statuses
    of the files sent. Unknown paths give 404. `validators` are headers of every file, such as an
    ETag; If-Range is compared with them unless `ignores_if_range`.
    """

    endpoint: str = ""
    files: dict[str, bytes] = field(default_factory=dict)
    listed_sha256: str | None = None
    lists: bool = True
    ignores_ranges: bool = False
    cut_after: int = 0
    cuts: int = 0
    status: int = 0
    redirect_to: str = ""
    hold: threading.Event | None = None
    gated: bool = False
    license: str = "apache-2.0"
    architecture: str = ""
    length: str | None = None
    repos: list[str] = field(default_factory=lambda: [REPO])
    ranges: list[str | None] = field(default_factory=list)
    sent: list[int] = field(default_factory=list)
    validators: dict[str, str] = field(default_factory=dict)
    ignores_if_range: bool = False
    tokens: list[tuple[str, str | None]] = field(default_factory=list)

    def listing(self) -> bytes:
        """The response to GET /api/models/.../tree/main."""
        return json.dumps(
            [
                {
                    "type": "file",
                    "path": name,
                    "size": len(data),
                    "lfs": {
                        "oid": self.listed_sha256 or hashlib.sha256(data).hexdigest(),
                        "size": len(data),
                    },
                }
                for name, data in self.files.items()
            ]
        ).encode()

    def described(self) -> bytes:
        """The response to GET /api/models/...?blobs=true."""
        files = [
            {"rfilename": item["path"], "size": item["size"], "lfs": {"sha256": item["lfs"]["oid"]}}
            for item in json.loads(self.listing())
        ]
        tags = ["gguf", f"license:{self.license}"]
        gated = "manual" if self.gated else False
        read = {"gguf": {"architecture": self.architecture}} if self.architecture else {}
        return json.dumps({"siblings": files, "gated": gated, "tags": tags, **read}).encode()

    def found(self, word: str) -> bytes:
        """The response to GET /api/models?search=..."""
        tags = ["gguf", f"license:{self.license}"]
        hits = [
            {"id": repo, "downloads": 12_345, "likes": 6, "tags": tags}
            for repo in self.repos
            if word.lower() in repo.lower()
        ]
        return json.dumps(hits).encode()


class _Answers(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    hub: Hub

    def do_GET(self) -> None:
        hub = self.hub
        hub.tokens.append((self.path, self.headers.get("Authorization")))
        if self.path.startswith("/api/models"):
            self._send(*self._api())
            return
        if hub.gated and "/resolve/" in self.path and not self.headers.get("Authorization"):
            self._send(403, b"")
            return
        if hub.redirect_to and "/resolve/" in self.path:
            self.send_response(302)
            self.send_header("Location", hub.redirect_to + self.path.rpartition("/")[2])
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        hub.ranges.append(self.headers.get("Range"))
        if hub.status:
            self._send(hub.status, b"")
            return
        data = hub.files.get(self.path.rpartition("/")[2])
        if data is None:
            self._send(404, b"")
            return
        wanted, known = self.headers.get("Range"), self.headers.get("If-Range")
        changed = known is not None and known not in hub.validators.values()
        if wanted is None or hub.ignores_ranges or (changed and not hub.ignores_if_range):
            hub.sent.append(200)
            self._send(200, data, hub.validators)
            return
        hub.sent.append(206)
        start = int(wanted.removeprefix("bytes=").removesuffix("-"))
        span = f"bytes {start}-{len(data) - 1}/{len(data)}"
        self._send(206, data[start:], {"Content-Range": span, **hub.validators})

    def do_HEAD(self) -> None:
        data = self.hub.files.get(self.path.rpartition("/")[2])
        self.send_response(404 if data is None else 200)
        length = self.hub.length
        self.send_header("Content-Length", str(len(data or b"")) if length is None else length)
        if data is not None:  # as the Hub describes a large file to its own programs
            self.send_header("X-Repo-Commit", "0" * 40)
            self.send_header("X-Linked-Etag", f'"{hashlib.sha256(data).hexdigest()}"')
            self.send_header("X-Linked-Size", str(len(data)))
        self.end_headers()

    def _api(self) -> tuple[int, bytes]:
        hub, url = self.hub, urllib.parse.urlsplit(self.path)
        query = urllib.parse.parse_qs(url.query)
        if "search" in query:
            return 200, hub.found(query["search"][0])
        repo = "/".join(url.path.split("/")[3:5])
        if not hub.lists or repo not in hub.repos:
            return 404, b""
        return 200, hub.described() if "blobs" in query else hub.listing()

    def _send(self, status: int, body: bytes, headers: dict[str, str] | None = None) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        self.end_headers()
        if "/api/" not in self.path and self.hub.cuts and len(body) > self.hub.cut_after:
            self.hub.cuts -= 1
            body = body[: self.hub.cut_after]
            self.close_connection = True
        if self.hub.hold is not None and "/resolve/" in self.path:
            half = len(body) // 2
            self.wfile.write(body[:half])
            self.hub.hold.wait(60)
            body = body[half:]
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base's name
        """Print nothing."""


class _Server(ThreadingHTTPServer):
    """A server that keeps the tracebacks of its threads to itself.

    Clients are interrupted on purpose, and other processes may connect by chance. Formatting a
    traceback parses source, which crashes CPython's `ast` when pytest does the same in its thread.
    """

    def handle_error(self, request: object, client_address: object) -> None:
        """Print nothing."""


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A Hub on loopback that HF_ENDPOINT points to."""
    served = Hub()
    server = _Server(("127.0.0.1", 0), type("Bound", (_Answers,), {"hub": served}))
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    served.endpoint = f"http://127.0.0.1:{server.server_port}"
    monkeypatch.setenv("HF_ENDPOINT", served.endpoint)
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.delenv("HF_TOKEN", raising=False)
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)
    yield served
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def entry(hub: Hub, tiny_source: Path) -> Entry:
    """A catalog entry whose one source is the Hub's copy of `tiny_source`."""
    data = tiny_source.read_bytes()
    hub.files["tiny-q8_0.gguf"] = data
    return Entry(
        name="tiny-draft",
        family="Tiny",
        license="MIT",
        role="draft",
        file="tiny-q8_0.gguf",
        size_bytes=len(data),
        sha256=hashlib.sha256(data).hexdigest(),
        source=[HubFile(REPO, "tiny-q8_0.gguf")],
    )


class Steps(list[Step]):
    """A progress callback that keeps all steps."""

    def __call__(self, step: Step) -> None:
        """Append `step`."""
        self.append(step)

    @property
    def stages(self) -> list[str]:
        """The stages in order, each change once."""
        stages = [step.stage for step in self]
        return [new for old, new in zip([None, *stages], stages, strict=False) if new != old]


@pytest.fixture
def steps() -> Steps:
    """An empty `Steps`."""
    return Steps()
