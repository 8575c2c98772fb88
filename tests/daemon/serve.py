"""Runs a daemon with scripted workers; its output tells whether it imported native code."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

from localspec_daemon.server import Options, Server


async def main() -> None:
    """Serves `config` on `socket`."""
    config, socket = map(Path, sys.argv[1:3])
    peer = (sys.executable, str(Path(__file__).with_name("peer.py")))
    await Server(Options(config, socket, peer)).run()


if __name__ == "__main__":
    asyncio.run(main())
    native = [name for name in sys.modules if name.startswith("llama_cpp")]
    sys.stdout.write(f"native modules: {native}\n")
