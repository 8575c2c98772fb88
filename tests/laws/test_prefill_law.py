"""Idle prefill changes no token, and a later turn finds it. Real llama.cpp."""

from __future__ import annotations

import pytest
from laws.engine_harness import PROMPTS, Harness, finish, output
from laws.policies import FixedDepth

from localspec.drafters.model import ModelSession
from localspec.engine.prefill import CHUNK_ROWS, QUIET_SECONDS, IdlePrefill
from localspec.engine.sampling import Sampler
from localspec.engine.session import Session
from localspec.engine.step import Engine
from localspec.errors import EngineError
from localspec.types import DraftSession, SamplingParams, Token

CHAINS = {
    "greedy": SamplingParams(temperature=0.0),
    "seeded": SamplingParams(temperature=0.8, seed=1234),
}
LONG = "word by word, line by line. " * 8
NEXT = [32, 97, 110, 100, 32, 110, 111, 119]


def rest(prefill: IdlePrefill, now: float, most: int = 1000) -> int:
    """How often there was something to read after a long silence that began at `now`."""
    assert not prefill.advance(now)
    assert not prefill.quiet(now)
    assert prefill.quiet(now + QUIET_SECONDS)
    return sum(prefill.advance(now + QUIET_SECONDS) for _ in range(most))


def pending(engine: Engine, slot: int, text: list[Token]) -> int:
    """Tokens of this text that the draft model would have to read in this slot."""
    return engine.drafters["model"].open(slot, text, Sampler(CHAINS["greedy"])).pending


def conversation(harness: Harness, chain: str, prompt: str, rests: int) -> list[Session]:
    """Two turns of one client; `rests` pieces are read between them, with drafts in both turns."""
    engine = harness.engine(
        harness.drafters("lookup", "model"), FixedDepth(5, "model", joins=False)
    )
    prefill = IdlePrefill(engine)
    (first,) = finish(engine, [harness.request(prompt, CHAINS[chain])])
    if rests:
        rest(prefill, 1.0, rests)
    (second,) = finish(engine, [harness.request([*first.tokens, *NEXT], CHAINS[chain])])
    return [first, second]


@pytest.mark.parametrize("chain", CHAINS)
@pytest.mark.parametrize("prompt", [*PROMPTS, LONG])
def test_reading_ahead_changes_neither_tokens_nor_drafts(
    harness: Harness, chain: str, prompt: str
) -> None:
    """Not at all, broken off by the next turn, and to the end."""
    runs = [
        [(output(session), session.meter.sources) for session in turns]
        for turns in (conversation(harness, chain, prompt, rests) for rests in (0, 1, 2, 1000))
    ]
    assert runs[1:] == runs[:1] * 3
    assert runs[0][1][1]["model"].accepted > 0


def test_a_text_is_read_once_in_pieces_and_the_next_turn_has_only_its_own_words_to_read(
    harness: Harness,
) -> None:
    """Plainly decoded answers, of two clients: the draft model had read nothing of them."""
    engine = harness.engine(harness.drafters("lookup", "model"), FixedDepth(0))
    prefill = IdlePrefill(engine)
    requests = [harness.request(LONG, CHAINS["greedy"], client=client) for client in "ab"]
    sessions = finish(engine, requests)
    texts = dict(engine.held())
    assert len(texts) == 2
    for session in sessions:
        text = texts[session.slot]
        assert pending(engine, session.slot, [*text, *NEXT]) == len(text) + len(NEXT)

    pieces = rest(prefill, 1.0)

    assert pieces == sum(-(-(len(text) - 1) // CHUNK_ROWS) for text in texts.values())
    for slot, text in texts.items():
        assert pending(engine, slot, [*text, *NEXT]) == 1 + len(NEXT)
    assert not prefill.advance(100.0)


def test_idle_prefill_waits_for_a_pause(harness: Harness) -> None:
    """A step begins the wait anew; before the first one there is nothing to read."""
    engine = harness.engine(harness.drafters("model"), FixedDepth(0))
    prefill = IdlePrefill(engine)
    assert not prefill.advance(1000.0)
    for now in (2000.0, 2000.0 + QUIET_SECONDS / 2):
        finish(engine, [harness.request(PROMPTS[0], CHAINS["greedy"])])
        assert not prefill.advance(now)
        assert not prefill.advance(now + QUIET_SECONDS * 0.9)
    assert prefill.advance(now + QUIET_SECONDS)


class _Failing:
    """A draft model whose reading fails."""

    name = "model"
    free = False

    def __init__(self, harness: Harness) -> None:
        self._model = harness.drafters("model")["model"]
        self.open, self.propose = self._model.open, self._model.propose
        self.close = self._model.close
        self.asked = 0

    def read(self, session: DraftSession, most: int) -> int:
        """Never."""
        self.asked += 1
        assert isinstance(session, ModelSession)
        raise EngineError(f"{most} tokens are too many.")


def test_a_drafter_that_cannot_read_ahead_is_left_alone_until_the_next_step(
    harness: Harness,
) -> None:
    """Answers go on, with its drafts."""
    drafter = _Failing(harness)
    engine = harness.engine({"model": drafter}, FixedDepth(3, "model"))
    prefill = IdlePrefill(engine)
    request = harness.request(PROMPTS[0], CHAINS["greedy"])
    for times in (1, 2):
        (session,) = finish(engine, [request])
        assert session.meter.sources["model"].accepted > 0
        assert rest(prefill, 100.0 * times) == 0
        assert drafter.asked == times
