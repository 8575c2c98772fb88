"""Products of a prompt's many rows by tiles of bf16 are near the exact ones, for any rows."""

from __future__ import annotations

from pathlib import Path

import pytest
from emulated import is_emulated
from laws.builds import BUILDS, found_by, named


@pytest.mark.parametrize("libraries", BUILDS, indirect=True, ids=named)
def test_tiles_of_halves_are_near_the_exact_products(libraries: Path) -> None:
    """Within what rounding both factors to bf16 may cost, in all formats and shapes.

    Fewer rows than they were asked for are as before, and so are llama.cpp's own tiles after them;
    a row has the same bits beside any other rows; what is not wanted is not computed.
    """
    if is_emulated(libraries):
        pytest.skip("an emulated CPU computes single products; no ARM has such tiles")
    found = found_by("many_rows_peer", libraries)
    if not found["has"]:
        pytest.skip(f"there are no tiles of bf16 in {libraries}")
    assert found["wrong"] == []
