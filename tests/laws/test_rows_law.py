"""With our kernels a row's logits are the same bits whatever forward it is in."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from laws.builds import FLAGS, flags

from localspec.bench.shapes import SHAPES, Kind, write
from localspec.engine.llama.library import ours as built

SIZES = [*range(1, 18), 24, 31, 32]
"""Every count of a round, and the ends of what stays in registers and in the cache."""
HALVES = 0.02
"""By so much logits may differ that come of sums of halves and of floats."""
TESTS = Path(__file__).resolve().parent.parent


def decoded(model: Path, *, kernels: bool) -> dict[str, Any]:
    """Digests of a text's logits by rows in a forward, with our kernels or without."""
    ran = subprocess.run(
        [sys.executable, "-m", "rows_peer", str(model), *map(str, SIZES)],
        env=os.environ | {"LOCALSPEC_ROWS": str(int(kernels)), "PYTHONPATH": str(TESTS)},
        capture_output=True,
        check=True,
    )
    found: dict[str, Any] = json.loads(ran.stdout)
    return found


@pytest.mark.parametrize("kind", ["q4_0", "q4_k_m"])
def test_a_row_is_as_if_alone(tmp_path: Path, kind: Kind) -> None:
    """A row alone, or any rows in a forward; random blocks, whose scales and minima differ.

    Products alone, without flash attention, have llama.cpp's bits too, but for Q6_K with VNNI:
    those of its one row, but where its own attention without that takes two rows otherwise than
    one, from there on those of its two; and with AMX, where its own rows agree from two on, those
    of as many. Attention does not: it adds floats where that adds halves.
    """
    model = write(tmp_path / "model.gguf", SHAPES["tiny"], kind)
    ours, theirs = decoded(model, kernels=True), decoded(model, kernels=False)
    assert not theirs["kernels"]
    if built.kernels == "AMX":
        assert ours["products"] == theirs["products"]
    else:
        one, *others = (ours["products"][str(size)] for size in SIZES)
        if kind == "q4_0" or built.kernels != "AVX512_VNNI":
            assert one == theirs["products"]["1"]
            assert set(others) in ({one}, {theirs["products"]["2"]})
        assert len(set(others)) == 1
    if built.attends:
        assert len(set(ours["attention"].values())) == 1
    wrong, right = np.subtract(ours["last"], theirs["last"]), np.array(theirs["last"])
    assert np.linalg.norm(wrong) < HALVES * np.linalg.norm(right)


def test_the_build_has_our_kernels_on_cpus_that_have_some() -> None:
    """`make install` compiles them for the best instruction set of this CPU that has kernels.

    LOCALSPEC_ISA says otherwise.
    """
    here = flags()
    best = next((name for name, flag in FLAGS.items() if flag in here), "")
    assert built.kernels == os.environ.get("LOCALSPEC_ISA", best)
