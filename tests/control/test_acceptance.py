"""Calibration: from the drafter's prior to what the target said, for the model and the session."""

from __future__ import annotations

import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.control.acceptance import Acceptance, SessionAcceptance
from localspec.types import Signal

SIGNAL = Signal("lookup", 3, 0.6)
signals = st.builds(
    Signal, st.sampled_from(["lookup", "neural"]), st.integers(0, 4), st.floats(0, 1)
)


def test_without_observations_the_prior_speaks() -> None:
    """And each bucket of each source has its own."""
    acceptance = Acceptance()
    assert acceptance.estimate(SIGNAL) == pytest.approx(0.6)
    acceptance.observe(SIGNAL, accepted=False)
    assert acceptance.estimate(SIGNAL) < 0.6
    assert acceptance.estimate(SIGNAL._replace(bucket=4)) == pytest.approx(0.6)
    assert acceptance.estimate(SIGNAL._replace(source="other")) == pytest.approx(0.6)


@pytest.mark.parametrize("truth", [0.1, 0.5, 0.97])
def test_the_estimate_comes_to_what_the_target_says(truth: float) -> None:
    """Within the noise of the few hundred outcomes that it remembers."""
    rng = random.Random(5)  # noqa: S311 — a simulation
    acceptance = Acceptance()
    for _ in range(2000):
        acceptance.observe(SIGNAL, rng.random() < truth)
    assert acceptance.estimate(SIGNAL) == pytest.approx(truth, abs=0.06)


def test_what_was_true_long_ago_is_forgotten() -> None:
    """A thousand rejections outweigh any past."""
    acceptance = Acceptance()
    for _ in range(5000):
        acceptance.observe(SIGNAL, accepted=True)
    for _ in range(1000):
        acceptance.observe(SIGNAL, accepted=False)
    assert acceptance.estimate(SIGNAL) < 0.1


def test_one_long_copy_does_not_speak_for_the_model() -> None:
    """Many answers that say no outweigh one that says yes a thousand times, unlike in itself."""
    acceptance, copying = Acceptance(), SessionAcceptance()
    for _ in range(20):
        local = SessionAcceptance()
        for _ in range(5):
            acceptance.observe(SIGNAL, accepted=False, local=local)
    before = acceptance.estimate(SIGNAL)
    for _ in range(1000):
        acceptance.observe(SIGNAL, accepted=True, local=copying)
    assert acceptance.estimate(SIGNAL, copying) > 0.9
    assert acceptance.estimate(SIGNAL) < 0.5
    assert before < acceptance.estimate(SIGNAL)


def test_a_session_that_differs_is_corrected_without_teaching_the_model_alone() -> None:
    """Within 30 outcomes the session's estimate has gone most of the way; the model's has not."""
    acceptance, local = Acceptance(), SessionAcceptance()
    for _ in range(500):
        acceptance.observe(SIGNAL, accepted=True)
    for _ in range(30):
        acceptance.observe(SIGNAL, accepted=False, local=local)
    assert acceptance.estimate(SIGNAL, local) < 0.6 < 0.8 < acceptance.estimate(SIGNAL)  # noqa: PLR0133 — two bounds, one line
    assert acceptance.estimate(SIGNAL, SessionAcceptance()) == acceptance.estimate(SIGNAL)


@given(st.lists(st.tuples(signals, st.booleans()), max_size=200), st.lists(signals, max_size=10))
def test_estimates_are_probabilities_and_survival_never_rises(
    events: list[tuple[Signal, bool]], chain: list[Signal]
) -> None:
    """For any priors of drafters and any outcomes."""
    acceptance, local = Acceptance(), SessionAcceptance()
    for signal, accepted in events:
        acceptance.observe(signal, accepted, local)
    survival = acceptance.survival(chain, local)
    assert all(0 < alive < 1 for alive in survival)
    assert survival == sorted(survival, reverse=True)
    again = Acceptance.from_dict(json.loads(json.dumps(acceptance.to_dict())))
    assert again.survival(chain) == acceptance.survival(chain)


@pytest.mark.parametrize(
    "data",
    [
        {},
        {"buckets": [["lookup", 1, 5, 2]], "outlooks": {}},
        {"buckets": [["lookup"]], "outlooks": {}},
        {"buckets": [], "outlooks": {"neural": {"counts": [[1]]}}},
    ],
)
def test_damaged_counts_are_refused(data: dict[str, object]) -> None:
    """More accepted than observed, or another shape: the owner learns anew."""
    with pytest.raises(ValueError, match=r"not a|not enough values"):
        Acceptance.from_dict(data)
