"""Products of rows in batches are right in every memory that takes the weights."""

from __future__ import annotations

from pathlib import Path

import pytest
from laws.builds import BUILDS, found_by, named

from localspec.engine.llama.products import installed

PACKED = {"CPU_REPACK": "q4_0", "AMX": "q4_0"}
"""What at least each layout of llama.cpp's is for."""


@pytest.mark.parametrize("libraries", BUILDS, indirect=True, ids=named)
def test_batches_are_right(libraries: Path) -> None:
    """Of every type, broadcast and not, 1 to 64 rows that lie together, apart or crossed.

    A product is what numbers say of plain weights, but for activations in eight bits; by our
    kernels a row has the bits that it has alone. Nothing is written around the result, and what a
    layout takes when a model is loaded it does not refuse later.
    """
    found = found_by("batches_peer", libraries)
    assert found["wrong"] == []
    if libraries != installed():
        assert libraries.parent.name.partition("-")[0] == (found["kernels"] or "NONE")
    assert len(found["taken"]["CPU"]) > 20
    for memory, at_least in PACKED.items():
        assert memory not in found["taken"] or at_least in found["taken"][memory]
    if found["kernels"] == "AMX":
        assert "AMX" in found["taken"]
