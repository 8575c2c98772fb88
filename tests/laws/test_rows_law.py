"""The kernels for few rows are llama.cpp's own arithmetic: the same bits, in less time."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from localspec.bench.shapes import SHAPES, Kind, write
from localspec.engine.llama import has_rows_kernels

SIZES = [*range(1, 18), 24, 31, 32, 33, 47, 48, 49, 64, 72]
"""Every count of a round, and the ends of what stays in registers, in the cache and on our side."""
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
def test_every_bit_is_llama_cpps_own(tmp_path: Path, kind: Kind) -> None:
    """For every number of rows, on random blocks whose scales and minima differ."""
    model = write(tmp_path / "model.gguf", SHAPES["tiny"], kind)
    ours, theirs = decoded(model, kernels=True), decoded(model, kernels=False)
    assert ours["digests"] == theirs["digests"]
    assert not theirs["kernels"]


def test_the_build_has_them_where_they_are_for() -> None:
    """`make install` compiles them in on a CPU with AMX, and nowhere else."""
    cpu = Path("/proc/cpuinfo")
    assert has_rows_kernels() == (cpu.exists() and "amx_int8" in cpu.read_text())
