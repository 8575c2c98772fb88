"""Thoughts end after so many tokens, by the mark of their format, and nothing else is touched."""

from __future__ import annotations

import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.text.thought_limit import Marks, ThoughtLimit

OPENING, CLOSING = b"<t>", b"</t>"
PIECES = [
    *(bytes([byte]) for byte in range(256)),
    OPENING,
    CLOSING,
    "\N{EURO SIGN}".encode(),
    b"ok",
]
ONE = Marks(OPENING, CLOSING, (257,))
SPELLED = Marks(OPENING, CLOSING, tuple(CLOSING))
TOKENS = st.lists(st.sampled_from([*b"<t>/ x", 0xE2, 0x82, 0xAC, 256, 257, 258, 259]), max_size=40)


def limit(most: int | None, marks: Marks, *, begun: bool) -> ThoughtLimit:
    """A limit over these tokens, without a grammar."""
    return ThoughtLimit(most, marks, begun, PIECES.__getitem__, len(PIECES))


def written(constraint: ThoughtLimit, wanted: list[int]) -> list[int]:
    """The tokens of an answer that wants these, and takes what it must where one is forced."""
    said: list[int] = []
    for token in wanted:
        mask = constraint.mask([])
        taken = token if mask is None or mask[token] else int(np.flatnonzero(mask)[0])
        constraint.commit([taken])
        said.append(taken)
    return said


def spelled(tokens: list[int]) -> bytes:
    """The bytes of tokens."""
    return b"".join(PIECES[token] for token in tokens)


@given(wanted=TOKENS, most=st.integers(0, 12), marks=st.sampled_from([ONE, SPELLED]))
def test_no_thought_is_longer(wanted: list[int], most: int, marks: Marks) -> None:
    """But for the mark, and what a character or a begun mark still needs."""
    said = written(limit(most, marks, begun=True), wanted)
    text = spelled(said)
    thought = said if CLOSING not in text else next(
        said[:end] for end in range(len(said) + 1) if CLOSING in spelled(said[:end])
    )  # fmt: skip
    assert len(thought) <= most + len(marks.ends) + len("\N{EURO SIGN}".encode()) - 1
    behind, rest = said[len(thought) :], wanted[len(thought) :]
    if not spelled(rest).lstrip().startswith(OPENING):
        assert behind == rest, "behind thoughts everything is allowed"


@pytest.mark.parametrize("marks", [ONE, SPELLED])
def test_thoughts_that_follow_each_other_share_one_limit(marks: Marks) -> None:
    """Who thinks again behind the mark has what the first thoughts left."""
    text = written(limit(3, marks, begun=True), [*b"a", 257, *b"\n", 256, *b"bc", *b"defgh"])
    assert spelled(text).startswith(b"a</t>\n<t>bc</t>")


@given(wanted=TOKENS, most=st.integers(0, 12))
def test_what_is_no_thought_is_not_touched(wanted: list[int], most: int) -> None:
    """An answer that does not begin with the opening mark is written as it wants to be."""
    if not spelled(wanted).lstrip().startswith(OPENING):
        assert written(limit(most, ONE, begun=False), wanted) == wanted


@given(wanted=TOKENS, most=st.integers(0, 9), cut=st.integers(0, 40), begun=st.booleans())
def test_a_path_is_judged_as_the_text_it_becomes(
    wanted: list[int], most: int, cut: int, begun: bool
) -> None:
    """A mask behind drafted tokens is the one behind the same tokens, committed."""
    for marks in (ONE, SPELLED):
        drafted, plain = limit(most, marks, begun=begun), limit(most, marks, begun=begun)
        drafted.commit(wanted[:cut])
        for token in wanted:
            plain.commit([token])
        one, other = drafted.mask(wanted[cut:]), plain.mask([])
        if one is None or other is None:
            assert one is other
        else:
            assert np.array_equal(one, other)
        assert [*drafted.forced(wanted[cut:])] == [*plain.forced([])]


@given(wanted=TOKENS, cut=st.integers(0, 40), begun=st.booleans())
def test_thoughts_end_where_they_are_told_to(wanted: list[int], cut: int, begun: bool) -> None:
    """As if that had been the limit all along; without a limit nothing is forced before."""
    for marks in (ONE, SPELLED):
        free = limit(None, marks, begun=begun)
        said = written(free, wanted[:cut])
        assert said == wanted[:cut]
        free.end()
        ended = limit(0, marks, begun=begun)
        ended.commit(said)
        assert written(free, wanted[cut:]) == written(ended, wanted[cut:])


def test_thoughts_that_a_model_begins_itself_are_counted_from_their_mark() -> None:
    """Two tokens behind the opening mark the closing one is the only one."""
    constraint = limit(2, ONE, begun=False)
    assert written(constraint, [0x0A, 256, *b"xxxx"]) == [0x0A, 256, *b"xx", 257, *b"x"]


@pytest.mark.timeout(60)
def test_blanks_before_thoughts_cost_nothing_later() -> None:
    """However many an answer begins with, its thoughts are limited."""
    pieces = [*PIECES, b"\n" * 1000]
    constraint = ThoughtLimit(1, ONE, begun=False, piece=pieces.__getitem__, n_vocab=len(pieces))
    constraint.commit([len(PIECES)] * 40_000)
    assert constraint.mask([]) is None
    assert written(constraint, [256, *b"xx"]) == [256, *b"x", 257]


def test_a_character_is_not_cut() -> None:
    """The mark waits for the bytes that the character still needs."""
    said = spelled(written(limit(1, ONE, begun=True), [0xE2, 0x82, 0xAC, *b"yy"]))
    assert said == "\N{EURO SIGN}</t>y".encode()


@pytest.mark.parametrize("own", [1, 2, 3])
def test_of_a_mark_that_has_begun_only_the_rest_is_forced(own: int) -> None:
    """So the thought does not end with half a mark."""
    wanted = [*b"xx", *CLOSING[:own], *b"yyyyyy"]
    said = spelled(written(limit(2 + own, SPELLED, begun=True), wanted))
    assert re.match(rb"xx</t>y", said)
