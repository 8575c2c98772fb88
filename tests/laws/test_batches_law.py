"""Products of rows in batches are right in every memory that takes the weights."""

from __future__ import annotations

from pathlib import Path

import pytest
from laws.builds import BUILDS, found_by, named

from localspec.built import installed

PACKED = {"CPU_REPACK": "q4_0", "AMX": "q4_0"}
"""The types that each layout of llama.cpp's covers at least."""


@pytest.mark.parametrize("libraries", BUILDS, indirect=True, ids=named)
def test_batched_products_equal_the_reference(libraries: Path) -> None:
    """Products of every type, broadcast or not, of 1 to 64 rows, contiguous, strided or transposed.

    A product equals that of dequantized weights, with activations in eight bits; with our kernels a
    row has the same bits as alone. Nothing is written beside the result, and a layout that was
    accepted while a model was loaded is not refused later.
    """
    found = found_by("batches_peer", libraries)
    assert found["wrong"] == []
    if libraries != installed():
        assert libraries.parent.name.partition("-")[0] == (found["kernels"] or "NONE")
    assert len(found["taken"]["CPU"]) > 20
    packs = not libraries.parent.name.startswith("NONE")  # llama.cpp wants dot products for that
    for memory, at_least in PACKED.items():
        assert memory not in found["taken"] or at_least in found["taken"][memory] or not packs
    if found["kernels"] == "AMX":
        assert "AMX" in found["taken"]
