"""A prefix is loaded where that is faster than reading, by what both took."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st

from localspec.worker.loading_cost import LoadingCost, Medium

media = st.sampled_from(["memory", "disk"])
times = st.floats(1e-12, 1e-3)


@given(times, times, st.integers(1, 10_000), st.integers(1, 1 << 40), media)
def test_the_faster_way_once_both_are_known(
    token: float, byte: float, tokens: int, size: int, medium: Medium
) -> None:
    """After enough measurements the decision is that of their times."""
    cost = LoadingCost()
    assert cost.worth(tokens, size, medium)  # nothing was read yet: it is tried
    for _ in range(400):
        cost.read(100, 100 * token)
        cost.loaded(1000, 1000 * byte, "memory")
        cost.loaded(1000, 1000 * byte, "disk")
    loading = size * byte * (2 if medium == "disk" else 1)
    assert math.isclose(cost.loading(size, medium), loading, rel_tol=0.01)
    if not math.isclose(loading, tokens * token, rel_tol=0.02):
        assert cost.worth(tokens, size, medium) == (loading < tokens * token)


@given(times, media)
def test_what_was_slow_once_is_tried_again(token: float, medium: Medium) -> None:
    """After it was passed over often enough."""
    cost = LoadingCost()
    cost.read(100, 100 * token)
    for _ in range(100):
        cost.loaded(1 << 20, 1000.0, medium)
    for _ in range(1000):
        if cost.worth(1000, 1 << 20, medium):
            break
        cost.passed_over(medium)
    assert cost.worth(1000, 1 << 20, medium) or cost.loading(1 << 20, "memory") > 1000 * token


@given(st.lists(st.tuples(st.floats(), st.integers(-5, 100)), max_size=20))
def test_no_measurement_breaks_it(measured: list[tuple[float, int]]) -> None:
    """Times stay times, whatever a clock says; and they survive a file."""
    cost = LoadingCost()
    for seconds, count in measured:
        cost.read(count, seconds)
        cost.loaded(count, seconds, "disk")
    known = cost.to_dict()
    assert all(0 <= value < math.inf for value in known.values())
    assert LoadingCost.from_dict(known).to_dict() == known
    assert LoadingCost.from_dict({"token": -1.0, "disk": math.nan}).worth(1, 1, "disk")


def test_one_busy_moment_is_not_believed() -> None:
    """A measurement a thousand times as long as others changes little."""
    cost = LoadingCost()
    for _ in range(50):
        cost.read(512, 1.0)
    cost.read(512, 1000.0)
    assert cost.reading(512) < 3.0
