"""Products of few rows are llama.cpp's one-row products, to the bit, by any instruction set."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from laws.builds import BUILDS, TESTS


def multiplied(libraries: Path, *, kernels: bool) -> dict[str, Any]:
    """Digests of all products, with our kernels or one row at a time without."""
    ran = subprocess.run(
        [sys.executable, "-m", "products_peer", str(libraries)],
        env=os.environ | {"LOCALSPEC_ROWS": str(int(kernels)), "PYTHONPATH": str(TESTS)},
        stdout=subprocess.PIPE,
        check=True,
    )
    found: dict[str, Any] = json.loads(ran.stdout)
    return found


@pytest.mark.parametrize("libraries", BUILDS, ids=lambda path: path.parent.name)
def test_every_row_is_as_if_alone(libraries: Path) -> None:
    """In every format and layout, for any rows, ragged shapes, denormal and the largest scales."""
    ours = multiplied(libraries, kernels=True)
    if libraries != BUILDS[0]:
        assert libraries.parent.name.partition("-")[0] == (ours["kernels"] or "NONE")
    if not ours["found"]:
        pytest.skip(f"there are no kernels of ours in {libraries}")
    alone = multiplied(libraries, kernels=False)
    assert not alone["kernels"]
    assert set(ours["found"]) == set(alone["found"])
    for product, by_rows in ours["found"].items():
        expected = alone["found"][product]["1"]
        for rows, found in by_rows.items():
            assert found == expected[: int(rows)], f"{product}, {rows} rows, {ours['kernels']}"
