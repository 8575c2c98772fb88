"""The list of planted mistakes does not rot: each can still be planted, and its tests are there.

`make mutants` plants them and runs the tests, for a quarter of an hour.
"""

from __future__ import annotations

from collections import Counter

from mutants.catalogue import MUTANTS


def test_every_mistake_can_be_planted_and_noticed() -> None:
    """Its text occurs exactly once where it is to be changed, and the tests it names exist."""
    assert [fault for mutant in MUTANTS for fault in mutant.faults()] == []


def test_they_are_many_and_each_is_another() -> None:
    """At least sixty, with names of their own, over all rooms."""
    assert len(MUTANTS) >= 60
    assert max(Counter(mutant.what for mutant in MUTANTS).values()) == 1
    rooms = {"engine", "control", "drafters", "text", "worker", "catalog", "localspec_daemon"}
    assert rooms <= {part for mutant in MUTANTS for part in mutant.file.split("/")}
