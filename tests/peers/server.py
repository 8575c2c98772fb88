"""Runs a LocalSpec daemon that takes llama-server's command line.

llama.cpp's tests send no key unless the server was given one, and LocalSpec's TCP port always
needs a token: without a key each connection is forwarded to the Unix socket, which needs none.
With one it is forwarded to that port, which opens before the model is loaded; llama-server's not.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import aiohttp
import worker_hosts
from peers import standins
from serving import DaemonHome

from localspec_daemon.server import Options, Server

KINDS = {"infill": "infill", "bert": "encoder", "rerank": "ranker"}
"""The kind of a model by a word in the file's name that the tests ask for; others generate text."""


def parser() -> argparse.ArgumentParser:
    """Returns a parser of those options of llama-server that change a test's result."""
    options = argparse.ArgumentParser(allow_abbrev=False)
    for name in (
        "--hf-repo",
        "--hf-file",
        "--model",
        "--alias",
        "--host",
        "--api-key",
        "--pooling",
    ):
        options.add_argument(name, default="")
    for name in ("--port", "--ctx-size", "--batch-size", "--n-predict", "--spec-draft-n-max"):
        options.add_argument(name, type=int, default=0)
    options.add_argument("--chat-template-file", default="")
    options.add_argument("--chat-template", default="")
    options.add_argument("--sleep-idle-seconds", default="")
    options.add_argument("--reasoning", default="auto")
    options.add_argument("--reasoning-budget", type=int, default=-1)
    options.add_argument("--seed", type=int, default=-1)
    options.add_argument("--temp", type=float, default=0.8)
    options.add_argument("--parallel", type=int, default=4)
    options.add_argument("--kv-unified", action="store_true")
    options.add_argument("--context-shift", action="store_true")
    return options


def settings(asked: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """Returns the configuration for these options."""
    slots = asked.parallel
    context = asked.ctx_size // (1 if asked.kv_unified else slots)
    tables: dict[str, dict[str, Any]] = {
        "models": {"default": name(asked), "aliases": {"*": ""}, "templates": templates(asked)},
        "engine": {"slots": slots, "context": context, "exactness": "standard"},
        "sampling": {"temperature": asked.temp},
    }
    if asked.n_predict > 0:
        tables.setdefault("server", {})["max_tokens"] = asked.n_predict
    thoughts = 0 if asked.reasoning == "off" else asked.reasoning_budget
    if thoughts >= 0:
        tables.setdefault("server", {})["max_reasoning_tokens"] = thoughts
    if asked.sleep_idle_seconds:
        tables.setdefault("server", {})["keep_alive"] = f"{asked.sleep_idle_seconds}s"
    if asked.context_shift:
        tables["engine"]["context_shift"] = True
    if asked.seed >= 0:
        tables["sampling"]["seed"] = asked.seed
    if asked.batch_size:
        tables["engine"]["prefill_rows"] = max(16, asked.batch_size)
    if asked.spec_draft_n_max:
        tables["speculation"] = {"max_draft": asked.spec_draft_n_max}
    return tables


def templates(asked: argparse.Namespace) -> dict[str, str]:
    """Returns the chat template that replaces the file's: a Jinja file, or ChatML."""
    if asked.chat_template_file:
        return {"*": str(Path(asked.chat_template_file).resolve())}
    return {"*": "chatml"} if asked.chat_template == "chatml" else {}


def name(asked: argparse.Namespace) -> str:
    """Returns the model's name."""
    return str(asked.alias.split(",")[0] or asked.hf_repo.split("/")[-1] or "model")


def kind(asked: argparse.Namespace) -> str:
    """Returns the kind of the requested model."""
    file = f"{asked.hf_repo} {asked.hf_file}"
    return next((kind for word, kind in KINDS.items() if word in file), "text")


async def main(arguments: Sequence[str]) -> None:
    """Serves until SIGTERM."""
    asked, _ = parser().parse_known_args(arguments)
    with tempfile.TemporaryDirectory(prefix="peer-") as folder:
        root = Path(folder)
        for what in ("STATE", "CACHE", "DATA", "CONFIG", "RUNTIME"):
            os.environ[f"XDG_{what}_HOME" if what != "RUNTIME" else "XDG_RUNTIME_DIR"] = folder
        harness = DaemonHome(
            root, standins.build(root / "models", kind(asked), name(asked), asked.pooling)
        )
        tables = settings(asked)
        if asked.api_key:
            token = root / "localspec" / "token"
            token.parent.mkdir(mode=0o700)
            token.touch(mode=0o600)
            token.write_text(asked.api_key)
            keyed = worker_hosts.free_address()
            tables.setdefault("server", {})["tcp"] = keyed
        else:
            keyed = ""
        harness.configure(**tables)
        harness.socket.parent.mkdir(mode=0o700)
        await _serve(harness, asked, keyed)


async def _serve(harness: DaemonHome, asked: argparse.Namespace, keyed: str) -> None:
    """Opens the doors that llama-server would have, once the model is loaded."""
    server = Server(Options(harness.config_path, harness.socket, tick_seconds=0.1))
    running = asyncio.create_task(server.run())
    ready = asyncio.create_task(server.ready.wait())
    await asyncio.wait([running, ready], return_when=asyncio.FIRST_COMPLETED)
    doors = []
    if not running.done():
        await _load(harness.socket, name(asked))
        doors = [
            await asyncio.start_server(partial(_passed_on, harness.socket, keyed), host, asked.port)
            for host in asked.host.split(",")
        ]
    await running
    for door in doors:
        door.close()


async def _load(socket: Path, model: str) -> None:
    """Loads the model before the port opens, as llama-server does."""
    connector = aiohttp.UnixConnector(str(socket))
    async with aiohttp.ClientSession("http://localhost", connector=connector) as http:
        body = json.dumps({"model": model, "content": "a"})
        async with http.post("/tokenize", data=body) as response:
            await response.read()


async def _passed_on(
    socket: Path,
    keyed: str,
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
) -> None:
    """Forwards a connection to the Unix socket, or to the TCP port if there is a key.

    The TCP port answers under its own address only, so requests name that one.
    """
    address, port, *_ = writer.get_extra_info("sockname")
    named = f"\r\nHost: {f'[{address}]' if ':' in address else address}:{port}".encode()
    if keyed:
        host, _, number = keyed.partition(":")
        there, back = await asyncio.open_connection(host, int(number))
    else:
        there, back = await asyncio.open_unix_connection(str(socket))
    meant = f"\r\nHost: {keyed}".encode() if keyed else named
    await asyncio.gather(_copied(reader, back, named, meant), _copied(there, writer))


async def _copied(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    said: bytes = b"",
    meant: bytes = b"",
) -> None:
    """Copies a stream to its end, with the host that it names replaced."""
    try:
        while data := await reader.read(1 << 16):
            writer.write(data.replace(said, meant, 1) if said else data)
            await writer.drain()
        writer.close()
    except ConnectionError:
        writer.transport.abort()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:]))
