"""A daemon process with tiny models on the real worker, until its standard input is closed.

It writes one line of JSON when the model answers: where it listens, and the token. Files that are
named behind its directory are models, too.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path

import encoders
import gguf
import scripted_model
import tiny
from serving import DaemonHome, run_daemon

from localspec import paths
from localspec_daemon.supervisor.worker import COMMAND


async def main(root: Path, *models: Path) -> None:
    """Serve from `root`."""
    harness = DaemonHome(root, tiny.build(root / "tiny.gguf"))
    harness.add("alpha")
    scripted_model.build(harness.models / "beta.gguf")
    encoders.bert(harness.models / "encoder.gguf")
    encoders.bert(harness.models / "ranker.gguf", gguf.PoolingType.RANK)
    for model in models:
        (harness.models / model.name).hardlink_to(model)
    aliases = {"gpt-*": "", "claude-*": "", "text-embedding-*": "", "nobody": "no-such-model"}
    harness.configure(
        server={"tcp": "127.0.0.1:0"},
        models={"aliases": aliases},
        engine={"context": 16384 if models else 1536, "slots": 2, "exactness": "strict"},
    )
    async with run_daemon(harness, COMMAND) as it:
        status, _ = await it.ask("hi", max_tokens=1)
        assert status == 200
        address = (await it.get("/v1/status"))["tcp"]
        token = (paths.state_dir() / "token").read_text().strip()
        print(json.dumps([str(harness.socket), f"http://{address}", token]), flush=True)  # noqa: T201 — the line
        await asyncio.to_thread(sys.stdin.read)


if __name__ == "__main__":
    asyncio.run(main(*map(Path, sys.argv[1:])))
