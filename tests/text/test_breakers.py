"""Tests of DRY's sequence breakers."""

from __future__ import annotations

from localspec.text.breakers import breakers

PIECES = [b"", b"\n", b"a\n", b"\nb", b"x", b"y", b"xy", b"ax", b"ay"]


def tokens(text: str) -> list[int]:
    """One token for each letter."""
    return [PIECES.index(letter.encode()) for letter in text]


def test_a_text_of_one_letter_is_broken_by_every_token_that_has_it() -> None:
    """A one-letter breaker is broken by every token that contains it."""
    assert breakers(["\n"], PIECES, tokens) == {1: [()], 2: [()], 3: [()]}


def test_a_token_that_ends_with_a_beginning_needs_the_rest_behind_it() -> None:
    """A token with the whole text needs no further token."""
    assert breakers(["xy"], PIECES, tokens) == {4: [(5,)], 6: [()], 7: [(5,)]}


def test_several_texts_may_begin_with_the_same_token() -> None:
    """Each has its own following tokens."""
    assert breakers(["xy", "xx"], PIECES, tokens)[4] == [(5,), (4,)]
