"""A draft model with a head of some words changes no token, with any choice of words."""

from __future__ import annotations

import string
from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import pytest
import tiny
from hypothesis import given
from hypothesis import strategies as st
from laws.engine_harness import CONTEXT, PROMPTS, Harness, finish, opened, output
from laws.policies import FixedDepth
from numpy.typing import NDArray

from localspec.config import Placement
from localspec.engine.llama.kernels import UNLISTED_LOGIT
from localspec.engine.llama.library import ours
from localspec.engine.llama.shortlist import RUN, Shortlist
from localspec.types import Row, SamplingParams, Token

CHAINS = {
    "greedy": SamplingParams(temperature=0.0),
    "seeded": SamplingParams(temperature=0.8, seed=1234),
    "penalties": SamplingParams(temperature=0.4, seed=5, top_k=0, repetition_penalty=1.3),
}
VOCABULARY, _EXTRA = 272, 10
FIXED, MOST = range(4), 2


class Letters:
    """Grammar of letters, some in the shortlist and some outside it."""

    def __init__(self, allowed: Sequence[Token]) -> None:
        self._mask = np.zeros(VOCABULARY, bool)
        self._mask[[*allowed]] = True

    def mask(self, path: Sequence[Token]) -> NDArray[np.bool_]:
        """The same everywhere."""
        del path
        return self._mask

    def forced(self, path: Sequence[Token]) -> Sequence[Token]:
        """Nothing is."""
        del path
        return ()

    def commit(self, tokens: Sequence[Token]) -> None:
        """Nothing to remember."""


@pytest.fixture(scope="module")
def narrow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Harness]:
    """Pair whose draft has four fixed runs of its 17, and two more."""
    folder = tmp_path_factory.mktemp("narrow")
    target = tiny.build(folder / "target.gguf", seed=0, extra_tokens=_EXTRA)
    draft = tiny.build(folder / "draft.gguf", seed=1, like=0, noise=0.2, extra_tokens=_EXTRA)
    with opened(target, draft, Placement(threads=2), slots=4, context=CONTEXT) as harness:
        if not ours.kernels:
            pytest.skip("this build has no kernels of ours, whose products alone can be cut")
        assert harness.draft.n_vocab == VOCABULARY
        assert harness.draft_memory.narrow(Shortlist(VOCABULARY // RUN, FIXED, MOST, bearable=1.0))
        yield harness


@pytest.mark.parametrize("chain", CHAINS)
def test_a_narrow_draft_changes_no_token(narrow: Harness, chain: str) -> None:
    """Sessions together and at every depth; some of what it drafts is kept and some is not."""
    requests = [narrow.request(prompt, CHAINS[chain]) for prompt in PROMPTS]
    plain = [output(finish(narrow.engine({}, FixedDepth(0)), [each])[0]) for each in requests]
    drafted = accepted = 0
    for depth in (1, 4, 15):
        for count in (1, 4):
            engine = narrow.engine(narrow.drafters("model"), FixedDepth(depth, "model"))
            sessions = finish(engine, requests[:count])
            drafted += sum(session.meter.drafted for session in sessions)
            accepted += sum(session.meter.accepted for session in sessions)
            assert [output(session) for session in sessions] == plain[:count]
    assert 0 < accepted < drafted


@pytest.mark.parametrize("chain", CHAINS)
@pytest.mark.parametrize("letters", [string.ascii_lowercase, string.punctuation])
def test_a_grammar_may_allow_only_words_outside_the_shortlist(
    narrow: Harness, chain: str, letters: str
) -> None:
    """All allowed tokens have the same logit then: drafts are worth little, none is an error."""
    allowed = narrow.target.tokenize(letters, add_special=False, parse_special=False)
    outputs = []
    for depth in (0, 5):
        request = replace(
            narrow.request(PROMPTS[0], CHAINS[chain], tokens=24), constraint=Letters(allowed)
        )
        drafters = narrow.drafters("model") if depth else {}
        (session,) = finish(narrow.engine(drafters, FixedDepth(depth, "model")), [request])
        assert session.finish == "length"
        assert bool(session.meter.drafted) == bool(depth)
        outputs.append(output(session))
    assert outputs[0] == outputs[1]
    assert set(outputs[0]) <= set(allowed)


def test_the_shortlist_follows_the_latest_text(narrow: Harness) -> None:
    """Two runs beside the fixed ones: a third replaces the oldest of them."""
    context = narrow.draft_memory
    context.truncate(0, 0)
    read = (8, 9, 10, 11, 9)
    for place, run in enumerate(read):
        logits = context.decode([Row(run * RUN + place, place, 0, wants_logits=True)]).logits[0]
        if place:
            said = {token // RUN for token in np.flatnonzero(logits != UNLISTED_LOGIT)}
            assert said == {*FIXED, *read[place - 1 : place + 1]}
    context.truncate(0, 0)


@given(
    st.integers(1, 40).flatmap(
        lambda runs: st.tuples(
            st.just(runs),
            st.sets(st.integers(0, runs - 1)),
            st.integers(0, 5),
            st.lists(st.integers(0, runs * RUN - 1)),
        )
    )
)
def test_the_shortlist_holds_fixed_and_latest_runs(
    drawn: tuple[int, set[int], int, list[Token]],
) -> None:
    """In order, for any sequence of tokens."""
    runs, fixed, most, tokens = drawn
    together, apart = (Shortlist(runs, fixed, most) for _ in range(2))
    together.read(tokens)
    for token in tokens:
        apart.read([token])
        assert token // RUN in apart.runs or not most
    latest = dict.fromkeys(token // RUN for token in reversed(tokens) if token // RUN not in fixed)
    expected = sorted({*fixed, *[*latest][:most]})
    assert together.runs.tolist() == apart.runs.tolist() == expected
    silent = together.unlisted
    assert (silent is None) == (len(expected) == runs)
    assert silent is None or silent // RUN not in expected


def test_where_texts_are_of_other_words_all_are_listed() -> None:
    """A language whose words come late, until what is read is known again."""
    words = Shortlist.of(151_936, special=[])
    assert words is not None
    words.read([*range(2000)] * 2)
    assert not words.misses
    words.read(range(60_000, 60_000 + 20 * RUN, RUN))
    assert words.misses
    assert words.sentence == "the draft model chooses among 151,936 of 151,936 tokens"
    words.read([*range(60_000, 60_000 + 20 * RUN, RUN)] * 10)
    assert not words.misses
    assert len(words.runs) == 151_936 // 4 // RUN + 20


@pytest.mark.parametrize(("n_vocab", "listed"), [(151_936, 0.25), (256_000, 0.25), (130_000, 0.25)])
def test_a_large_vocabulary_is_cut(n_vocab: int, listed: float) -> None:
    """A quarter is always there, no fewer than 32,768, and what is special; then half at most."""
    words = Shortlist.of(n_vocab, special=[n_vocab - 1])
    assert words is not None
    assert (n_vocab - 1) // RUN in words.runs
    assert max(listed * n_vocab, 32_768) / RUN - 1 <= len(words.runs) <= 0.3 * n_vocab / RUN
    words.read(range(n_vocab))
    assert len(words.runs) <= n_vocab / RUN * 0.52


@pytest.mark.parametrize("n_vocab", [0, 1, 259, 32_000, 32_768, 43_000])
def test_a_small_vocabulary_is_not(n_vocab: int) -> None:
    """There is nothing to be gained, as with one that is special from end to end."""
    assert Shortlist.of(n_vocab, special=[]) is None
    assert Shortlist.of(200_000, special=range(n_vocab, 200_000)) is None
