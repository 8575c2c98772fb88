"""Comparing policies: the worlds are there by name, and what differs is told."""

from __future__ import annotations

from control.simulator import MACHINES, NOISE, Text
from control.worlds import compare, worlds
from hypothesis import given
from hypothesis import strategies as st

speeds = st.dictionaries(
    st.sampled_from(["a", "b", "c"]), st.floats(0.5, 8).map(lambda speed: {"speed": speed})
)


def test_every_machine_is_in_several_worlds() -> None:
    """And each world has a name of its own, by which it can be played alone."""
    names = list(worlds())
    assert len(names) > 90
    assert all(sum(name.startswith(machine) for name in names) > 8 for machine in MACHINES)
    assert Text([NOISE], 1).length > 1000


@given(speeds)
def test_a_policy_is_as_fast_as_itself(before: dict[str, dict[str, float]]) -> None:
    """No line but the mean."""
    assert compare(before, before, 0.0) == [f"{len(before)} worlds, 1.0000 of the speed"]


def test_what_lost_is_named() -> None:
    """With the share that it lost; what lost less than asked for is in the mean alone."""
    before = {"a": {"speed": 2.0}, "b": {"speed": 4.0, "behind": 0.5}, "gone": {"speed": 1.0}}
    after = {"a": {"speed": 1.99}, "b": {"speed": 3.0, "behind": 1.2}}
    late, lost, mean = compare(before, after, 0.02)
    assert lost == "b: speed 4.000, now 3.000 (-25.0%)"
    assert late.startswith("b: 1.20 of what an answer may be behind")
    assert mean.startswith("2 worlds, 0.86")
