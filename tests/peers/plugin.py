"""Sets up llama.cpp's tests: LocalSpec as the server, models of ours, expected failures."""

from __future__ import annotations

import fnmatch
import importlib
import os
import socket
import sys
import types
from pathlib import Path

import pytest
from peers.differences import DIFFERENT, Difference

SERVER = Path(__file__).with_name("server.py")


def pytest_configure(config: pytest.Config) -> None:
    """Makes the tests start server.py, on a free port."""
    launcher = Path(os.environ["LOCALSPEC_PEER_FOLDER"]) / "llama-server"
    launcher.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{SERVER}" "$@"\n')
    launcher.chmod(0o755)
    os.environ["LLAMA_SERVER_BIN_PATH"] = str(launcher)
    if not hasattr(config, "workerinput"):
        with socket.create_server(("127.0.0.1", 0)) as probe:
            os.environ["PORT"] = str(probe.getsockname()[1])


def _not_downloaded(url: str, out: str) -> None:
    raise RuntimeError(f"{url} is not to be had here, for {out}")


sys.modules["wget"] = types.ModuleType("wget")  # before their conftest.py looks for it
sys.modules["wget"].download = _not_downloaded  # type: ignore[attr-defined]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks each expected difference as a failure with its reason, or skips it."""
    utils = importlib.import_module("utils")  # llama.cpp's own, on the path by now
    utils.ServerPreset.load_all = staticmethod(lambda: None)
    for item in items:
        if found := different(item.nodeid):
            item.add_marker(pytest.mark.xfail(reason=found.why, run=found.run, strict=True))


def different(test: str) -> Difference | None:
    """Returns the expected difference of a test, or None."""
    short = test.removeprefix("unit/")
    return next((each for each in DIFFERENT if fnmatch.fnmatchcase(short, each.tests)), None)
