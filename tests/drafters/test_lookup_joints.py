"""Copies have less confidence at the ends of words, clauses, sentences and messages."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec import drafters
from localspec.drafters._joints import NO_TOKEN, Joint, Joints
from localspec.engine.sampling import Sampler
from localspec.engine.speculation.drafting import indexed
from localspec.types import Draft, DraftRequest, SamplingParams


def drafted(pieces: list[str], end: int) -> Draft:
    """The rest of `pieces`, as it is proposed after them and again the first `end` of them."""
    vocabulary = sorted(set(pieces))
    drafter = drafters.load("lookup", piece=lambda token: vocabulary[token].encode())
    tokens = [vocabulary.index(piece) for piece in pieces]
    session = drafter.open(0, tokens + tokens[:end], Sampler(SamplingParams(temperature=0)))
    list(indexed(drafter, session))
    (draft,) = drafter.propose([DraftRequest(session, Draft(), len(pieces) - end, lambda _: True)])
    assert list(draft.tokens) == tokens[end : end + len(draft)]
    return draft


@pytest.mark.parametrize(
    ("before", "token", "expected"),
    [
        (" the", " river", Joint.PLAIN),
        (" men", "inge", Joint.INSIDE),
        ("\n", "    ", Joint.INSIDE),
        (" river", ",", Joint.CLAUSE),
        (" x", ":\n", Joint.CLAUSE),
        ("7", " apples", Joint.ITEM),
        (" river", ".", Joint.STOP),
        (" river", "。", Joint.STOP),
        (" river", ".\n\n", Joint.STOP),
        ("3", ".", Joint.PLAIN),
        (".", " The", Joint.NEXT),
        (".", "5", Joint.PLAIN),
        (".", "append", Joint.PLAIN),
        (" river", "?", Joint.OVER),
        (" river", "", Joint.OVER),
    ],
)
def test_how_tokens_join(before: str, token: str, expected: Joint) -> None:
    """A token and the one before it, as their pieces stand in vocabularies."""
    joints = Joints([before.encode(), token.encode()].__getitem__)
    assert joints.between(0, 1) is expected


@given(st.lists(st.binary(max_size=6), min_size=1, max_size=8))
def test_every_vocabulary_has_joints(pieces: list[bytes]) -> None:
    """Bytes of half a character and nonsense included; before a text's first token is nothing."""
    joints = Joints(pieces.__getitem__)
    for token in range(len(pieces)):
        assert joints.between(NO_TOKEN, token) in Joint
        assert joints.between(token, token) in Joint


def test_a_copy_is_doubted_where_a_sentence_ends_and_sure_inside_a_word() -> None:
    """Each has a bucket of its own, so its real acceptance is learned."""
    text = [" one", " two", " men", "inge", " three", ".", " Four", " five", " six"]
    inside, plain, stop, after, *_ = drafted(text, 3).signals
    assert inside.prior > plain.prior > stop.prior
    assert after.prior < plain.prior
    assert len({inside.bucket, plain.bucket, stop.bucket, after.bucket}) == 4


def test_no_copy_goes_on_behind_the_end_of_a_message() -> None:
    """Nothing follows a control token in an answer, whatever followed it in the prompt."""
    draft = drafted([" why", " is", " it", "", "assistant", " why"], 2)
    assert len(draft) == 2
