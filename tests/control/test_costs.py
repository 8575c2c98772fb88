"""The cost curves: learned from noise, unmoved by a busy machine, kept on disk."""

from __future__ import annotations

import json
import math
import random
from typing import Any

import pytest
from control.simulator import DIP, GPU, H100_1B, H100_7B, Q4_0, Q4_K, Machine
from hypothesis import given
from hypothesis import strategies as st

from localspec.control.costs import POINTS, STEADY, Costs

seconds = st.floats(1e-6, 1e3)

STAIRCASE: dict[str, Any] = {
    "level": 0,
    "look": [0, 1],
    "changes": [[0, 1], [0, 1]],
    "points": {"1": [0, 0]},
}
SOUND: dict[str, Any] = {
    "staircase": STAIRCASE,
    "furthest": 0,
    "drafters": {"neural": [[0, 1]] * 5},
    "host_seconds": 0,
    "host_drafts": [],
    "copy_seconds": None,
}


def learned(machine: Machine, rng: random.Random, repeats: int = 5) -> Costs:
    """Costs after an interleaved measurement at 0.02 s a row."""
    costs = Costs()
    for _ in range(repeats):
        for rows in POINTS:
            noise = rng.lognormvariate(0, machine.noise) * (4 if rng.random() < 0.03 else 1)
            costs.measured(rows, 0.02 * machine.target(rows) * noise)
    return costs


@pytest.mark.parametrize("curve", [Q4_K, Q4_0, GPU])
def test_any_staircase_is_learned_from_noisy_measurements(curve: dict[int, float]) -> None:
    """Five interleaved passes with outliers give every stair within 12 %."""
    machine = Machine(curve, noise=0.05)
    costs = learned(machine, random.Random(1), repeats=7)  # noqa: S311 — a simulation
    for rows in POINTS:
        truth = machine.target(rows) / machine.target(1)
        assert costs.target(rows) / costs.target(1) == pytest.approx(truth, rel=0.12)
    assert costs.target(1) == pytest.approx(0.02, rel=0.15)


def test_a_busy_machine_moves_the_level_and_leaves_the_stairs() -> None:
    """One row takes three times as long for a while; four rows are known to take longer too."""
    machine = Machine(Q4_0, noise=0.0)
    costs = learned(machine, random.Random(2))  # noqa: S311 — a simulation
    for _ in range(200):
        costs.measured(1, 0.06)
    assert costs.target(1) == pytest.approx(0.06, rel=0.05)
    assert costs.target(4) / costs.target(1) == pytest.approx(1.8, rel=0.15)


def test_one_outlier_moves_nothing_far() -> None:
    """A round that was suspended for a minute says only that it was slow."""
    costs = learned(Machine(Q4_K, noise=0.02), random.Random(3))  # noqa: S311 — a simulation
    before = {rows: costs.target(rows) / costs.target(1) for rows in POINTS}
    level = costs.target(1)
    costs.measured(4, 60.0)
    for rows in POINTS:
        assert costs.target(rows) / costs.target(1) == pytest.approx(before[rows], rel=0.08)
    assert costs.target(1) < 1.3 * level


def test_real_rounds_correct_a_stair_that_was_measured_wrong() -> None:
    """Rounds of both sizes tell a wrong stair from a slow machine."""
    costs = learned(Machine(Q4_K, noise=0.0), random.Random(4))  # noqa: S311 — a simulation
    for _ in range(600):
        costs.measured(1, 0.02)
        costs.measured(4, 0.02 * 1.8)
    assert costs.target(4) / costs.target(1) == pytest.approx(1.8, rel=0.08)


def test_before_any_measurement_more_rows_cost_more() -> None:
    """The prior errs to plain decoding: speculation has to be shown to pay."""
    costs = Costs()
    curve = [costs.target(rows) for rows in range(1, 65)]
    assert curve == sorted(curve)
    assert curve[3] / curve[0] == pytest.approx(3.0)


def test_between_measured_points_lies_what_the_neighbours_say() -> None:
    """An unmeasured row count takes its neighbours' departure from the prior shape."""
    prior, costs = Costs(), Costs()
    for _ in range(20):
        costs.measured(8, prior.target(8))
        costs.measured(12, prior.target(12) * 2)
    departure = costs.target(10) / costs.target(8) / (prior.target(10) / prior.target(8))
    assert 1.2 < departure < 1.7


@given(st.lists(st.tuples(st.integers(-2, 80), st.floats(allow_nan=True))))
def test_no_measurement_makes_costs_absurd(events: list[tuple[int, float]]) -> None:
    """NaN, infinite, negative and zero seconds are no measurements."""
    costs = Costs()
    for rows, value in events:
        costs.measured(rows, value)
        costs.measured_draft("neural", rows, rows, value)
        costs.measured_host(value, abs(rows) % 3)
    for rows in (1, 2, 9, 33, 80):
        assert 0 < costs.target(rows) < math.inf
    assert 0 < costs.draft("neural", 3, 2) < math.inf
    assert 0 <= costs.host_seconds < math.inf
    assert 0 <= costs.host_row_seconds < math.inf


def test_a_drafter_costs_what_its_tokens_and_its_reading_took() -> None:
    """Steps are learned from short readings, reading from long ones."""
    costs = Costs()
    for _ in range(40):
        costs.measured(1, 0.02)
        costs.measured_draft("neural", 1, 4, 4 * 0.005)
        costs.measured_draft("neural", 201, 2, 2 * 0.005 + 200 * 0.001)
    assert costs.draft("neural", 1, 3) == pytest.approx(0.015, rel=0.1)
    assert costs.draft("neural", 101, 1) == pytest.approx(0.105, rel=0.1)
    assert costs.draft("neural", 1, 0) == 0
    assert costs.draft("other", 1, 1) > 0


def test_rows_that_look_far_back_cost_more() -> None:
    """Measured near and behind 1000 tokens, the cost behind 4000 is known; the stairs stay."""
    rng = random.Random(5)  # noqa: S311 — a simulation
    costs, look = Costs(), 1.5e-6

    def forward(rows: int, cells: int) -> float:
        return 0.02 * Machine(Q4_K).target(rows) + look * rows * cells

    for cells in (0, 1000) * 5:
        for rows in (1, 4, 8, 16):
            noisy = forward(rows, cells) * rng.lognormvariate(0, 0.05)
            costs.measured(rows, noisy, attended=rows * cells)
    assert costs.attended_seconds == pytest.approx(look, rel=0.25)
    assert costs.target(8, 8 * 4000) == pytest.approx(forward(8, 4000), rel=0.15)
    for rows in (1, 4, 16):
        assert costs.target(rows) == pytest.approx(forward(rows, 0), rel=0.15)
    assert costs.furthest == 1000


def test_a_draft_behind_a_long_text_costs_more() -> None:
    """Steps and reading look back at costs of their own."""
    costs = Costs()
    costs.measured(1, 0.02)
    for _ in range(20):
        for cells, step, read in ((64, 0.005, 0.001), (1000, 0.009, 0.0015)):
            costs.measured_draft("neural", 1, 4, 4 * step, cells)
            costs.measured_draft("neural", 201, 0, 200 * read, cells)
    assert costs.draft("neural", 1, 1, 64) == pytest.approx(0.005, rel=0.1)
    assert costs.draft("neural", 1, 1, 3000) == pytest.approx(0.0175, rel=0.15)
    assert costs.draft("neural", 201, 0, 1000) == pytest.approx(0.3, rel=0.1)


@pytest.mark.parametrize(("first", "second"), [(1.3, 0.6), (0.5, 0.1), (0.02, 0.02), (3.0, 2.0)])
@pytest.mark.parametrize("expected", [False, True])
def test_what_changes_take_is_learned_from_real_rounds(
    first: float, second: float, *, expected: bool
) -> None:
    """Rounds of two row counts in spells; the stairs stay those of steady forwards."""
    rng = random.Random(6)  # noqa: S311 — a simulation
    machine, extra = Machine(H100_1B, noise=0.03), (first, second)
    costs = learned(machine, rng)
    if expected:  # of another machine
        costs.expect_change(0, 0.02)
        costs.expect_change(1, 0.02)
    for _ in range(200):
        for rows, spell in ((1, 4), (4, 3)):
            for alike in range(spell):
                forward = machine.target(rows) + (extra[alike] if alike < STEADY else 0.0)
                noisy = 0.02 * forward * rng.lognormvariate(0, machine.noise)
                costs.measured(rows, noisy, alike=alike)
    assert costs.change_seconds == pytest.approx(0.02 * (first + second), rel=0.2, abs=0.002)
    assert costs.target(4) / costs.target(1) == pytest.approx(H100_1B[4], rel=0.08)
    assert costs.target(1) == pytest.approx(0.02, rel=0.08)


def test_where_changes_are_free_they_are_learned_to_be() -> None:
    """On a CPU nothing tells a forward that follows others of its size from one that does not."""
    rng = random.Random(7)  # noqa: S311 — a simulation
    machine = Machine(Q4_K, noise=0.05)
    costs = learned(machine, rng)
    for _ in range(600):
        rows = rng.choice((1, 1, 1, 4))
        noisy = 0.02 * machine.target(rows) * rng.lognormvariate(0, machine.noise)
        costs.measured(rows, noisy, alike=rng.randrange(3))
    assert costs.change_seconds < 0.05 * costs.target(1)


def test_what_a_drafters_changes_take_is_learned() -> None:
    """Drafts with and without forwards of other rows."""
    costs = Costs()
    for _ in range(60):
        costs.measured(1, 0.02)
        costs.measured_draft("neural", 1, 4, 4 * 0.01, changes=0)
        costs.measured_draft("neural", 2, 4, 4 * 0.01 + 0.001 + 2 * 0.03, changes=2)
        costs.measured_draft("neural", 101, 1, 0.01 + 100 * 0.001 + 2 * 0.03, changes=2)
    assert costs.draft("neural", 1, 4, changes=2) == pytest.approx(0.1, rel=0.12)
    assert costs.draft("neural", 1, 4) == pytest.approx(0.04, rel=0.12)


@pytest.mark.parametrize("curve", [Q4_K, Q4_0, GPU, DIP, H100_7B])
def test_a_plateau_is_where_more_rows_cost_least(curve: dict[int, float]) -> None:
    """No row count further on is cheaper by more than noise.

    Itself it is cheaper too; only what lies between the measured counts may be dearer by noise.
    """
    costs = learned(Machine(curve, noise=0.0), random.Random(8))  # noqa: S311 — a simulation
    for rows in range(1, 120):
        plateau = costs.plateau(rows)
        assert plateau >= rows
        assert costs.plateau(plateau) == plateau
        if plateau != rows:
            noise = 1.03 if rows not in POINTS and rows < POINTS[-1] else 1.0
            assert costs.target(plateau) < noise * costs.target(rows) * (1 + 1e-9)
        assert all(
            costs.target(plateau) < 1.03 * costs.target(more) for more in range(plateau, 128)
        )


def test_a_curve_may_fall_where_it_falls() -> None:
    """Three rows that cost more than four do so in what is believed, and are not levelled."""
    costs = learned(Machine(DIP, noise=0.0), random.Random(9))  # noqa: S311 — a simulation
    assert costs.target(3) / costs.target(4) == pytest.approx(DIP[3] / DIP[4], rel=0.1)
    assert costs.plateau(3) == 4


@given(st.lists(st.tuples(st.integers(1, 40), seconds), max_size=30))
def test_costs_survive_the_disk(events: list[tuple[int, float]]) -> None:
    """JSON there and back changes no cost."""
    costs = Costs()
    for rows, value in events:
        costs.measured(rows, value, attended=100 * rows, alike=rows % 3)
        costs.measured_draft("neural", rows, 3, value, cells=100, changes=rows % 3)
        costs.measured_host(value, rows % 3)
        costs.measured_copy(value)
    again = Costs.from_dict(json.loads(json.dumps(costs.to_dict())))
    for rows in range(1, 50):
        assert again.target(rows, 500) == pytest.approx(costs.target(rows, 500))
    assert again.draft("neural", 7, 3, 9) == pytest.approx(costs.draft("neural", 7, 3, 9))
    assert again.draft("neural", 7, 3, 9, 2) == pytest.approx(costs.draft("neural", 7, 3, 9, 2))
    assert again.change_seconds == pytest.approx(costs.change_seconds)
    assert [again.plateau(rows) for rows in range(1, 50)] == [
        costs.plateau(rows) for rows in range(1, 50)
    ]
    assert again.furthest == costs.furthest
    assert again.host_seconds == costs.host_seconds
    assert again.host_row_seconds == costs.host_row_seconds
    assert again.copy_seconds == costs.copy_seconds
    assert set(again.measured_rows()) == {rows for rows, _ in events}


def test_what_is_refused_when_damaged_is_taken_when_sound() -> None:
    """Or the cases below could be refused for another reason."""
    assert set(Costs.from_dict(SOUND).measured_rows()) == {1}


@pytest.mark.parametrize(
    "data",
    [
        {},
        {**SOUND, "staircase": {}},
        {**SOUND, "staircase": {**STAIRCASE, "points": {"one": [0, 0]}}},
        {**SOUND, "staircase": {**STAIRCASE, "points": {"1": [0, -1]}}},
        {**SOUND, "staircase": {**STAIRCASE, "points": []}},
        {**SOUND, "staircase": {**STAIRCASE, "level": float("nan")}},
        {**SOUND, "copy_seconds": float("nan")},
        {**SOUND, "host_drafts": [1.0]},
        {**SOUND, "host_drafts": [1.0, 1.0, -1.0, 0.0]},
        {**SOUND, "drafters": {"neural": {}}},
        {**SOUND, "drafters": {"neural": [[0, 1]]}},
        {**SOUND, "drafters": {"neural": [[0, 1]] * 4}},
        {**SOUND, "staircase": {**STAIRCASE, "level": 1e6, "points": {}}},
        {**SOUND, "staircase": {**STAIRCASE, "changes": [[0, 1]]}},
        {**SOUND, "staircase": {**STAIRCASE, "changes": [[0, 1], [0, -1]]}},
    ],
)
def test_a_damaged_profile_is_refused(data: dict[str, object]) -> None:
    """One kind of error, so that the owner measures anew."""
    refused = r"not a (cost profile|slope)|invalid literal|not enough values"
    with pytest.raises(ValueError, match=refused):
        Costs.from_dict(data)
