"""Threads are one less while a neighbour makes that faster, on machines that are formulas."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from localspec.engine.llama.thread_count import LONGEST_REST_SECONDS, Threads, Trial

KINDS = [("draft", 1), ("draft", 1), ("draft", 2), ("target", 4)]
"""Forwards as rounds have them: always in the same order."""


class Machine(NamedTuple):
    """Seconds of a forward by its threads, all of them or one less, and who pushes them aside."""

    all: float
    fewer: float
    waits_per_second: float

    def seconds(self, count: int, most: int, kind: tuple[str, int]) -> float:
        """Of a forward; the target's take longer."""
        return (self.all if count == most else self.fewer) * (3 if kind[0] == "target" else 1)


QUIET = Machine(0.02, 0.03, 60)
HELD_UP = Machine(0.05, 0.03, 1000)
BORNE = Machine(0.028, 0.03, 1000)


class Run:
    """Forwards one after another; what each got, and when."""

    def __init__(self, threads: Threads, noise: float = 0.0) -> None:
        self.threads, self.now = threads, 0.0
        self._noise, self._random = noise, np.random.default_rng(4)
        self._kinds = itertools.cycle(KINDS)

    def on(self, machine: Machine, seconds: float) -> Iterator[int]:
        """Threads of each forward in so many seconds."""
        until = self.now + seconds
        while self.now < until:
            kind = next(self._kinds)
            count = self.threads.count(kind)
            span = machine.seconds(count, self.threads.most, kind)
            span *= 1 + self._noise * self._random.exponential()
            self.now += span
            waits = round(machine.waits_per_second * span)
            self.threads.took(kind, count, span, waits, self.now)
            yield count


def test_a_quiet_machine_is_never_tried() -> None:
    """All threads, always."""
    assert set(Run(Threads(8)).on(QUIET, 100)) == {8}


def test_a_neighbour_that_holds_all_up_costs_one_thread_and_gets_it_back() -> None:
    """Noticed within a second, and gone within the longest rest."""
    run = Run(Threads(8), noise=0.2)
    assert set(run.on(QUIET, 10)) == {8}
    assert set(list(run.on(HELD_UP, 20))[-20:]) <= {7, 8}
    assert run.threads.chosen == 7
    within_a_second = list(run.on(HELD_UP, 1))
    assert within_a_second.count(7) > 0.7 * len(within_a_second)
    list(run.on(QUIET, LONGEST_REST_SECONDS + 2))
    assert run.threads.chosen == 8


def test_it_is_noticed_within_a_second() -> None:
    """From the first forward beside the neighbour."""
    run = Run(Threads(2))
    list(run.on(QUIET, 10))
    list(run.on(HELD_UP, 1))
    assert run.threads.chosen == 1


@settings(max_examples=30)
@given(st.floats(0.3, 3), st.floats(0, 1000), st.floats(0, 0.3), st.integers(2, 64))
def test_never_much_slower_than_all_threads(
    fewer: float, waits: float, noise: float, most: int
) -> None:
    """Nor than one less where a neighbour is: whatever the two take, and however they vary."""
    machine = Machine(0.02, 0.02 * fewer, waits)
    run = Run(Threads(most), noise)
    counts = list(run.on(machine, 300))
    plain = sum(
        machine.seconds(most, most, kind) * (1 + noise)
        for kind, _ in zip(itertools.cycle(KINDS), counts, strict=False)
    )
    assert run.now < 1.08 * plain
    if waits > 200 and fewer < 0.9 / (1 + noise):
        assert run.now < 1.15 * fewer * plain


def test_what_may_not_vary_does_not() -> None:
    """Where bits depend on threads, or there is only one."""
    for threads in (Threads(8, varies=False), Threads(1)):
        assert set(Run(threads).on(HELD_UP, 30)) == {threads.most}


def test_where_all_are_still_the_fastest_trials_cost_little() -> None:
    """A neighbour among eight cores, or one that a thread less would not escape."""
    for machine in (BORNE, QUIET._replace(waits_per_second=1000)):
        run = Run(Threads(8))
        counts = list(run.on(machine, 600))
        kinds = zip(itertools.cycle(KINDS), counts, strict=False)
        assert run.now < 1.015 * sum(machine.seconds(8, 8, kind) for kind, _ in kinds)


def test_long_forwards_are_no_part_of_a_trial() -> None:
    """A prompt is read by all threads, also while short forwards are tried."""
    threads = Threads(2)
    threads.took("short", 2, 1.0, 1000, 1.0)
    assert [threads.count("short"), threads.count(None)] == [2, 2]
    threads.took("short", 2, 0.02, 10, 1.1)
    assert [threads.count("short"), threads.count(None)] == [1, 2]


@pytest.mark.parametrize(("spans", "expected"), [({4: 3, 8: 2}, 8), ({4: 2, 8: 2}, 4), ({4: 1}, 4)])
def test_kinds_of_cores_are_measured(spans: dict[int, float], expected: int) -> None:
    """The fastest of several numbers; the first unless another is faster by more than noise."""
    spans = {12: 4.0} | spans
    trial = Trial([4, *(set(spans) - {4})])
    for _ in range(30):
        count = trial.count("row")
        trial.took("row", count, spans[count])
    assert trial.fastest == expected
