"""Products of any rows are those of each row alone, to the bit, by any instruction set."""

from __future__ import annotations

from pathlib import Path

import pytest
from laws.builds import BUILDS, found_by, named

from localspec.built import installed

OTHER_SUMS = {("AVX512_VNNI", name) for name in ("q8_0", "q5_K", "q6_K", "iq4_xs")}
"""Where one row alone is ours in another order than llama.cpp's (`native/lanes.h`)."""


@pytest.mark.parametrize("libraries", BUILDS, indirect=True, ids=named)
def test_every_row_is_as_if_alone(libraries: Path) -> None:
    """In every format and layout, for any rows, ragged shapes, denormal and the largest scales.

    A row alone has the bits of llama.cpp's own kernels, or nearly its numbers where floats are
    added in another order. Of a product of which not all outputs are wanted, those that are have
    these bits too.
    """
    ours = found_by("products_peer", libraries)
    if libraries != installed():
        assert libraries.parent.name.partition("-")[0] == (ours["kernels"] or "NONE")
    if not ours["found"]:
        pytest.skip(f"there are no kernels of ours in {libraries}")
    alone = found_by("products_peer", libraries, kernels=False)
    assert not alone["kernels"]
    assert set(ours["found"]) == set(alone["found"])
    optimized = "emulated" not in libraries.parent.name  # else llama.cpp's own fuse nothing
    for product, by_rows in ours["found"].items():
        expected = by_rows.pop("alone")
        if optimized and (ours["kernels"], product.split()[0]) not in OTHER_SUMS:
            assert expected == alone["found"][product]["alone"], f"{product}, {ours['kernels']}"
        assert by_rows.pop("far") == [], f"{product}, {ours['kernels']}"
        assert by_rows.pop("wrong") == [], f"{product}, cut short, {ours['kernels']}"
        for rows, found in by_rows.items():
            assert found == expected[: int(rows)], f"{product}, {rows} rows, {ours['kernels']}"
