"""Rejection sampling through the whole engine follows the target's law, with any drafter.

Each text's tokens are tested against their own laws (`fairness.py`): 1000 tokens of each case find
that a share of 0.15 of the probability moved, with probability 0.998; with `-m slow` 10,000 find
0.047. The real llama.cpp, strict; the controller is simulated: it decides the same every time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import msgspec
import pytest
import tiny
from laws.engine_harness import CONTEXT, PROMPTS, SLOTS, Harness, finish, opened, output
from laws.fairness import surprises
from laws.policies import Choosy, FixedDepth, Gappy, likely

from localspec.config import Placement
from localspec.control.acceptance import Acceptance
from localspec.control.controller import Controller
from localspec.control.costs import Costs
from localspec.control.round import Policy
from localspec.drafters.model import ModelDrafter
from localspec.engine.session import Session
from localspec.engine.simulation import Hardware, SimulatedHardware
from localspec.machine import Forwards, Host, Machine
from localspec.types import Draft, DraftRequest, SamplingParams, SpeculationParams

LENGTH = 250
REJECTION = SpeculationParams(mode="always", verify="rejection")

THREE = SamplingParams(temperature=3.0, top_k=3, top_p=1.0, min_p=0.0)
"""Three tokens that a sharp model is made to doubt: a draft is surer than the law it draws from."""

LETTERS = dict.fromkeys(range(65, 73), 30.0)
EIGHT = SamplingParams(temperature=1.5, top_k=0, top_p=1.0, min_p=0.0, logit_bias=LETTERS)
"""Eight letters, so that texts repeat themselves and lookup has much to say."""

FLAT = msgspec.structs.replace(EIGHT, temperature=6.0)
"""Where a copy is no better than another letter."""

PENALTIES = SamplingParams(
    temperature=2.0, top_k=0, top_p=1.0, min_p=0.0, logit_bias=LETTERS,
    repetition_penalty=1.2, frequency_penalty=2.0, presence_penalty=2.0, penalty_last_n=6,
)  # fmt: skip

SIMULATED = Machine(
    "m", "rows are dear", Forwards({1: 5.0, 16: 27.5}), Forwards({1: 0.3, 16: 0.4}), Host(0.1)
)
"""Where verifying a node costs a third of a forward, and drafting it next to nothing."""


class Case(NamedTuple):
    """Drafters, who decides, and a chain."""

    drafters: tuple[str, ...]
    policy: Callable[[], Policy]
    sampling: SamplingParams


CASES = {
    "lookup": Case(("lookup",), lambda: FixedDepth(3), FLAT),
    "model": Case(("model",), lambda: Choosy(4, "model"), THREE),
    "feature_head": Case(("feature_head",), lambda: FixedDepth(3), EIGHT),
    "joined": Case(("lookup", "model"), lambda: FixedDepth(5, "model"), EIGHT),
    "gaps": Case(("lookup", "model"), lambda: Gappy(5, "model"), EIGHT),
    "guesses": Case(("lookup", "model"), lambda: FixedDepth(5, "model", joins=False), EIGHT),
    "penalties": Case(("model",), lambda: FixedDepth(6, "model"), PENALTIES),
}


@pytest.fixture(scope="module")
def sharp(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Harness]:
    """A target that is sure of its tokens, and a draft near to it."""
    folder = tmp_path_factory.mktemp("sharp")
    target = tiny.build(folder / "target.gguf", seed=0, sharpness=8.0)
    draft = tiny.build(folder / "draft.gguf", seed=1, like=0, noise=0.05, sharpness=8.0)
    with opened(target, draft, Placement(threads=1), slots=SLOTS, context=CONTEXT) as found:
        yield found


def answers(
    harness: Harness,
    case: Case,
    seeds: range = range(SLOTS),
    *,
    together: int = SLOTS,
    place: Hardware | None = None,
    **wishes: Any,
) -> list[Session]:
    """One answer for each seed, so many at a time, all by one engine."""
    drafters = harness.drafters(*case.drafters, place=place)
    engine = harness.engine(drafters, case.policy(), place=place)
    requests = [
        harness.request(
            PROMPTS[0],
            msgspec.structs.replace(case.sampling, seed=seed),
            client=str(seed),
            **{"tokens": LENGTH, "speculation": REJECTION, **wishes},
        )
        for seed in seeds
    ]
    batches = range(0, len(requests), together)
    return [one for at in batches for one in finish(engine, requests[at : at + together])]


def assert_fair(harness: Harness, sessions: Sequence[Session]) -> None:
    """In each order the tokens follow their laws, and drafts were accepted and rejected."""
    found = surprises(harness, sessions)
    drafted = sum(session.meter.drafted for session in sessions)
    accepted = sum(session.meter.accepted for session in sessions)
    assert max(found.values()) < 1, found
    assert 0 < accepted < drafted


MANY = [
    pytest.param(range(SLOTS), id="1000"),
    pytest.param(range(10 * SLOTS), id="10000", marks=pytest.mark.slow),
]


@pytest.mark.parametrize("seeds", MANY)
@pytest.mark.parametrize("name", CASES)
def test_each_token_follows_the_targets_law(sharp: Harness, name: str, seeds: range) -> None:
    """With any drafter, at any depth, and with drafts that a policy would rather not verify."""
    assert_fair(sharp, answers(sharp, CASES[name], seeds))


@pytest.mark.slow
@pytest.mark.parametrize("seeds", MANY)
def test_the_controller_verifies_what_was_drawn(sharp: Harness, seeds: range) -> None:
    """Also where it would rather not: costly rows, cheap drafts, a draft surer than the target."""
    case = Case(("lookup", "model"), lambda: Controller(Costs(), Acceptance()), THREE)
    auto = SpeculationParams(verify="rejection")
    place = SimulatedHardware(SIMULATED)
    sessions = answers(
        sharp, case, seeds, together=1, place=place, speculation=auto, tokens=2 * LENGTH
    )
    assert_fair(sharp, sessions)


@pytest.mark.parametrize("seeds", MANY)
def test_an_end_inside_a_draft_ends_the_text_and_comes_as_often_as_it_should(
    sharp: Harness, seeds: range
) -> None:
    """Texts of some twenty tokens, and ends that the draft model proposed and the target kept."""
    likely_end = LETTERS | dict.fromkeys(sharp.target.eog, 22.0)
    policy = FixedDepth(5, "model")
    case = Case(
        ("lookup", "model"),
        lambda: policy,
        msgspec.structs.replace(EIGHT, temperature=4.0, logit_bias=likely_end),
    )
    sessions = answers(sharp, case, range(12 * len(seeds)), ignore_eos=False)
    assert_fair(sharp, sessions)
    for session in sessions:
        ends = [token in sharp.target.eog for token in output(session)]
        assert ends.index(True) == len(ends) - 1 if session.finish == "stop" else not any(ends)
    drafted = [
        judged.draft.tokens[judged.accepted - 1]
        for round_ in policy.rounds
        for judged in round_.judged
        if judged.accepted
    ]
    assert sum(token in sharp.target.eog for token in drafted) >= len(seeds)


def test_rejection_is_another_rule_than_coupling(sharp: Harness) -> None:
    """With the same seed it gives other tokens than plain decoding does."""
    case = CASES["model"]
    plain = answers(sharp, Case((), lambda: FixedDepth(0), THREE), tokens=40)
    same = answers(sharp, case, tokens=40, speculation=SpeculationParams(mode="always"))
    other = answers(sharp, case, tokens=40)
    assert [output(session) for session in same] == [output(session) for session in plain]
    assert not {tuple(output(one)) for one in other} & {tuple(output(one)) for one in plain}


class Shy(ModelDrafter):
    """A draft model that keeps the tokens to itself which it is not sure of."""

    def propose(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        """No drafter may do this: whether a token is judged depends on what it is."""
        return [draft.head(likely(draft)) for draft in super().propose(requests)]


def test_the_test_finds_a_drafter_that_withholds_tokens(sharp: Harness) -> None:
    """A mistake that the engine cannot detect shows in the tokens' frequencies."""
    (model,) = sharp.drafters("model").values()
    assert isinstance(model, ModelDrafter)
    shy = Shy(sharp.draft_memory, sharp.target.n_vocab, sharp.target.eog)
    engine = sharp.engine({"model": shy}, FixedDepth(4, "model"))
    requests = [
        sharp.request(
            PROMPTS[0],
            msgspec.structs.replace(THREE, seed=seed),
            tokens=LENGTH,
            speculation=REJECTION,
        )
        for seed in range(SLOTS)
    ]
    assert max(surprises(sharp, finish(engine, requests)).values()) > 1
