"""A graph for each row count changes no bit: whatever came before, a forward is what it was."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from localspec.bench.shapes import SHAPES, write
from localspec.engine.llama.library import ours

TESTS = Path(__file__).resolve().parent.parent


def digest(model: Path, *, edited: bool) -> str:
    """Of all logits of many forwards of mixed row counts, with the edit of graphs or without."""
    ran = subprocess.run(
        [sys.executable, "-m", "graphs_peer", str(model)],
        env=os.environ | {"LOCALSPEC_GRAPHS": str(int(edited)), "PYTHONPATH": str(TESTS)},
        capture_output=True,
        text=True,
        check=True,
    )
    return ran.stdout


def test_the_bits_are_those_of_one_graph(tmp_path: Path) -> None:
    """Rows from 1 to 64 in any order, with and without outputs, two slots, and truncations."""
    model = write(tmp_path / "model.gguf", SHAPES["tiny"], "q4_k_m")
    assert digest(model, edited=True) == digest(model, edited=False)


def test_the_build_has_them() -> None:
    """`make install` edits them into llama.cpp; it would have stopped if it could not."""
    assert ours.graphs
