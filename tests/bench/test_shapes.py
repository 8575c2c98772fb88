"""Random models in given shapes: real GGUFs, which llama.cpp loads and measures."""

from __future__ import annotations

from pathlib import Path

import gguf
import numpy as np
import pytest

from localspec.bench import shapes, staircase
from localspec.bench.shapes import SHAPES, Kind
from localspec.catalog import header
from localspec.errors import BadGGUF, DiskFull, EngineError


@pytest.mark.parametrize("type_", ["Q4_0", "Q4_K", "Q6_K"])
@pytest.mark.parametrize("deviation", [1.0, 0.014])
def test_blocks_hold_weights_of_the_asked_size(type_: str, deviation: float) -> None:
    """Read by the gguf package's own dequantizer: the deviation asked for, a mean near 0."""
    made = shapes.blocks(type_, 4096, deviation, np.random.default_rng(0))
    kind = gguf.GGMLQuantizationType[type_]
    weights = gguf.quants.dequantize(made.view(np.uint8).reshape(4096, -1), kind)
    assert weights.std() == pytest.approx(deviation, rel=0.02)
    assert abs(weights.mean()) < 0.15 * deviation


@pytest.mark.parametrize("kind", ["q4_0", "q4_k_m"])
def test_a_shape_is_a_model_that_llama_computes(tmp_path: Path, kind: Kind) -> None:
    """Written, accepted by the header check, loaded, measured at every row count and context."""
    path = shapes.write(tmp_path / "tiny.gguf", SHAPES["tiny"], kind)
    assert header.read(path).architecture == "qwen2"
    measured = staircase.measure(
        path, rows=(1, 2, 8, 9), cells=(16, 600), repeats=2, gpu_layers=0, threads=1
    )
    assert not measured.on_gpu
    assert sum(measured.memory.values()) > measured.size_bytes > 0
    assert [curve.cells for curve in measured.curves] == [16, 600]
    for curve in measured.curves:
        assert [stair.rows for stair in curve.stairs] == [1, 2, 8, 9]
        assert all(0 < stair.least_ms <= stair.median_ms for stair in curve.stairs)
    table = staircase.table({"tiny": measured})
    assert [row[:2] for row in table.rows] == [["tiny", "16"], ["tiny", "600"]]
    assert all(len(row) == len(table.head) for row in table.rows)


def test_shapes_have_the_size_of_what_they_stand_for() -> None:
    """Weights of Qwen2.5-7B, -14B and -32B at Q4_K_M, within 3 % of the published files."""
    published_bytes = {"7b": 4.68e9, "14b": 8.99e9, "32b": 19.85e9}
    for name, size in published_bytes.items():
        assert shapes.weight_bytes(SHAPES[name], "q4_k_m") == pytest.approx(size, rel=0.03)


def test_a_full_disk_is_told_before_anything_is_written(tmp_path: Path) -> None:
    """A shape larger than any disk."""
    vast = shapes.Shape(10_000, 1 << 16, 512, 512, 1 << 18)
    with pytest.raises(DiskFull, match="needs"):
        shapes.write(tmp_path / "vast.gguf", vast, "q4_0")
    assert list(tmp_path.iterdir()) == []


def test_what_cannot_be_measured_says_why(tmp_path: Path) -> None:
    """A file that is no model never reaches native code; one that llama.cpp refuses is told."""
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"no model")
    with pytest.raises(BadGGUF):
        staircase.measure(broken)
    path = shapes.write(tmp_path / "tiny.gguf", SHAPES["tiny"], "q4_0")
    with pytest.raises(EngineError, match="32768"):
        staircase.measure(path, cells=(1 << 40,), gpu_layers=0, threads=1)
