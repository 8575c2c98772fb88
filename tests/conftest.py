"""What every test shares: no time limits on a busy machine, and a home of its own."""

from __future__ import annotations

from pathlib import Path

import hypothesis
import pytest

hypothesis.settings.register_profile("unhurried", deadline=None, print_blob=True)
hypothesis.settings.load_profile("unhurried")


@pytest.fixture(autouse=True)
def own_home(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home for each test: nothing reads or writes what belongs to the user.

    Tests on the real pair find its files before, through `localspec.paths` at import time.
    """
    home = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("HOME", str(home))
    for name in ("CONFIG", "DATA", "STATE", "CACHE"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(home / name.lower()))
    for name in ("XDG_RUNTIME_DIR", "LOCALSPEC_CONFIG", "LOCALSPEC_MODELS", "LOCALSPEC_HOST"):
        monkeypatch.delenv(name, raising=False)
    return home
