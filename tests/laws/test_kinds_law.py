"""A session of any kind of model answers the same alone and with others, on any instruction set."""

from __future__ import annotations

from pathlib import Path

import pytest
from emulated import is_emulated
from kinds import KINDS
from laws.builds import BUILDS, found_by, named, whole

from localspec.built import installed

SAME = 0.02
"""By so much of their length logits may differ that come of sums in another order."""


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("libraries", BUILDS, indirect=True, ids=named)
def test_company_changes_no_logits(
    libraries: Path, kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1, 2 and 4 sessions with equally many rows in a forward, and with different ones."""
    if is_emulated(libraries):
        pytest.skip(f"{libraries} is for another CPU, on which no Python runs here")
    if libraries != installed():
        monkeypatch.setenv("LLAMA_CPP_LIB_PATH", str(whole(libraries, tmp_path / "lib")))
    model = KINDS[kind](tmp_path / "model.gguf")
    found = found_by("kinds_peer", model)
    if libraries != installed():
        assert libraries.parent.name.partition("-")[0] == found["kernels"]
    assert max(found["found"].values()) < SAME, found["found"]
