"""Guesses of a draft model's own tokens change only its number of forwards. Real llama.cpp."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from laws.engine_harness import PROMPTS, SLOTS, Harness, finish, output
from laws.policies import FixedDepth, Lying, Raising, Rubbish

from localspec.engine.sampling import Sampler
from localspec.types import Draft, Drafter, DraftRequest, SamplingParams, Signal, Token

CHAINS = {
    "greedy": SamplingParams(temperature=0.0),
    "seeded": SamplingParams(temperature=0.8, seed=1234),
}
DEPTH = 12


def _always(_signals: Sequence[Signal]) -> bool:
    return True


class _Guess:
    """A guess that takes `text` for the draft from node `start` on."""

    def __init__(self, text: Sequence[Token], start: int = 0) -> None:
        self.text = text
        self.start = start
        self.asked = 0

    def __call__(self, nodes: Draft) -> Sequence[Token]:
        self.asked += 1
        return self.text[len(nodes) :] if len(nodes) >= self.start else ()


def _drafted(drafter: Drafter, text: list[Token], chain: str, guess: _Guess) -> Draft:
    """Draft after a text that is read anew."""
    session = drafter.open(0, text, Sampler(CHAINS[chain]))
    (draft,) = drafter.propose([DraftRequest(session, Draft(), DEPTH, _always, guess)])
    session.close()
    return draft


@pytest.mark.parametrize("chain", CHAINS)
@pytest.mark.parametrize("prompt", PROMPTS)
def test_a_right_guess_saves_forwards_and_a_wrong_one_changes_nothing(
    harness: Harness, chain: str, prompt: str
) -> None:
    """Wrong from each of its tokens on, begun at each node, and longer than the draft may be."""
    text = harness.request(prompt, CHAINS[chain]).prompt
    drafter = harness.drafters("model")["model"]
    alone = _drafted(drafter, text, chain, _Guess(()))
    tokens = alone.tokens
    assert len(tokens) > 3
    for start in range(len(tokens)):
        guess = _Guess([*tokens, 1, 2, 3], start)
        assert _drafted(drafter, text, chain, guess).tokens == tokens
        assert guess.asked == start + 1
    for wrong in range(len(tokens)):
        guess = _Guess([*tokens[:wrong], *(token + 1 for token in tokens[wrong:])])
        assert _drafted(drafter, text, chain, guess).tokens == tokens
        assert guess.asked == len(tokens) - wrong


@pytest.mark.parametrize("kept", [0, 1, 4, DEPTH])
@pytest.mark.parametrize("right", [0, 3, DEPTH])
def test_rejected_guesses_are_forgotten(harness: Harness, kept: int, right: int) -> None:
    """The next draft is that of a session that has only read the text."""
    text = harness.request(PROMPTS[0], CHAINS["greedy"]).prompt
    (drafter,) = harness.drafters("model").values()
    tokens = _drafted(drafter, text, "greedy", _Guess(())).tokens
    guess = _Guess([*tokens[:right], *[77] * (DEPTH - right)])
    session = drafter.open(0, text, Sampler(CHAINS["greedy"]))
    drafter.propose([DraftRequest(session, Draft(), DEPTH, _always, guess)])
    committed = [*tokens[:kept], 77]
    session.commit(committed)

    (draft,) = drafter.propose([DraftRequest(session, Draft(), DEPTH, _always)])

    session.close()
    (fresh,) = harness.drafters("model").values()
    assert draft.tokens == _drafted(fresh, [*text, *committed], "greedy", _Guess(())).tokens


@pytest.mark.parametrize("chain", CHAINS)
def test_predicted_tokens_are_counted_with_any_drafter(harness: Harness, chain: str) -> None:
    """Copied from the prediction, drafted by the model or decoded plainly; wrong ones are not.

    But for a few: the first and the last token, and where the copy has to be found again.
    """
    sampling = CHAINS[chain]
    (plain,) = finish(harness.engine({}, FixedDepth(0)), [harness.request(PROMPTS[1], sampling)])
    answer = output(plain)
    for prediction, right in ((answer, len(answer)), ([*answer[:20], *[7] * 5, *answer[25:]], 35)):
        for policy in (
            FixedDepth(4, "model"),
            FixedDepth(4, "model", joins=False),
            FixedDepth(0),
        ):
            engine = harness.engine(harness.drafters("lookup", "model"), policy)
            request = harness.request(PROMPTS[1], sampling, prediction=prediction)
            (session,) = finish(engine, [request])
            assert output(session) == answer
            assert right - 6 <= session.meter.predicted <= right
    (without,) = finish(engine, [harness.request(PROMPTS[1], sampling)])
    assert without.meter.predicted == 0


@pytest.mark.parametrize("chain", CHAINS)
@pytest.mark.parametrize("guesser", ["lookup", "rubbish", "lying", "raising"])
def test_guesses_change_no_draft_and_no_token(harness: Harness, chain: str, guesser: str) -> None:
    """One session and several, at each depth, with guesses and without; never more forwards."""
    liars = {"rubbish": Rubbish, "lying": Lying, "raising": Raising}
    requests = [harness.request(prompt, CHAINS[chain]) for prompt in PROMPTS]
    saved = 0
    for count in (1, SLOTS):
        for depth in (1, 2, 5, 15):
            runs = []
            for name in (None, guesser):
                drafters = harness.drafters("model")
                if name in liars:
                    drafters[name] = liars[name](harness.target.n_vocab)
                elif name is not None:
                    drafters |= harness.drafters(name)
                policy = FixedDepth(depth, "model", joins=False)
                sessions = finish(harness.engine(drafters, policy), requests[:count])
                forwards = sum(one.depth for round_ in policy.rounds for one in round_.drafted)
                drafts = [session.meter.sources["model"] for session in sessions]
                runs.append(([output(session) for session in sessions], drafts, forwards))
            (alone, drafts, forwards), (together, same_drafts, fewer) = runs
            assert together == alone
            assert same_drafts == drafts
            assert fewer <= forwards
            saved += forwards - fewer
    assert (saved > 0) == (guesser in {"lookup", "rubbish"})
