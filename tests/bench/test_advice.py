"""The sentences of `tune` follow from its measurements."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from localspec.bench.advice import learned, treads

K_QUANT = {"1": 20.0, "2": 34.0, "4": 60.0, "8": 100.0, "16": 104.0}
MODEL: dict[str, Any] = {
    "name": "tiny",
    "draft_path": "/models/small.gguf",
    "cost_ms_by_rows": K_QUANT,
    "drafted": {"lookup": 100},
    "accepted": {"lookup": 57},
    "devices": [{"device": "CPU_REPACK", "what": "weights", "bytes": 1}],
}


def advice(*weight_types: str, has_gpu: bool = False, **changes: Any) -> str:
    """All advice for MODEL with `changes`, in one text."""
    return "\n".join(learned(MODEL | changes, weight_types, has_gpu=has_gpu).advice)


def test_edges_are_rows_worth_filling() -> None:
    """8 rows cost almost as much as 16, so 8 is no edge."""
    stairs = treads([(int(rows), ms) for rows, ms in K_QUANT.items()], {4: 99.0})
    assert [stair.rows for stair in stairs if stair.edge] == [1, 2, 4, 16]
    assert [stair.relative for stair in stairs] == [1, 1.7, 3, 5, 5.2]
    assert [stair.far_ms for stair in stairs if stair.far_ms != stair.ms] == [99.0]


def test_without_one_row_nothing_is_relative() -> None:
    """Then nothing is said but that."""
    assert treads([(2, 5.0)], {}) == []
    assert "No costs are measured yet" in advice("Q4_K", cost_ms_by_rows={})
    assert "times one row" not in advice("Q4_K", cost_ms_by_rows={})


@given(st.dictionaries(st.integers(2, 64), st.floats(0.1, 1e3)), st.floats(0.1, 1e3))
def test_an_edge_is_cheaper_by_the_row_than_any_fewer(costs: dict[int, float], one: float) -> None:
    """On any staircase, however jagged."""
    stairs = treads(sorted({1: one, **costs}.items()), {})
    for place, stair in enumerate(stairs):
        if stair.edge:
            assert all(stair.ms / stair.rows < other.ms / other.rows for other in stairs[:place])


def test_steep_stairs_of_a_k_quant_suggest_q4_0() -> None:
    """With the figure that the suggestion follows from, and only then."""
    assert "4 rows cost 3.0 times one row with Q4_K weights" in advice("Q4_K", "Q6_K")
    assert "models quantize" not in advice("Q4_0", "Q6_K")
    assert "models quantize" not in advice("Q4_K", cost_ms_by_rows=K_QUANT | {"4": 40.0})
    assert "models quantize" not in advice()


def test_a_stair_that_leads_down_is_doubted() -> None:
    """Both ends of the worst one are named; noise of a few per cent is not mentioned."""
    said = advice("Q4_0", cost_ms_by_rows=K_QUANT | {"2": 70.0, "3": 64.0})
    assert "2 rows were measured at 3.5 times one row and 4 rows at 3.0" not in said
    said = advice("Q4_0", cost_ms_by_rows=K_QUANT | {"2": 90.0, "3": 64.0})
    assert "2 rows were measured at 4.5 times one row and 4 rows at 3.0" in said
    assert advice("Q4_0", cost_ms_by_rows={"1": 20.0}) == ""


def test_a_gpu_that_is_not_used_is_mentioned() -> None:
    """Host memory of a GPU build is not the GPU."""
    pinned = [{"device": "CUDA_Host", "what": "x", "bytes": 1}]
    used = [*pinned, {"device": "CUDA0", "what": "x", "bytes": 1}]
    assert "has a GPU" in advice(has_gpu=True)
    assert "has a GPU" in advice(has_gpu=True, devices=pinned)
    assert "has a GPU" not in advice(has_gpu=True, devices=used)
    assert "has a GPU" not in advice(has_gpu=False)


def test_what_keeps_a_model_slow_is_said() -> None:
    """Safe kernels, speculation that is off, no draft, short requests."""
    assert "fast kernels crashed" in advice(safe_kernels=True)
    assert "off for this model: no-rollback" in advice(speculation_off="no-rollback")
    left_out = advice(speculation_off="The draft is larger.", drafters=["lookup"])
    assert "No draft model: The draft is larger.\n" in f"{left_out}\n"
    assert "Speculation is off" not in left_out
    assert "models pull tiny" in advice(draft_path=None)
    assert "19 of 30" in advice(routing={"short-request": 19, "speculating": 11})
    assert advice(routing={"short-request": 5}) == ""


def test_what_was_learned_is_told_with_it() -> None:
    """Acceptance as (accepted, drafted), None where nothing was measured."""
    told = learned(MODEL, [], has_gpu=False)
    assert told.acceptance == {"lookup": (57, 100)}
    assert told.tokens_per_second is None
    assert told.advice == []
