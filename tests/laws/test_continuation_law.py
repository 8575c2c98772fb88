"""A draft that goes on while the target verifies changes no token. Real llama.cpp, tiny models.

On simulated machines, where how far it goes is the same every time, and on threads.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import kinds
import pytest
import recurrent
import tiny
from laws.engine_harness import CONTEXT, PROMPTS, SLOTS, Harness, finish, opened, output
from laws.policies import FixedDepth
from laws.test_lossless import CHAINS

from localspec.config import Placement
from localspec.control.acceptance import Acceptance
from localspec.control.controller import Controller
from localspec.control.costs import STEADY, Costs
from localspec.control.overlap import Overlap
from localspec.control.round import DraftPlan, View
from localspec.engine.session import Session
from localspec.engine.simulation import Hardware, RealHardware, SimulatedHardware
from localspec.engine.step import Engine
from localspec.machine import Forwards, Machine
from localspec.types import SpeculationParams, Token

AUTO = SpeculationParams(mode="auto")
SIZES = ((1, 0), (1, 4), (2, 7), (SLOTS, 2))
"""Sessions and depth."""
FORWARDS = Forwards({1: 10.0, 16: 14.0}), Forwards({1: 1.0, 16: 2.0})
APART = Machine("two devices", "made up", *FORWARDS, draft_is_apart=True)
SHARED = Machine("one device", "made up", *FORWARDS)


@dataclass(slots=True)
class Counts:
    """How often a draft was carried into a round, and how much of it."""

    rounds: int = 0
    tokens: int = 0


class Carrying(FixedDepth):
    """Takes what was carried, and has the model go on behind it to the same depth."""

    def __init__(self, depth: int, counts: Counts, names: Sequence[str]) -> None:
        super().__init__(depth, "model", joins="lookup" in names)
        self.counts = counts

    def plan(self, views: Sequence[View], other_rows: int = 0, before: int = 0) -> list[DraftPlan]:
        """Begin with what was carried."""
        plans = super().plan(views, other_rows, before)
        for at, (view, plan) in enumerate(zip(views, plans, strict=True)):
            base = view.carried.head(min(self.depth, view.budget))
            if base:
                self.counts.rounds += 1
                self.counts.tokens += len(base)
                left = min(self.depth, view.budget) - len(base)
                plans[at] = DraftPlan(base, "model" if left else None, left, plan.worth)
        return plans


def answers(
    harness: Harness, chain: str, verify: Literal["coupled", "rejection"] = "coupled"
) -> list[Session]:
    """The answers of plain decoding, each by an engine that holds nothing else."""
    wish = SpeculationParams(mode="always", verify=verify)
    requests = [harness.request(text, CHAINS[chain], speculation=wish) for text in PROMPTS]
    return [finish(harness.engine({}, FixedDepth(0)), [each])[0] for each in requests]


def overlapped(
    harness: Harness, depth: int, counts: Counts, place: Hardware, *names: str
) -> Engine:
    """An engine that continues every draft."""
    return harness.engine(
        harness.drafters(*names, place=place),
        Carrying(depth, counts, names),
        place=place,
        overlap=Overlap(Costs(), Acceptance(), always=True),
    )


@pytest.mark.parametrize("chain", CHAINS)
@pytest.mark.parametrize("names", [("model",), ("lookup", "model")])
@pytest.mark.parametrize("machine", [APART, SHARED, None], ids=["apart", "shared", "threads"])
def test_continued_drafts_change_no_token(
    harness: Harness, chain: str, names: tuple[str, ...], machine: Machine | None
) -> None:
    """Alone and together, at any depth; continuations were kept and were dropped."""
    plain = answers(harness, chain)
    counts, rounds = Counts(), 0
    for count, depth in SIZES:
        place = SimulatedHardware(machine) if machine else RealHardware()
        engine = overlapped(harness, depth, counts, place, *names)
        sessions = finish(engine, [each.request for each in plain[:count]])
        assert [output(each) for each in sessions] == [output(each) for each in plain[:count]]
        rounds += sum(each.meter.rounds for each in sessions)
    if machine:  # on threads the tiny target may be done too soon for any
        assert 0 < counts.rounds < rounds
        assert counts.tokens > counts.rounds


@pytest.fixture(scope="module", params=["twin", "mamba2", "lfm2"])
def others(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Harness]:
    """A target that drafts for itself, and models whose memories are states."""
    folder = tmp_path_factory.mktemp("others")
    build = {"twin": tiny.build, "mamba2": kinds.mamba2, "lfm2": recurrent.lfm2}[request.param]
    target = build(folder / "target.gguf")
    draft = target if request.param == "twin" else kinds.mamba(folder / "draft.gguf")
    alone = Placement(threads=1)
    with opened(target, draft, alone, slots=SLOTS, context=CONTEXT) as found:
        yield found


@pytest.mark.parametrize("chain", ["greedy", "seeded"])
def test_continued_drafts_of_any_memory_change_no_token(others: Harness, chain: str) -> None:
    """One that is always right is carried every round; a state goes back behind what was wrong."""
    plain = answers(others, chain)
    for count in (1, SLOTS):
        counts = Counts()
        engine = overlapped(others, 3, counts, SimulatedHardware(APART), "model")
        sessions = finish(engine, [each.request for each in plain[:count]])
        assert [output(each) for each in sessions] == [output(each) for each in plain[:count]]
        rounds = sum(each.meter.rounds for each in sessions)
        if not others.path.with_name("draft.gguf").exists():
            assert counts.rounds > 0.75 * rounds  # but for the first drafts, and the last


@pytest.mark.parametrize("chain", ["greedy", "seeded"])
def test_rejection_sampling_continues_nothing(harness: Harness, chain: str) -> None:
    """Its draws belong to drafts and not to places: all is as without.

    Greedily each guess of the bonus token would be right, and would be carried.
    """
    plain = answers(harness, chain, verify="rejection")
    counts = Counts()
    engine = overlapped(harness, 4, counts, SimulatedHardware(APART), "model")
    sessions = finish(engine, [each.request for each in plain])
    apart = harness.engine(harness.drafters("model"), FixedDepth(4, "model"))
    same = finish(apart, [each.request for each in plain])
    assert counts.rounds == 0
    assert [output(each) for each in sessions] == [output(each) for each in same]


@pytest.fixture(scope="module")
def alike(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Harness]:
    """A draft that is right two times in three."""
    folder = tmp_path_factory.mktemp("alike")
    target = tiny.build(folder / "target.gguf", seed=0)
    draft = tiny.build(folder / "draft.gguf", seed=1, like=0, noise=0.01)
    alone = Placement(threads=1)
    with opened(target, draft, alone, slots=1, context=CONTEXT) as found:
        yield found


def sped(harness: Harness, machine: Machine) -> tuple[float, list[list[Token]]]:
    """How many times as fast answers are with continued drafts, by the real policy; its texts."""
    took = []
    for continues in (False, True):
        place = SimulatedHardware(machine)
        costs, acceptance = Costs(), Acceptance()
        for rows in range(1, 17):
            costs.measured(rows, machine.target.forward_ms(rows, STEADY) / 1000)
        costs.expect_draft("model", 0.1)
        engine = harness.engine(
            harness.drafters("model", place=place),
            Controller(costs, acceptance, multiple=harness.shape.multiple),
            place=place,
            overlap=Overlap(costs, acceptance, shared=not machine.draft_is_apart)
            if continues
            else None,
        )
        requests = [
            harness.request(text, CHAINS["greedy"], speculation=AUTO, tokens=120)
            for text in PROMPTS
        ]
        texts = [output(finish(engine, [each])[0]) for each in requests]
        took.append(place.clock())
    return took[0] / took[1], texts


def test_the_policy_continues_drafts_where_the_draft_has_its_own_device(alike: Harness) -> None:
    """The same tokens, sooner; on one device as soon, but for what trials take."""
    requests = [alike.request(text, CHAINS["greedy"], tokens=120) for text in PROMPTS]
    plain = [output(finish(alike.engine({}, FixedDepth(0)), [each])[0]) for each in requests]
    ratio, texts = sped(alike, APART)
    assert (ratio > 1.05, texts) == (True, plain)
    ratio, texts = sped(alike, SHARED)
    assert (ratio > 0.98, texts) == (True, plain)
