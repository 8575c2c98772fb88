"""Weights are packed by our code to the bytes of llama.cpp's own, on any instruction set."""

from __future__ import annotations

from pathlib import Path

import pytest
from emulated import is_emulated
from laws.builds import BUILDS, found_by, named

OURS = {"q4_0", "q4_K"}
"""Types that are packed by `native/packing.cpp` on x86."""


@pytest.mark.parametrize("libraries", BUILDS, indirect=True, ids=named)
def test_packed_weights_have_the_same_bytes(libraries: Path) -> None:
    """Of random weights of every type, with experts or without, narrow, wide and of many tiles."""
    if is_emulated(libraries):
        pytest.skip(f"{libraries} is for another CPU, on which llama.cpp's own code packs")
    ours, stock = (found_by("packing_peer", libraries, kernels=on) for on in (True, False))
    assert ours["packed"] == stock["packed"]
    assert {each.split()[0] for each in stock["packed"]} == set(stock["by_llama"])
    if ours["kernels"] and not ours["kernels"].startswith("NEON"):
        assert set(stock["by_llama"]) - set(ours["by_llama"]) == OURS
