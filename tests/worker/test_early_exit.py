"""After which layer a target drafts for itself: measured on a real text, chosen by what it pays."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import tiny
from control.simulator import Q4_K, Machine
from hypothesis import given
from hypothesis import strategies as st
from laws.engine_harness import CONTEXT, PROMPTS, SLOTS, Harness, finish, opened, output
from laws.policies import FixedDepth

from localspec.config import Placement
from localspec.control.acceptance import Acceptance
from localspec.control.costs import POINTS, Costs
from localspec.drafters.early_exit import NAME, EarlyExitDrafter
from localspec.engine.llama.early_exit import EarlyExit
from localspec.engine.llama.library import ours
from localspec.engine.step import Engine
from localspec.types import SamplingParams
from localspec.worker.early_exit import LEAST_TOKENS, ExitChoice, best, candidates
from localspec.worker.profile import Profile

GREEDY = SamplingParams(temperature=0.0)
edited = pytest.mark.skipif(not ours.exits, reason="this llama.cpp lacks LocalSpec's edits")


def known() -> Costs:
    """A CPU on which each row costs something, as it was measured."""
    machine, costs = Machine(Q4_K), Costs()
    for _ in range(60):
        for rows in POINTS:
            costs.measured(rows, 0.02 * machine.target(rows))
    return costs


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Harness]:
    """An engine on a tiny model."""
    path = tiny.build(tmp_path_factory.mktemp("models") / "model.gguf", seed=0)
    placement = Placement(threads=1)
    with opened(path, path, placement, slots=SLOTS, context=CONTEXT) as found:
        yield found


def profile(path: Path) -> Profile:
    """A profile without exits."""
    return Profile(path / "profile.json", known(), Acceptance())


def engine_of(target: Harness) -> tuple[Engine, EarlyExitDrafter]:
    """An engine with the drafter, which knows no layer yet."""
    drafter = EarlyExitDrafter(
        EarlyExit(target.memory), target.target.n_vocab, frozenset(target.target.eog)
    )
    return target.engine({NAME: drafter}, FixedDepth(4, NAME)), drafter


@given(st.integers(1, 200))
def test_exits_are_tried_before_the_last_layer(count: int) -> None:
    """In ascending order, each once, the last ones among them."""
    tried = candidates(count)
    assert tried == sorted({*tried})
    assert all(0 < layers < count for layers in tried)
    assert count == 1 or count - 1 in tried


def test_the_exit_that_promises_most_is_chosen() -> None:
    """Few layers that agree pay; many that agree a little oftener do not."""
    layers, times = best({2: 0.9, 24: 0.95}, 28, known())
    assert layers == 2
    assert times > 1.05
    assert best({7: 0.1, 14: 0.2, 25: 0.64}, 28, known())[1] < 1.0
    assert best({}, 28, known()) == (0, 0.0)


@edited
def test_without_a_text_nothing_is_measured(target: Harness, tmp_path: Path) -> None:
    """A worker that has not answered anything has nothing to measure it with."""
    engine, drafter = engine_of(target)
    choice = ExitChoice(engine, profile(tmp_path), Placement(threads=1))
    assert not choice.advance()
    assert choice.sentence == ""
    assert drafter.target.layers == 0


@edited
def test_it_is_measured_once_beside_what_slots_hold(target: Harness, tmp_path: Path) -> None:
    """Each exit has its agreement; an answer goes on as before, and later loads know it."""
    engine, drafter = engine_of(target)
    request = target.request(PROMPTS[0], GREEDY, tokens=LEAST_TOKENS + 20)
    (first,) = finish(engine, [request])
    kept = profile(tmp_path)
    choice = ExitChoice(engine, kept, Placement(threads=1))
    held = [*target.memory.held]
    pieces = 0
    while choice.advance():
        pieces += 1
    assert pieces > len(candidates(target.target.n_layer))
    assert [*target.memory.held] == held
    assert [*kept.exits] == candidates(target.target.n_layer)
    assert all(0 <= agreement <= 1 for agreement in kept.exits.values())
    chosen, times = best(kept.exits, target.target.n_layer, kept.costs)
    assert drafter.target.layers == (chosen if times >= 1.05 else 0)
    assert "agree in" in choice.sentence
    (second,) = finish(engine, [request])
    assert output(second) == output(first)
    again, same = engine_of(target)
    assert not ExitChoice(again, kept, Placement(threads=1)).advance()
    assert same.target.layers == drafter.target.layers


@edited
def test_an_exit_that_agrees_drafts_and_one_that_does_not_is_silent(
    target: Harness, tmp_path: Path
) -> None:
    """By what the profile says was measured."""
    count = target.target.n_layer
    for agreement, layers in ((0.99, 1), (0.05, 0)):
        engine, drafter = engine_of(target)
        kept = profile(tmp_path)
        kept.exits = {1: agreement}
        choice = ExitChoice(engine, kept, Placement(threads=1))
        assert drafter.target.layers == layers, count
        assert ("draft" in choice.sentence) == bool(layers)
        (session,) = finish(engine, [target.request(PROMPTS[1], GREEDY)])
        assert (NAME in session.meter.sources) == bool(layers)
        choice.close()


def test_a_file_of_before_has_no_exits(tmp_path: Path) -> None:
    """Agreements that were measured come back with the profile."""
    kept = Profile.open([_file(tmp_path)], "test")
    assert kept.exits == {}
    kept.exits = {7: 0.25, 25: 0.64}
    kept.save()
    assert Profile.open([_file(tmp_path)], "test").exits == {7: 0.25, 25: 0.64}


def _file(folder: Path) -> Path:
    path = folder / "model.gguf"
    if not path.exists():
        path.write_bytes(b"x")
    return path
