"""The statistics of a report, as laws over any values."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.bench.statistics import bootstrap, geometric_mean, median, percentile

VALUES = st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=30)
RATIOS = st.lists(st.floats(0.01, 100), min_size=1, max_size=30)
SHARES = st.floats(0, 1)


@given(VALUES, SHARES, SHARES)
def test_percentiles_rise_and_stay_among_the_values(
    values: list[float], one: float, other: float
) -> None:
    """From the smallest at 0 to the largest at 1, never backwards in between."""
    low, high = sorted((one, other))
    assert min(values) <= percentile(values, low) <= max(values)
    assert percentile(values, 0) == min(values)
    assert percentile(values, 1) == max(values)
    if low < high:
        assert percentile(values, low) <= percentile(values, high) + 1e-6


@given(VALUES)
def test_half_of_the_values_lie_on_either_side_of_the_median(values: list[float]) -> None:
    """At least half are not above it, at least half are not below it."""
    middle = median(values)
    assert 2 * sum(value <= middle for value in values) >= len(values)
    assert 2 * sum(value >= middle for value in values) >= len(values)


def test_no_values_and_no_share_are_refused() -> None:
    """A figure of nothing would look like a measurement."""
    with pytest.raises(ValueError, match="no values"):
        median([])
    with pytest.raises(ValueError, match="not a share"):
        percentile([1.0], 1.5)


@given(RATIOS)
def test_the_mean_of_ratios_does_not_depend_on_which_arm_is_the_base(ratios: list[float]) -> None:
    """The mean of inverse ratios is the inverse mean; an arithmetic mean favours the numerator."""
    turned = geometric_mean([1 / ratio for ratio in ratios])
    assert math.isclose(geometric_mean(ratios) * turned, 1, rel_tol=1e-9)


@given(RATIOS, st.integers(0, 9))
def test_an_interval_lies_among_the_values_and_can_be_computed_again(
    ratios: list[float], seed: int
) -> None:
    """Resampling draws from what was measured and from nothing else, and its seed fixes it."""
    low, high = bootstrap(ratios, median, resamples=50, seed=seed)
    assert min(ratios) <= low <= high <= max(ratios)
    assert (low, high) == bootstrap(ratios, median, resamples=50, seed=seed)


def test_an_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    """Over many samples of a known law, nominal 95 % contain its median."""
    draw = random.Random(5)  # noqa: S311  a sample, not a secret
    covered = 0
    for trial in range(200):
        sample = [draw.lognormvariate(0, 0.3) for _ in range(40)]
        low, high = bootstrap(sample, geometric_mean, resamples=200, seed=trial)
        covered += low <= 1 <= high
    assert covered >= 175


def test_more_prompts_make_a_narrower_interval() -> None:
    """It says how much is known, and more is known of more."""
    few, many = [0.8, 1.0, 1.3], [0.8, 1.0, 1.3] * 20
    few_low, few_high = bootstrap(few, geometric_mean)
    low, high = bootstrap(many, geometric_mean)
    assert high - low < (few_high - few_low) / 2
