"""Attention of a row depends on its own cells alone and equals the formula."""

from __future__ import annotations

from pathlib import Path

import pytest
from laws.builds import BUILDS, found_by, named

from localspec.built import installed

FLOATS = 1e-5
"""How far sums of floats are from the formula; llama.cpp's own, of halves, are up to 1e-2."""


@pytest.mark.parametrize("libraries", BUILDS, indirect=True, ids=named)
def test_company_leaves_no_trace(libraries: Path) -> None:
    """Any rows, threads and padding, unused cells that hold infinities; and the right numbers."""
    ours = found_by("attention_peer", libraries)
    if libraries != installed():
        assert bool(ours["found"]) == bool(ours["kernels"])
    if not ours["found"]:
        pytest.skip(f"there is no attention of ours in {libraries}")
    for case, found in ours["found"].items():
        assert found["wrong"] < FLOATS, case
        alone, *others = found["rows"].items()
        _, longest = max(others, key=lambda each: len(each[1]))
        for company, rows in (alone, *others):
            assert rows == longest[: len(rows)], f"{case}, {company}, {ours['kernels']}"
