"""A neural source's promises: the model of its confidence, and optimal stopping in it."""

from __future__ import annotations

import json
import random
from bisect import bisect_right

import numpy as np
import pytest
from control.simulator import GPU, Q4_0, Q4_K, Machine
from hypothesis import given
from hypothesis import strategies as st

from localspec.control.confidence import (
    DEPTH,
    LEVEL_EDGES,
    TARGET_CONFIDENCES,
    DraftConfidence,
    StoppingTable,
    news,
    solve,
)

AMX = {1: 1, 2: 1.85, 4: 2.05, 6: 2.3, 8: 2.75, 16: 3.45, 32: 5.2}
CURVES = {"Q4_K": Q4_K, "Q4_0": Q4_0, "AMX": AMX, "GPU": GPU}


def stopping_table(curve: str, rate: float = 1.0, step: float = 0.2) -> StoppingTable:
    """Solved for one of the machines, at `rate` tokens in the time of one row."""
    machine = Machine(CURVES[curve])
    prices = [rate * (machine.target(1 + nodes) - 1) for nodes in range(DEPTH + 1)]
    return solve(DraftConfidence(), prices, rate * step)


def drawn(confidence: DraftConfidence, target_confidence: float, rng: random.Random) -> list[float]:
    """The chances of a chain as the confidence believes they come."""
    chances = []
    for _ in range(DEPTH):
        inside = min(max(target_confidence, TARGET_CONFIDENCES[0]), TARGET_CONFIDENCES[-1])
        knot = min(bisect_right(TARGET_CONFIDENCES, inside) - 1, len(TARGET_CONFIDENCES) - 2)
        share = (inside - TARGET_CONFIDENCES[knot]) / (
            TARGET_CONFIDENCES[knot + 1] - TARGET_CONFIDENCES[knot]
        )
        weights = (1 - share) * confidence.shares[knot] + share * confidence.shares[knot + 1]
        chance = float(confidence.chances[rng.choices(range(len(weights)), weights)[0]])
        chances.append(chance)
        target_confidence = news(target_confidence, chance)
    return chances


def realised(
    found: StoppingTable, chances: list[float], target_confidence: float, stop: int | None
) -> float:
    """The worth of one draft that stops where the stopping_table says, or after `stop` nodes."""
    survival: list[float] = []
    for chance in chances:
        survival.append((survival[-1] if survival else 1.0) * chance)
        target_confidence = news(target_confidence, chance)
        if len(survival) == stop or (
            stop is None and not found.goes_on(survival, target_confidence)
        ):
            break
    gains = np.concatenate([[0.0], np.cumsum(survival)])
    step = -float(found.tables[0, 0, -1, 0])  # a node that cannot survive is worth its price
    return float((gains - found.prices[: len(gains)]).max()) - step * len(survival)


@pytest.mark.parametrize("curve", CURVES)
@pytest.mark.parametrize("target_confidence", [0.6, 0.84, 0.97])
def test_promises_are_kept_and_no_fixed_depth_does_better(
    curve: str, target_confidence: float
) -> None:
    """Over many chains from the model itself: worth as promised, and at least that of any depth."""
    found = stopping_table(curve)
    rng = random.Random(3)  # noqa: S311 — a simulation
    chains = [drawn(DraftConfidence(), target_confidence, rng) for _ in range(1500)]
    worth = float(np.mean([realised(found, chain, target_confidence, None) for chain in chains]))
    promised = found.ahead(target_confidence).worth
    assert worth == pytest.approx(promised, abs=0.08 + 0.06 * promised)
    for depth in (1, 2, 3, 5, 8, 16):
        fixed = float(
            np.mean([realised(found, chain, target_confidence, depth) for chain in chains])
        )
        assert worth > fixed - 0.08


@given(
    st.sampled_from(sorted(CURVES)),
    st.floats(0.5, 3),
    st.floats(0.01, 0.6),
    st.floats(0.3, 1),
    st.lists(st.floats(0.1, 1), max_size=12),
)
def test_drafting_on_is_never_worth_less_than_its_next_step(
    curve: str, rate: float, step: float, target_confidence: float, chances: list[float]
) -> None:
    """A node may always be dropped; easier text promises more, a dearer step less."""
    found, dearer = stopping_table(curve, rate, step), stopping_table(curve, rate, 2 * step)
    survival = np.cumprod(chances).tolist() if chances else []
    if survival and survival[-1] < 0.02:
        return
    verified = sum(survival) - float(found.prices[len(survival)])
    ahead = found.ahead(target_confidence, survival)
    assert ahead.worth >= verified - rate * step - 1e-9
    assert sum(survival) <= ahead.accepted <= DEPTH
    assert found.ahead(min(target_confidence + 0.1, 1.0), survival).worth >= ahead.worth - 1e-9
    assert dearer.ahead(target_confidence, survival).worth <= ahead.worth + 1e-9


def test_a_draft_ends_where_the_table_does() -> None:
    """However good it is."""
    found = stopping_table("GPU", step=0.01)
    assert not found.goes_on([0.999] * DEPTH, 0.99)
    assert found.goes_on([0.999] * (DEPTH - 4), 0.99)


@pytest.mark.parametrize("truth", [0.2, 0.75, 0.999])
def test_the_outlook_comes_to_what_the_source_says(truth: float) -> None:
    """Where it drafts; what it thinks of other texts stays."""
    confidence, target_confidence = DraftConfidence(), 0.84
    before = confidence.shares
    for _ in range(2000):
        confidence.observe([truth], target_confidence)
    assert (
        confidence.shares[TARGET_CONFIDENCES.index(target_confidence)][
            bisect_right(LEVEL_EDGES, truth)
        ]
        > 0.9
    )
    assert confidence.shares[0] == pytest.approx(before[0])
    assert confidence.chances[bisect_right(LEVEL_EDGES, truth)] == pytest.approx(truth, abs=1e-3)
    again = DraftConfidence.from_dict(json.loads(json.dumps(confidence.to_dict())))
    assert again.shares == pytest.approx(confidence.shares)
    assert again.chances == pytest.approx(confidence.chances)


@pytest.mark.parametrize("damage", [{"counts": [[1.0]]}, {"chances": [2.0] * 6}, {"counts": None}])
def test_a_damaged_outlook_is_refused(damage: dict[str, object]) -> None:
    """Its owner learns anew."""
    with pytest.raises(ValueError, match="not a draft confidence"):
        DraftConfidence.from_dict({**DraftConfidence().to_dict(), **damage})
