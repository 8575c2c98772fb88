"""What a draft model remembers between rounds changes no draft. Real llama.cpp."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import pytest
from laws.house import PROMPTS, House

from localspec.drafters.model import ModelDrafter
from localspec.engine.paper import Clock, Priced
from localspec.engine.sampling import Sampler
from localspec.errors import EngineError
from localspec.machine import Forwards, History
from localspec.types import Ask, Backend, Draft, Floats, Row, SamplingParams, Signal, Token

CHAINS = {
    "greedy": SamplingParams(temperature=0.0),
    "penalties": SamplingParams(
        temperature=0.7, seed=3, top_k=0, repetition_penalty=1.6, presence_penalty=1.5
    ),
}
DEPTH = 5
STRIDE = 8
"""Rows of a forward that reads: more of them would have other bits."""


class Said(NamedTuple):
    """What was drafted behind a text and what another source had proposed."""

    text: list[Token]
    prefix: Draft
    draft: Draft


def _always(_signals: Sequence[Signal]) -> bool:
    return True


def _drafter(house: House, context: Backend | None = None) -> ModelDrafter:
    return ModelDrafter(
        context or house.draft_memory, house.target.n_vocab, frozenset(house.target.eog)
    )


def _prefix(tokens: Sequence[Token]) -> Draft:
    return Draft.chain(tokens, [Signal("other", 0, 0.5)] * len(tokens))


def _rounds(drafter: ModelDrafter, text: list[Token], chain: str) -> Iterator[Said]:
    """Rounds in which none, some or all of a draft is kept, some behind another source's nodes."""
    dice = np.random.default_rng(5)
    session = drafter.open(0, text, Sampler(CHAINS[chain]))
    text = list(text)
    last: tuple[Token, ...] = ()
    for turn in range(14):
        # what was drafted last and not kept is what another source would often propose again
        proposed = list(last[: turn % 3]) if turn % 4 else [int(dice.integers(65, 91))]
        prefix = _prefix(proposed)
        (draft,) = drafter.propose([Ask(session, prefix, DEPTH, _always, stride=STRIDE)])
        yield Said(list(text), prefix, draft)
        nodes = [*prefix.tokens, *draft.tokens]
        kept = int(dice.integers(len(nodes) + 1))
        told = [*nodes[:kept], int(dice.integers(65, 91))]
        last = tuple(nodes[kept + 1 :])
        session.commit(told)
        text += told


def _anew(house: House, said: Said, chain: str) -> Draft:
    """The draft of a drafter that has just read the text."""
    drafter = _drafter(house)
    session = drafter.open(0, said.text, Sampler(CHAINS[chain]))
    (draft,) = drafter.propose([Ask(session, said.prefix, DEPTH, _always, stride=STRIDE)])
    return draft


@pytest.mark.parametrize("chain", CHAINS)
@pytest.mark.parametrize("prompt", PROMPTS)
def test_a_draft_is_what_a_drafter_says_that_has_just_read_the_text(
    house: House, chain: str, prompt: str
) -> None:
    """After rejections of every length, full acceptances, and nodes of another source."""
    text = house.request(prompt, CHAINS[chain]).prompt
    for said in list(_rounds(_drafter(house), text, chain)):
        assert said.draft.tokens
        assert said.draft.tokens == _anew(house, said, chain).tokens


class _Failing(Priced):
    """The draft's context, whose n-th forward fails."""

    def __init__(self, backend: Backend, forward: int) -> None:
        super().__init__(backend, History(Forwards({1: 1.0})), Clock())
        self._left = forward

    def decode(self, rows: Sequence[Row]) -> Floats:
        """As the context does, but once."""
        self._left -= 1
        if not self._left:
            raise EngineError(f"llama_decode gave -3 for {len(rows)} rows.")
        return super().decode(rows)


@pytest.mark.parametrize("forward", [1, 2, 4, 7])
def test_after_a_failed_forward_the_next_draft_is_read_anew(house: House, forward: int) -> None:
    """Whatever the slot holds then, nothing is believed to have been read."""
    drafter = _drafter(house, _Failing(house.draft_memory, forward))
    text = house.request(PROMPTS[0], CHAINS["greedy"]).prompt
    session = drafter.open(0, text, Sampler(CHAINS["greedy"]))
    ask = Ask(session, Draft(), DEPTH, _always, stride=STRIDE)
    failed = 0
    for _ in range(3):
        try:
            drafter.propose([ask])
        except EngineError:
            failed += 1
            assert session.pending == len(session.tokens)
        session.commit([72])
    (draft,) = drafter.propose([ask])
    assert failed == 1
    assert draft.tokens == _anew(house, Said(session.tokens, Draft(), draft), "greedy").tokens
