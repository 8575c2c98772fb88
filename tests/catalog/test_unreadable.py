"""A file that the disk or the system refuses to read is kept: it may be sound."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import tiny
from catalog.test_fetching import REPO, serve

from localspec.catalog import acquire, header, origins
from localspec.catalog.reference import Reference
from localspec.errors import BadGGUF, Unreadable

FAILS = Path("/proc/self/mem")
"""A regular file whose first bytes cannot be read: the system says EIO, as for a bad disk."""

pytestmark = pytest.mark.skipif(not FAILS.exists(), reason="no file here fails to be read")


def test_what_cannot_be_read_is_no_verdict_on_the_file(tmp_path: Path) -> None:
    """Unlike a file that is none, or one that has an end too early."""
    with pytest.raises(Unreadable, match=r"mem cannot be read: Input/output error"):
        header.parse(FAILS)
    (tmp_path / "text.gguf").write_text("no model")
    with pytest.raises(BadGGUF) as refused:
        header.parse(tmp_path / "text.gguf")
    assert not isinstance(refused.value, Unreadable)


def test_a_fetched_model_that_cannot_be_read_is_not_deleted(hub: Any, tmp_path: Path) -> None:
    """Its pull says so and goes on at another time."""
    tiny.build(tmp_path / "Tiny-Q4_0.gguf", split_tensors=7)
    serve(hub, *sorted(tmp_path.glob("Tiny-Q4_0-*.gguf")))
    found = acquire.look(Reference(REPO, ""), 1 << 40)
    path = tmp_path / "models" / "mine.gguf"
    path.parent.mkdir()
    path.symlink_to(FAILS)
    begun = origins.Origin(found.origin.source, found.origin.label, found.origin.license, True)
    origins.remember(path.parent, path.name, begun)
    with pytest.raises(Unreadable):
        acquire.fetch(found, path.parent, print, "mine")
    assert path.is_symlink()
    assert origins.read(path.parent) == {path.name: begun}
