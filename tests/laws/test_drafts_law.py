"""A draft model's memory between rounds changes no draft. Real llama.cpp."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pytest
from laws.engine_harness import CONTEXT, PROMPTS, ROWS, SLOTS, Harness, finish, output
from laws.policies import FixedDepth

from localspec.config import Placement
from localspec.drafters.model import ModelDrafter
from localspec.engine.llama.context import Context
from localspec.engine.sampling import Sampler
from localspec.engine.simulation import SimulatedBackend, SimulatedClock
from localspec.errors import EngineError
from localspec.machine import Forwards, Machine
from localspec.types import (
    Backend,
    Draft,
    DraftRequest,
    DraftSession,
    ForwardOutput,
    Row,
    SamplingParams,
    Signal,
    Token,
)

CHAINS = {
    "greedy": SamplingParams(temperature=0.0),
    "penalties": SamplingParams(
        temperature=0.7, seed=3, top_k=0, repetition_penalty=1.6, presence_penalty=1.5
    ),
}
DEPTH = 5
READ = 8
"""Rows of a forward that reads: more of them would have other bits."""


class Drafted(NamedTuple):
    """Tokens drafted behind a text and another source's nodes."""

    text: list[Token]
    prefix: Draft
    draft: Draft


def _always(_signals: Sequence[Signal]) -> bool:
    return True


def _drafter(harness: Harness, context: Backend | None = None) -> ModelDrafter:
    return ModelDrafter(
        context or harness.draft_memory, harness.target.n_vocab, frozenset(harness.target.eog)
    )


def _prefix(tokens: Sequence[Token]) -> Draft:
    return Draft.chain(tokens, [Signal("other", 0, 0.5)] * len(tokens))


def _drafted(drafter: ModelDrafter, session: DraftSession, prefix: Draft) -> Draft:
    """Its draft, once it has read what is pending."""
    draft = Draft()
    while not draft:
        asked = DraftRequest(session, prefix, DEPTH, _always, read=READ)
        (draft,) = drafter.propose([asked])
    return draft


def _rounds(drafter: ModelDrafter, text: list[Token], chain: str) -> Iterator[Drafted]:
    """Rounds in which none, some or all of a draft is kept, some behind another source's nodes.

    What ends them is what the draft held next, where it was cut before, or something else. What was
    held behind that is what another source often proposes again, as far as it goes on the same.
    """
    dice = np.random.default_rng(5)
    session = drafter.open(0, text, Sampler(CHAINS[chain]))
    text = list(text)
    left: tuple[Token, ...] = ()
    for turn in range(14):
        other = [int(token) for token in dice.integers(65, 91, size=2)]
        prefix = _prefix([*left[: turn % 3], *(other if turn % 4 == 0 else [])])
        draft = _drafted(drafter, session, prefix)
        yield Drafted(list(text), prefix, draft)
        nodes = [*prefix.tokens, *draft.tokens]
        kept = int(dice.integers(len(nodes) + 1))
        committed = [*nodes[:kept], nodes[kept] if kept < len(nodes) and turn % 2 else other[0]]
        left = tuple(nodes[kept + 1 :])
        session.commit(committed)
        text += committed


def _anew(harness: Harness, said: Drafted, chain: str) -> Draft:
    """The draft of a drafter that has just read the text, and the other source's nodes as text."""
    drafter = _drafter(harness)
    session = drafter.open(0, [*said.text, *said.prefix.tokens], Sampler(CHAINS[chain]))
    return _drafted(drafter, session, Draft())


@pytest.mark.parametrize("chain", CHAINS)
@pytest.mark.parametrize("prompt", PROMPTS)
def test_drafts_equal_those_of_a_drafter_that_reads_the_text_anew(
    harness: Harness, chain: str, prompt: str
) -> None:
    """After rejections of every length, full acceptances, and nodes of another source."""
    text = harness.request(prompt, CHAINS[chain]).prompt
    for said in list(_rounds(_drafter(harness), text, chain)):
        assert said.draft.tokens
        assert said.draft.tokens == _anew(harness, said, chain).tokens


@pytest.fixture(scope="module")
def second_copy(harness: Harness) -> Iterator[Context]:
    """Another context of the target's model, to draft with."""
    context = Context.open(
        harness.target, Placement(threads=1), slots=SLOTS, context=CONTEXT, rows=ROWS, streams=True
    )
    yield context
    context.close()


@pytest.mark.parametrize("chain", CHAINS)
def test_a_draft_model_equal_to_the_target_is_accepted(
    harness: Harness, second_copy: Context, chain: str
) -> None:
    """Nearly every row becomes text, here and where the answer began.

    Not every one: forwards of another size may have other bits.
    """
    engine = harness.engine({"model": _drafter(harness, second_copy)}, FixedDepth(4, "model"))
    requests = [harness.request(prompt, CHAINS[chain]) for prompt in PROMPTS]
    whole = finish(engine, requests)
    begun = [
        replace(session.request, so_far=output(session)[:count])
        for count, session in enumerate(whole, start=10)
    ]
    later = finish(engine, begun)
    assert [output(session) for session in later] == [output(session) for session in whole]
    for session in [*whole, *later]:
        assert session.meter.accepted > 0.9 * session.meter.drafted > 0


class _Failing(SimulatedBackend):
    """The draft's context, whose n-th forward fails."""

    def __init__(self, backend: Backend, forward: int) -> None:
        each = Forwards({1: 1.0})
        super().__init__(backend, Machine("", "", each, each), "draft", SimulatedClock())
        self._left = forward

    def decode(self, rows: Sequence[Row]) -> ForwardOutput:
        """As the context does, but once."""
        self._left -= 1
        if not self._left:
            raise EngineError(f"llama_decode gave -3 for {len(rows)} rows.")
        return super().decode(rows)


@pytest.mark.parametrize("forward", [1, 2, 4, 7])
def test_after_a_failed_forward_the_next_draft_is_read_anew(harness: Harness, forward: int) -> None:
    """The drafter counts nothing as read, whatever the slot holds."""
    drafter = _drafter(harness, _Failing(harness.draft_memory, forward))
    text = harness.request(PROMPTS[0], CHAINS["greedy"]).prompt
    session = drafter.open(0, text, Sampler(CHAINS["greedy"]))
    failed = 0
    for _ in range(3):
        try:
            _drafted(drafter, session, Draft())
        except EngineError:
            failed += 1
            assert session.pending == len(session.tokens)
        session.commit([72])
    draft = _drafted(drafter, session, Draft())
    assert failed == 1
    assert draft.tokens == _anew(harness, Drafted(session.tokens, Draft(), draft), "greedy").tokens
