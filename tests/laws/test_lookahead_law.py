"""Guesses in rows that are paid anyway change no token, on any kind of model. Real llama.cpp."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import mixture
import numpy as np
import pytest
import tiny
from kinds import sliding
from laws.engine_harness import CONTEXT, PROMPTS, SLOTS, Harness, finish, opened, output
from laws.policies import FixedDepth
from laws.test_lossless import CHAINS

from localspec.config import Placement
from localspec.control.round import View
from localspec.types import LOOKAHEAD, Draft, SourceCount, SpeculationParams

KINDS: dict[str, Callable[[Path], Path]] = {
    "attention": lambda path: tiny.build(path, seed=0),
    "sliding window": sliding,
    "mixture": mixture.build,
}


class Spare(FixedDepth):
    """Has rows to spare in every round, as many as chance has it; often none for a while."""

    def __init__(self, depth: int, extend: str | None = None, *, most: int = 9) -> None:
        super().__init__(depth, extend)
        self._most = most
        self._random = np.random.default_rng(3)

    def trees(self, views: Sequence[View], drafts: Sequence[Draft]) -> list[Draft]:
        """A second choice behind the text, where trees are verified."""
        return [
            Draft(
                (*draft.tokens, 97),
                (*draft.parents, -1),
                (*draft.signals, draft.signals[0]),
                (*draft.laws, None),
            )
            if view.trees and draft and len(draft) < view.budget and draft.tokens[0] != 97
            else draft
            for view, draft in zip(views, drafts, strict=True)
        ]

    def paid(self, views: Sequence[View], nodes: Sequence[int], other_rows: int = 0) -> list[int]:
        """Rows of its own for each session."""
        del nodes, other_rows
        return [int(self._random.integers(self._most + 1)) for _ in views]


@pytest.fixture(scope="module", params=[*KINDS])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model of some kind."""
    return KINDS[request.param](tmp_path_factory.mktemp("models") / "model.gguf")


@pytest.fixture(scope="module", params=["strict", "standard"])
def target(request: pytest.FixtureRequest, model: Path) -> Iterator[Harness]:
    """An engine on it, which drafts for itself."""
    with opened(
        model, model, Placement(threads=1), slots=SLOTS, context=CONTEXT,
        strict=request.param == "strict",
    ) as found:  # fmt: skip
        yield found


@pytest.mark.parametrize("chain", CHAINS)
@pytest.mark.parametrize("drafters", ["lookahead", "lookahead+lookup", "lookahead+lookup+model"])
def test_guesses_change_no_token(target: Harness, chain: str, drafters: str) -> None:
    """For 1 to 4 sessions: tokens equal; guesses were accepted and rejected, under their name."""
    names = drafters.split("+")
    neural = "model" if "model" in names else None
    requests = [target.request(prompt, CHAINS[chain]) for prompt in PROMPTS]
    plain = [output(finish(target.engine({}, FixedDepth(0)), [one])[0]) for one in requests]
    counts = SourceCount()
    for together, depth in ((1, 0), (1, 3), (2, 2), (SLOTS, 5)):
        engine = target.engine(target.drafters(*names), Spare(depth, neural))
        sessions = finish(engine, requests[:together])
        assert [output(session) for session in sessions] == plain[:together]
        for session in sessions:
            count = session.meter.sources.get(LOOKAHEAD, SourceCount())
            counts.drafted += count.drafted
            counts.accepted += count.accepted
    assert 0 < counts.accepted < counts.drafted


def test_rejection_keeps_every_token_that_is_certain(target: Harness) -> None:
    """A greedy law is a point: under the other rule guesses change nothing either."""
    wish = SpeculationParams(mode="always", verify="rejection")
    for prompt in PROMPTS:
        request = target.request(prompt, CHAINS["greedy"], speculation=wish)
        (plain,) = finish(target.engine({}, FixedDepth(0)), [request])
        (session,) = finish(target.engine(target.drafters("lookahead"), Spare(0)), [request])
        assert output(session) == output(plain)


def test_without_rows_to_spare_nothing_is_guessed(target: Harness) -> None:
    """No node was ever rejected, so it knows nothing: rounds are those of plain decoding."""
    request = target.request(PROMPTS[0], CHAINS["greedy"])
    (session,) = finish(target.engine(target.drafters("lookahead"), FixedDepth(8)), [request])
    assert not session.meter.sources


def test_a_text_with_a_period_is_found_by_guesses_alone(target: Harness) -> None:
    """Where the target repeats itself its guesses converge, as in Jacobi decoding."""
    request = target.request(PROMPTS[2], CHAINS["greedy"], tokens=200)
    engine = target.engine(target.drafters("lookahead"), Spare(0, most=12))
    (session,) = finish(engine, [request])
    assert session.meter.sources[LOOKAHEAD].accepted > 10
    assert session.meter.rounds < 199
