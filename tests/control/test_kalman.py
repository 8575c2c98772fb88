"""Beliefs: each quantity is found out from sums of several."""

from __future__ import annotations

import math
import random

import pytest

from localspec.control.kalman import Beliefs


def test_the_parts_of_a_sum_are_told_apart() -> None:
    """Two costs that are never seen alone, measured in different amounts with 10 % noise."""
    rng = random.Random(1)  # noqa: S311 — a simulation
    truth = (0.2, 3.0)
    beliefs = Beliefs()
    for _ in truth:
        beliefs.add(0.0, 4.0, 1e-6)
    for _ in range(400):
        amounts = rng.uniform(0.5, 20), rng.uniform(0.1, 2)
        seconds = sum(a * t for a, t in zip(amounts, truth, strict=True)) * rng.lognormvariate(
            0, 0.1
        )
        parts = [a * math.exp(mean) for a, mean in zip(amounts, beliefs.means, strict=True)]
        slopes = [(place, part / sum(parts)) for place, part in enumerate(parts)]
        beliefs.measured(slopes, math.log(seconds / sum(parts)))
    found = [math.exp(mean) for mean in beliefs.means]
    assert found == pytest.approx(truth, rel=0.08)
    assert all(beliefs.variance(place) < 0.01 for place in (0, 1))


def test_what_a_measurement_does_not_contain_stays() -> None:
    """A quantity without a share in the sum keeps its mean, and grows uncertain by its drift."""
    beliefs = Beliefs()
    here, there = beliefs.add(0.0, 1.0, 0.0), beliefs.add(1.0, 0.5, 0.25)
    beliefs.measured([(here, 1.0)], 0.3)
    assert beliefs.means[there] == 1.0
    assert beliefs.variance(there) == 0.75
    assert 0 < beliefs.means[here] < 0.3
    assert beliefs.variance(here) < 0.01


def test_knowing_one_of_two_that_were_measured_together_tells_of_the_other() -> None:
    """Their sum is known and they are not: given one, the other is."""
    beliefs = Beliefs()
    one, other = beliefs.add(0.0, 1.0, 1e-9), beliefs.add(0.0, 1.0, 1e-9)
    for _ in range(100):
        beliefs.measured([(one, 1.0), (other, 1.0)], 0.0)
    assert beliefs.variance(one) > 0.4
    assert beliefs.variance(one, given=other) < 0.001
