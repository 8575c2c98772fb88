"""Fixtures of every test: no time limits on a busy machine, and a home of its own."""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import tempfile
from pathlib import Path

import hypothesis
import pytest
from laws import builds

from localspec import paths
from localspec.catalog.registry import Registry, Resolved
from localspec.config import Models
from localspec.errors import UnknownModel

os.environ["GGML_CPU_TILED_MM"] = "0"  # read once by llama.cpp; strict exactness needs it

# A shell that starts the tests in the background has Ctrl-C ignored by all that they start, and
# nohup the end of a terminal.
signal.signal(signal.SIGINT, signal.default_int_handler)
signal.signal(signal.SIGHUP, signal.SIG_DFL)

if (isa := os.environ.get("LOCALSPEC_ISA")) and "PYTEST_XDIST_WORKER" not in os.environ:
    # Before anything loads llama.cpp; processes that are started from here inherit it.
    folder = Path(tempfile.mkdtemp(prefix="localspec-isa-"))
    atexit.register(shutil.rmtree, folder)
    builds.lower(isa, folder / "lib")

hypothesis.settings.register_profile("unhurried", deadline=None, print_blob=True)
hypothesis.settings.register_profile(
    "impatient",
    parent=hypothesis.settings.get_profile("unhurried"),
    phases=[hypothesis.Phase.explicit, hypothesis.Phase.generate],
)
hypothesis.settings.load_profile("unhurried")

USERS_MODELS = paths.models_dir()
"""Where `localspec models pull` puts files, read before a test has moved the home."""


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Which instruction set the tests ran on, and which they did not."""
    terminalreporter.section("instruction sets")
    for line in builds.kernel_lines():
        terminalreporter.write_line(line)


@pytest.fixture(autouse=True)
def own_home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home for each test: nothing reads or writes what belongs to the user."""
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("HOME", str(home))
    for name in ("CONFIG", "DATA", "STATE", "CACHE"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(home / name.lower()))
    for name in ("XDG_RUNTIME_DIR", "LOCALSPEC_CONFIG", "LOCALSPEC_MODELS", "LOCALSPEC_HOST"):
        monkeypatch.delenv(name, raising=False)
    return home


@pytest.fixture(scope="session")
def real_pair() -> Resolved:
    """The default target and its draft, which `make test` pulls first; skips where they are not."""
    try:
        pair = Registry(USERS_MODELS).resolve(Models().default)
    except UnknownModel as error:
        pytest.skip(str(error))
    if pair.draft_path is None:
        pytest.skip(f"{pair.name} has no draft here. Run: localspec models pull")
    return pair
