"""What a neural source promises: the model of its confidence, and optimal stopping in it."""

from __future__ import annotations

import json
import random
from bisect import bisect_right

import numpy as np
import pytest
from control.simulator import GPU, Q4_0, Q4_K, Machine
from hypothesis import given
from hypothesis import strategies as st

from localspec.control.outlook import DEPTH, EASE, LEVEL_EDGES, Outlook, Prospect, news, solve

AMX = {1: 1, 2: 1.85, 4: 2.05, 6: 2.3, 8: 2.75, 16: 3.45, 32: 5.2}
CURVES = {"Q4_K": Q4_K, "Q4_0": Q4_0, "AMX": AMX, "GPU": GPU}


def prospect(curve: str, rate: float = 1.0, step: float = 0.2) -> Prospect:
    """Solved for one of the machines, at `rate` tokens in the time of one row."""
    machine = Machine(CURVES[curve])
    prices = [rate * (machine.target(1 + nodes) - 1) for nodes in range(DEPTH + 1)]
    return solve(Outlook(), prices, rate * step)


def drawn(outlook: Outlook, ease: float, rng: random.Random) -> list[float]:
    """The chances of a chain as the outlook believes they come."""
    chances = []
    for _ in range(DEPTH):
        inside = min(max(ease, EASE[0]), EASE[-1])
        knot = min(bisect_right(EASE, inside) - 1, len(EASE) - 2)
        share = (inside - EASE[knot]) / (EASE[knot + 1] - EASE[knot])
        weights = (1 - share) * outlook.shares[knot] + share * outlook.shares[knot + 1]
        chance = float(outlook.chances[rng.choices(range(len(weights)), weights)[0]])
        chances.append(chance)
        ease = news(ease, chance)
    return chances


def realised(found: Prospect, chances: list[float], ease: float, stop: int | None) -> float:
    """The worth of one draft that stops where the prospect says, or after `stop` nodes."""
    survival: list[float] = []
    for chance in chances:
        survival.append((survival[-1] if survival else 1.0) * chance)
        ease = news(ease, chance)
        if len(survival) == stop or (stop is None and not found.goes_on(survival, ease)):
            break
    gains = np.concatenate([[0.0], np.cumsum(survival)])
    step = -float(found.tables[0, 0, -1, 0])  # a node that cannot survive is worth its price
    return float((gains - found.prices[: len(gains)]).max()) - step * len(survival)


@pytest.mark.parametrize("curve", CURVES)
@pytest.mark.parametrize("ease", [0.6, 0.84, 0.97])
def test_promises_are_kept_and_no_fixed_depth_does_better(curve: str, ease: float) -> None:
    """Over many chains from the model itself: worth as promised, and at least that of any depth."""
    found = prospect(curve)
    rng = random.Random(3)  # noqa: S311 — a simulation
    chains = [drawn(Outlook(), ease, rng) for _ in range(1500)]
    worth = float(np.mean([realised(found, chain, ease, None) for chain in chains]))
    promised = found.ahead(ease).worth
    assert worth == pytest.approx(promised, abs=0.08 + 0.06 * promised)
    for depth in (1, 2, 3, 5, 8, 16):
        fixed = float(np.mean([realised(found, chain, ease, depth) for chain in chains]))
        assert worth > fixed - 0.08


@given(
    st.sampled_from(sorted(CURVES)),
    st.floats(0.5, 3),
    st.floats(0.01, 0.6),
    st.floats(0.3, 1),
    st.lists(st.floats(0.1, 1), max_size=12),
)
def test_drafting_on_is_never_worth_less_than_its_next_step(
    curve: str, rate: float, step: float, ease: float, chances: list[float]
) -> None:
    """A node may always be dropped; easier text promises more, a dearer step less."""
    found, dearer = prospect(curve, rate, step), prospect(curve, rate, 2 * step)
    survival = np.cumprod(chances).tolist() if chances else []
    if survival and survival[-1] < 0.02:
        return
    verified = sum(survival) - float(found.prices[len(survival)])
    ahead = found.ahead(ease, survival)
    assert ahead.worth >= verified - rate * step - 1e-9
    assert sum(survival) <= ahead.accepted <= DEPTH
    assert found.ahead(min(ease + 0.1, 1.0), survival).worth >= ahead.worth - 1e-9
    assert dearer.ahead(ease, survival).worth <= ahead.worth + 1e-9


def test_a_draft_ends_where_the_table_does() -> None:
    """However good it is."""
    found = prospect("GPU", step=0.01)
    assert not found.goes_on([0.999] * DEPTH, 0.99)
    assert found.goes_on([0.999] * (DEPTH - 4), 0.99)


@pytest.mark.parametrize("truth", [0.2, 0.75, 0.999])
def test_the_outlook_comes_to_what_the_source_says(truth: float) -> None:
    """Where it drafts; what it thinks of other texts stays."""
    outlook, ease = Outlook(), 0.84
    before = outlook.shares
    for _ in range(2000):
        outlook.observe([truth], ease)
    assert outlook.shares[EASE.index(ease)][bisect_right(LEVEL_EDGES, truth)] > 0.9
    assert outlook.shares[0] == pytest.approx(before[0])
    assert outlook.chances[bisect_right(LEVEL_EDGES, truth)] == pytest.approx(truth, abs=1e-3)
    again = Outlook.from_dict(json.loads(json.dumps(outlook.to_dict())))
    assert again.shares == pytest.approx(outlook.shares)
    assert again.chances == pytest.approx(outlook.chances)


@pytest.mark.parametrize("damage", [{"counts": [[1.0]]}, {"chances": [2.0] * 6}, {"counts": None}])
def test_a_damaged_outlook_is_refused(damage: dict[str, object]) -> None:
    """Its owner learns anew."""
    with pytest.raises(ValueError, match="not an outlook"):
        Outlook.from_dict({**Outlook().to_dict(), **damage})
