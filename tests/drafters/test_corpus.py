"""The corpus drafter copies what most files go on with, and finds its way back after an edit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from localspec import drafters
from localspec.corpus import contents, index
from localspec.corpus.index import SIZES, Index
from localspec.drafters.corpus import CorpusSession
from localspec.engine.sampling import Sampler
from localspec.types import Draft, Drafter, DraftRequest, SamplingParams, Signal

FILE = [*range(100, 160)]
N_VOCAB = 1000


@dataclass
class Shelf:
    """An index that a test may change."""

    index: Index | None = None


def of(*texts: Sequence[int]) -> Index:
    """An index of these files."""
    tokens = index.joined([np.asarray(text, np.uint32) for text in texts])
    tables = [part for part in index.keys(tokens) if len(part)]
    tables += [np.zeros(0, np.uint64)] * (len(SIZES) - len(tables))
    held = contents.Contents("", len(tokens), (0, 0, 0), (), ())
    return Index(held, tokens, dict(zip(SIZES, tables, strict=True)))


def drafter(shelf: Shelf) -> Drafter:
    """A drafter to which every token is a word."""
    return drafters.load("corpus", corpus=shelf, piece=lambda _: b" word", n_vocab=N_VOCAB)


def opened(prompt: Sequence[int], shelf: Shelf) -> CorpusSession:
    """A greedy session."""
    session = drafter(shelf).open(0, prompt, Sampler(SamplingParams(temperature=0)))
    assert isinstance(session, CorpusSession)
    return session


def propose(session: CorpusSession, budget: int = 8, prefix: Sequence[int] = ()) -> Draft:
    """The draft of a session, whatever it is worth."""
    before = Draft.chain(prefix, [Signal("test", 0, 0.5)] * len(prefix))
    return session.propose(DraftRequest(session, before, budget, lambda _signals: True))


def test_what_follows_in_a_file_is_drafted() -> None:
    """After four tokens of it, in a text that says something else before."""
    session = opened([1, 2, 3, *FILE[10:14]], Shelf(of(FILE)))
    assert list(propose(session).tokens) == FILE[14:22]
    assert not propose(opened([1, 2, 3, *FILE[11:14]], Shelf(of(FILE))))


def test_nothing_is_drafted_without_an_index_or_beyond_a_file() -> None:
    """Nor across the border of two."""
    assert not propose(opened(FILE[:8], Shelf()))
    shelf = Shelf(of(FILE[:20], FILE[20:]))
    assert list(propose(opened(FILE[10:18], shelf)).tokens) == FILE[18:20]
    assert not propose(opened(FILE[12:20], shelf))


def test_the_majority_is_followed_and_agreement_is_told() -> None:
    """Places that agree are believed more than one, that more than a dispute."""
    begin = [1, 2, 3, 4, 5]
    one = Shelf(of([*begin, 7, 8]))
    three = Shelf(of([*begin, 7, 8], [*begin, 7, 9], [*begin, 7, 8]))
    split = Shelf(of([*begin, 6, 6], [*begin, 7, 8], [*begin, 7, 8]))
    drafts = [propose(opened(begin, shelf)) for shelf in (one, three, split)]
    assert [draft.tokens[0] for draft in drafts] == [7, 7, 7]
    alone, unanimous, most = (draft.signals[0] for draft in drafts)
    assert unanimous.prior > alone.prior > most.prior
    assert len({alone.bucket, unanimous.bucket, most.bucket}) == 3
    assert drafts[1].signals[1].prior < drafts[0].signals[1].prior


def test_a_longer_match_is_believed_more() -> None:
    """And one that has proven itself most; all of them have the source's name."""
    shelf = Shelf(of(FILE))
    fresh = [propose(opened(FILE[20 - length : 20], shelf)).signals[0] for length in (4, 8, 16)]
    assert fresh[0].prior < fresh[1].prior < fresh[2].prior
    session = opened(FILE[12:16], shelf)
    propose(session)
    session.commit(FILE[16:20])
    assert propose(session).signals[0].prior > fresh[1].prior
    assert {signal.source for signal in fresh} == {"corpus"}


def test_a_copy_is_found_again_behind_an_edit() -> None:
    """By two tokens, where a search needs four: as after a changed name."""
    session = opened(FILE[:6], Shelf(of(FILE)))
    propose(session)
    session.commit(FILE[6:16])
    session.commit([7, *FILE[17:19]])
    assert list(propose(session).tokens) == FILE[19:27]


def test_behind_another_sources_nodes_it_goes_on_from_there() -> None:
    """The session's own place is not moved by that."""
    session = opened(FILE[:6], Shelf(of(FILE)))
    assert list(propose(session, prefix=FILE[6:9]).tokens) == FILE[9:17]
    assert list(propose(session).tokens) == FILE[6:14]


def test_a_new_index_is_used_at_once() -> None:
    """A place in the old one means nothing there."""
    shelf = Shelf(of(FILE))
    session = opened(FILE[:6], shelf)
    propose(session)
    session.commit(FILE[6:40])
    shelf.index = of([5, 5], [*FILE[:42], 9, 9])
    assert list(propose(session).tokens) == [*FILE[40:42], 9, 9]


def test_a_token_that_the_model_lacks_ends_the_draft() -> None:
    """As in an index that was damaged."""
    session = opened(FILE[:6], Shelf(of([*FILE[:8], N_VOCAB, 3])))
    assert list(propose(session).tokens) == FILE[6:8]


@given(
    st.lists(st.lists(st.integers(0, 3), max_size=50), max_size=4),
    st.lists(st.integers(0, 3), max_size=60),
    st.integers(0, 9),
)
def test_any_text_has_drafts_that_stand_in_a_file(
    files: list[list[int]], text: list[int], budget: int
) -> None:
    """With rounds of any length: each is what follows the text's end somewhere, or an edit's."""
    session = opened(text[:5], Shelf(of(*files)))
    for start in range(5, len(text), 3):
        draft = propose(session, budget)
        assert len(draft) <= budget
        tokens = list(draft.tokens)
        assert not tokens or any(
            file[at : at + len(tokens)] == tokens for file in files for at in range(len(file))
        )
        session.commit(text[start : start + 3])
