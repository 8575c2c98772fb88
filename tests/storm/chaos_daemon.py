"""A daemon as a process, with real workers on tiny models, and clients that behave."""

from __future__ import annotations

import asyncio
import contextlib
import io
import json
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import aiohttp
import tiny

from localspec.catalog.registry import Resolved

Body = dict[str, Any]

PATIENCE_SECONDS = 120.0
PRINTABLE = {str(token): 40.0 for token in range(32, 127)}

CONFIG = """
[models]
directory = "{models}"
default = "{name}"

[server]
drain_seconds = 5
"""
ENGINE = """
[engine]
context = {context}
"""
TINY = """\
slots = 3
prefill_rows = 32
exactness = "{exactness}"
target.threads = 1
draft.threads = 1
"""


@dataclass
class StreamResult:
    """Content of a stream, to its last line."""

    text: str = ""
    finish: str | None = None
    usage: Body = field(default_factory=dict)
    error: Body = field(default_factory=dict)
    comments: list[str] = field(default_factory=list)
    done: bool = False

    @property
    def answer(self) -> tuple[str, str | None, int]:
        """Result that faults must not change: text, end and tokens."""
        assert self.done, (self.error, self.comments)
        return self.text, self.finish, self.usage["completion_tokens"]

    def hear(self, line: str) -> str:
        """Read the next line; the text in it."""
        if line.startswith(": "):
            self.comments.append(line[2:])
        if not line.startswith("data: "):
            return ""
        if line == "data: [DONE]":
            self.done = True
            return ""
        chunk = json.loads(line[6:])
        self.error = chunk.get("error", self.error)
        self.usage = chunk.get("usage") or self.usage
        text = ""
        for choice in chunk.get("choices", ()):
            self.finish = choice["finish_reason"] or self.finish
            text += choice.get("text", "")
        self.text += text
        return text


@dataclass
class ChaosDaemon:
    """Daemons one after the other on the same files and socket. An async context manager."""

    root: Path
    exactness: str = "strict"
    pair: Resolved | None = None
    """Models that are there already, instead of tiny ones."""
    context: int = 512
    patience_seconds: float = PATIENCE_SECONDS
    daemon: subprocess.Popen[bytes] | None = None

    def __post_init__(self) -> None:
        self.socket = self.root / "s"
        self.config = self.root / "config.toml"
        self.log = self.root / "log"
        self.folder = self.pair.target_path.parent if self.pair else self.root / "models"
        if self.pair is None:
            self.build()
        self.configure()

    def build(self) -> None:
        """A tiny model, and one that drafts for it."""
        self.folder.mkdir()
        tiny.build(self.folder / "alpha.gguf")
        tiny.build(self.folder / "little.gguf", like=0, noise=0.02)
        (self.folder / "drafts.json").write_text('{"alpha":"little"}')

    def configure(self, more: str = "") -> None:
        """Write the configuration, with more at its end."""
        name = self.pair.name if self.pair else "alpha"
        text = CONFIG.format(models=self.folder, name=name)
        text += ENGINE.format(context=self.context)
        if not self.pair:
            text += TINY.format(exactness=self.exactness)
        self.config.write_text(text + more)

    async def __aenter__(self) -> Self:
        connector = aiohttp.UnixConnector(path=str(self.socket), force_close=True, limit=0)
        timeout = aiohttp.ClientTimeout(total=self.patience_seconds)
        self.http = aiohttp.ClientSession(
            "http://localspec", connector=connector, timeout=timeout, read_bufsize=1 << 20
        )
        await self.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.http.close()
        if self.daemon:
            self.daemon.terminate()
            await asyncio.to_thread(self.daemon.wait, PATIENCE_SECONDS)

    async def start(self) -> None:
        """A new daemon, once nothing of the one before is left."""
        self.daemon = self.launch()
        await self.until(self.answers)

    def launch(self) -> subprocess.Popen[bytes]:
        """Start the process alone; its output goes to the log."""
        command = [sys.executable, "-P", "-m", "localspec_daemon"]
        with self.log.open("ab") as log:
            return subprocess.Popen(
                [*command, "--config", self.config, "--socket", self.socket],
                stdout=log,
                stderr=log,
            )

    def resident_mib(self) -> int:
        """Memory that the supervisor holds."""
        assert self.daemon is not None
        pages = int(Path(f"/proc/{self.daemon.pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE") >> 20

    async def until(self, condition: Callable[[], Awaitable[bool]]) -> None:
        """Poll a condition for at most `PATIENCE_SECONDS`."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not await condition():  # noqa: ASYNC110 - of another process
                await asyncio.sleep(0.02)

    async def answers(self) -> bool:
        """Whether a daemon answers on the socket."""
        try:
            return bool(await self.get("/v1/status"))
        except (OSError, aiohttp.ClientError):
            return False

    async def get(self, path: str) -> Any:
        """The JSON behind a path."""
        async with self.http.get(path) as response:
            return json.loads(await response.read())

    async def post(self, path: str, body: Any) -> tuple[int, Any]:
        """Status and JSON of a POST."""
        data = io.BytesIO(json.dumps(body).encode())
        kind = {"Content-Type": "application/json"}
        async with self.http.post(path, data=data, headers=kind) as response:
            return response.status, json.loads(await response.read())

    async def stream(
        self, body: Body, on_text: Callable[[str], None] = lambda _: None
    ) -> StreamResult:
        """A completion from its first line to its last."""
        result = StreamResult()
        asked = {"stream": True, "stream_options": {"include_usage": True}} | body
        async with self.http.post("/v1/completions", json=asked) as response:
            if response.status != 200:
                result.error = json.loads(await response.read())["error"]
                return result
            async for line in response.content:
                if text := result.hear(line.decode().rstrip("\n")):
                    on_text(text)
        return result

    async def idle(self) -> bool:
        """Whether no request is open any more."""
        models = (await self.get("/v1/status"))["models"]
        return not any(model.get("active") or model.get("queued") for model in models)

    def last_words(self) -> str:
        """The end of the log."""
        return self.log.read_text(errors="replace")[-6000:]

    def alive(self, pid: int) -> bool:
        """Whether there is such a process, and it is no zombie."""
        try:
            return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
        except OSError:
            return False

    def workers(self) -> list[int]:
        """The daemon's children, loading ones included."""
        assert self.daemon is not None
        path = Path(f"/proc/{self.daemon.pid}/task/{self.daemon.pid}/children")
        return [int(pid) for pid in path.read_text().split()]

    def kill(self, pid: int, number: int) -> bool:
        """Send a signal; False if the process was faster."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
            return True
        return False


WARM_TURNS = 10
"""Before what a daemon holds is taken for its measure."""
MORE_FDS = 8
MORE_MIB = 32


@dataclass
class Flat:
    """Resources that a daemon holds, turn by turn, compared with the first turn."""

    chaos: ChaosDaemon
    turns: int = 0
    warm: dict[str, int] = field(default_factory=dict)

    def held(self, *, anew: bool = False) -> dict[str, int]:
        """After one more turn; `anew` with another daemon. Asserts that nothing grows."""
        assert self.chaos.daemon is not None
        files = Path(f"/proc/{self.chaos.daemon.pid}/fd")
        now = {"fds": len(list(files.iterdir())), "MiB": self.chaos.resident_mib()}
        self.turns += 1
        if anew or self.turns <= WARM_TURNS:
            self.warm = now
        assert now["fds"] <= self.warm["fds"] + MORE_FDS, (self.warm, now)
        assert now["MiB"] <= self.warm["MiB"] + MORE_MIB, (self.warm, now)
        return now
