"""The real policy with each optional source: tokens are plain's, and it drafts only where it pays.

Time is that of two simulated machines, so that choices are the same on every computer. The laws of
each source force it instead, and so try depths that no policy would choose.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import pytest
import tiny
from laws.engine_harness import CONTEXT, PROMPTS, SLOTS, Harness, finish, opened, output
from laws.policies import FixedDepth
from laws.test_corpus_law import Shelf, indexed
from laws.test_lossless import CHAINS
from laws.test_translated_law import build

from localspec import drafters
from localspec.catalog import prune
from localspec.config import Placement
from localspec.control.acceptance import Acceptance
from localspec.control.controller import Controller
from localspec.control.costs import POINTS, STEADY, Costs
from localspec.drafters.early_exit import NAME as EARLY_EXIT
from localspec.drafters.early_exit import EarlyExitDrafter
from localspec.engine.llama.early_exit import EarlyExit
from localspec.engine.llama.library import ours
from localspec.engine.session import Request
from localspec.engine.simulation import SimulatedHardware
from localspec.machine import Forwards, Host, Machine
from localspec.types import LOOKAHEAD, Drafter, ForwardOutput, Row, SpeculationParams, Token
from localspec.worker import translation

CHEAP = Machine("cheap", "", Forwards({1: 10.0, 32: 10.2}), Forwards({1: 0.1}), Host(0.1))
"""Rows and drafts cost next to nothing."""
DEAR = Machine("dear", "", Forwards({1: 10.0, 32: 320.0}), Forwards({1: 10.0}), Host(0.1))
"""A row costs as much as a token of plain decoding, and so does a drafted token."""
ANSWER = 60


@dataclass
class Turn:
    """One run of a target on a simulated machine, of which the answers are known beforehand."""

    harness: Harness
    machine: Machine
    plain: Sequence[Sequence[Token]]

    def __post_init__(self) -> None:
        self.place = SimulatedHardware(self.machine)

    def policy(self) -> Controller:
        """The real one, which has measured this machine."""
        policy = Controller(Costs(), Acceptance(), multiple=self.harness.shape.multiple)
        one, step = self.machine.target.forward_ms(1, STEADY), self.step_ms
        for rows in POINTS * 8:
            policy.costs.measured(rows, self.machine.target.forward_ms(rows, STEADY) / 1000)
        for name in ("model", EARLY_EXIT):
            policy.costs.expect_draft(name, step / one)
        return policy

    @property
    def step_ms(self) -> float:
        """A forward of the draft."""
        return self.machine.draft.forward_ms(1, STEADY)


class PricedExit(EarlyExit):
    """An early exit whose forwards take as long as a draft model's."""

    def __init__(self, turn: Turn) -> None:
        super().__init__(turn.harness.memory)
        self.layers, self._turn = 1, turn

    def decode(self, rows: Sequence[Row]) -> ForwardOutput:
        """As the target does."""
        self._turn.place.clock.charge(self._turn.step_ms)
        return super().decode(rows)


Made: TypeAlias = Callable[[Turn], Mapping[str, Drafter]]


def _own(*names: str) -> Made:
    return lambda turn: turn.harness.drafters(*names, place=turn.place)


def _corpus(turn: Turn) -> Mapping[str, Drafter]:
    target, shelf = turn.harness.target, Shelf(indexed(turn.plain))
    found = drafters.load("corpus", corpus=shelf, piece=target.piece, n_vocab=target.n_vocab)
    return {"corpus": found}


def _early(turn: Turn) -> Mapping[str, Drafter]:
    if not ours.exits:
        pytest.skip("this llama.cpp lacks LocalSpec's edits")
    early, ends = PricedExit(turn), turn.harness.target.eog
    return {EARLY_EXIT: EarlyExitDrafter(early, early.n_vocab, frozenset(ends))}


def _foreign(turn: Turn) -> Mapping[str, Drafter]:
    harness = turn.harness
    context = turn.place.context(harness.draft_memory, "draft")
    written = translation.between(harness.target, harness.draft)
    return {"model": drafters.load("model", context=context, translation=written)}


SOURCES: dict[str, tuple[str, Made]] = {
    "corpus": ("corpus", _corpus),
    "lookahead": (LOOKAHEAD, _own(LOOKAHEAD)),
    "lookahead beside others": (LOOKAHEAD, _own(LOOKAHEAD, "lookup", "model")),
    "early exit": (EARLY_EXIT, _early),
    "another tokenizer": ("model", _foreign),
    "pruned": ("model", _own("model")),
}
"""The name of the source in counts, and the drafters with it."""


def _pair(folder: Path, kind: str) -> tuple[Path, Path]:
    """A target and a draft of that kind."""
    if kind == "another tokenizer":
        return build(folder / "target.gguf", "gpt2", 0), build(folder / "draft.gguf", "llama3", 0)
    target, draft = tiny.build(folder / "target.gguf", layers=3), folder / "draft.gguf"
    if kind == "pruned":
        prune.write(target, [0, 2], draft)
        return target, draft
    return target, tiny.build(draft, layers=3, like=0, noise=0.2, seed=1)


@pytest.fixture(scope="module", params=[*SOURCES])
def source(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Harness, str, Made]]:
    """An engine with one optional source: its name in counts, and what makes it."""
    target, draft = _pair(tmp_path_factory.mktemp("models"), request.param)
    with opened(target, draft, Placement(threads=1), slots=SLOTS, context=CONTEXT) as harness:
        yield harness, *SOURCES[request.param]


def _requests(harness: Harness, chain: str) -> list[Request]:
    wish = SpeculationParams()
    return [
        harness.request(each, CHAINS[chain], tokens=ANSWER, speculation=wish) for each in PROMPTS
    ]


def _drafted(source: tuple[Harness, str, Made], machine: Machine, chain: str) -> int:
    """Nodes that the source had verified on that machine; the tokens are plain's."""
    harness, name, made = source
    requests = _requests(harness, chain)
    plain = [output(finish(harness.engine({}, FixedDepth(0)), [each])[0]) for each in requests]
    nodes = 0
    for together in (1, SLOTS):
        turn = Turn(harness, machine, plain)
        engine = harness.engine(made(turn), turn.policy(), place=turn.place)
        sessions = finish(engine, requests[:together])
        assert [output(each) for each in sessions] == plain[:together]
        for each in sessions:
            nodes += each.meter.sources[name].drafted if name in each.meter.sources else 0
    return nodes


@pytest.mark.parametrize("chain", CHAINS)
def test_the_policy_drafts_where_it_pays_and_changes_no_token(
    source: tuple[Harness, str, Made], chain: str
) -> None:
    """Where rows and drafts are cheap; for one session and several."""
    assert _drafted(source, CHEAP, chain) > 0


@pytest.mark.parametrize("chain", CHAINS)
def test_the_policy_is_silent_where_it_does_not_pay(
    source: tuple[Harness, str, Made], chain: str
) -> None:
    """Where a row takes as long as a token no draft can repay it, and none is verified."""
    assert _drafted(source, DEAR, chain) == 0
