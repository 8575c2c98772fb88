"""A whole daemon inside a test: real sockets, real worker processes, a scripted worker."""

from __future__ import annotations

import asyncio
import json
import shutil
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import aiohttp

from localspec import paths
from localspec_daemon.server import Options, Server
from localspec_daemon.supervisor.model import Model

SCRIPTED = (sys.executable, str(Path(__file__).parent / "daemon" / "peer.py"))


@dataclass
class DaemonHome:
    """The directory of one test's daemon: its configuration, models and socket."""

    root: Path
    gguf: Path
    settings: dict[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def config_path(self) -> Path:
        """The configuration file."""
        return self.root / "config" / "config.toml"

    @property
    def models(self) -> Path:
        """The models directory."""
        return self.root / "models"

    @property
    def socket(self) -> Path:
        """Where the daemon listens."""
        return self.root / "run" / "s"

    def add(self, *names: str) -> None:
        """Put models of these names into the models directory."""
        self.models.mkdir(exist_ok=True)
        for name in names:
            shutil.copy(self.gguf, self.models / f"{name}.gguf")

    def configure(self, **tables: dict[str, Any]) -> None:
        """Write the configuration; its models directory is `models`."""
        for table, values in tables.items():
            self.settings.setdefault(table, {}).update(values)
        defaults = {"directory": str(self.models), "default": "alpha", "aliases": {}}
        merged = self.settings | {"models": defaults | self.settings.get("models", {})}
        lines = []
        for table, values in merged.items():
            lines.append(f"[{table}]")
            lines += [f"{key} = {_toml(value)}" for key, value in values.items()]
        self.config_path.parent.mkdir(exist_ok=True)
        self.config_path.write_text("\n".join(lines))


def _toml(value: Any) -> str:
    """A value as TOML, which is JSON but for tables."""
    if not isinstance(value, dict):
        return json.dumps(value)
    return "{" + ", ".join(f"{json.dumps(key)} = {_toml(one)}" for key, one in value.items()) + "}"


@dataclass
class Daemon:
    """A running daemon and a client on its socket."""

    server: Server
    http: aiohttp.ClientSession
    harness: DaemonHome
    running: asyncio.Task[None]

    def model(self, name: str = "alpha") -> Model:
        """The supervisor's record of a model."""
        return self.server.supervisor.pool.models[name]

    async def get(self, path: str) -> Any:
        """The JSON behind a path."""
        async with self.http.get(path) as response:
            return json.loads(await response.read())

    async def post(self, path: str, body: Any) -> tuple[int, Any]:
        """Status and JSON of a POST."""
        async with self.http.post(path, json=body) as response:
            return response.status, json.loads(await response.read())

    async def ask(self, prompt: str, **fields: Any) -> tuple[int, Any]:
        """One chat without a stream."""
        messages = [{"role": "user", "content": prompt}]
        return await self.post("/v1/chat/completions", {"messages": messages, **fields})

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait for a state of the models; each change wakes this up."""
        async with asyncio.timeout(20):
            while not condition():
                await self.server.supervisor.pool.changed.wait()

    @asynccontextmanager
    async def streaming(self, prompt: str, **fields: Any) -> AsyncIterator[Stream]:
        """One chat as a stream; leaving early closes the connection."""
        messages = [{"role": "user", "content": prompt}]
        body = {"messages": messages, "stream": True, **fields}
        async with self.http.post("/v1/chat/completions", json=body) as response:
            yield Stream(response)


@dataclass
class Stream:
    """Server-sent events as they come."""

    response: aiohttp.ClientResponse

    async def lines(self) -> AsyncIterator[str]:
        """Every line that says something."""
        async for line in self.response.content:
            if text := line.decode().rstrip("\n"):
                yield text

    async def next(self, prefix: str) -> str:
        """The next line that begins so; earlier ones are dropped."""
        async for line in self.lines():
            if line.startswith(prefix):
                return line
        raise AssertionError(f"the stream ended without {prefix}")

    async def rest(self) -> list[str]:
        """All lines up to the end."""
        return [line async for line in self.lines()]


@asynccontextmanager
async def run_daemon(
    harness: DaemonHome, command: Sequence[str] = SCRIPTED, **options: Any
) -> AsyncIterator[Daemon]:
    """A daemon for the length of a `with`."""
    server = Server(Options(harness.config_path, harness.socket, command, **options))
    running = asyncio.create_task(server.run())
    ready = asyncio.create_task(server.ready.wait())
    await asyncio.wait({running, ready}, return_when=asyncio.FIRST_COMPLETED)
    if running.done():
        ready.cancel()
        running.result()
    connector = aiohttp.UnixConnector(path=str(harness.socket), force_close=True)
    async with aiohttp.ClientSession("http://localspec", connector=connector) as http:
        try:
            yield Daemon(server, http, harness, running)
        finally:
            server.stop()
            server.stop()
            await running


@asynccontextmanager
async def tcp_client(it: Any, token: str | None = None) -> AsyncIterator[aiohttp.ClientSession]:
    """A client of the TCP port: with the daemon's own token, or with this one or none."""
    address = (await it.get("/v1/status"))["tcp"]
    if token is None:
        token = (paths.state_dir() / "token").read_text().strip()
    sent = {"Authorization": f"Bearer {token}"} if token else {}
    async with aiohttp.ClientSession(f"http://{address}", headers=sent) as http:
        yield http
