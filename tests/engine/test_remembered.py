"""Remembered forwards are those that were computed, each of them once."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from forwards import KEPT, Remembered, Said
from hypothesis import given
from hypothesis import strategies as st

from localspec.types import Row, Token

VOCABULARY = 256
texts = st.lists(st.integers(0, 9), min_size=1, max_size=30)


class Model:
    """Stand-in model whose next token depends on the whole text; it counts computed rows."""

    def __init__(self) -> None:
        self.computed = 0

    def said(self, text: Sequence[Token], first: int) -> list[Said]:
        """The likeliest token is the sum of the text."""
        self.computed += len(text) - first
        found = []
        for end in range(first + 1, len(text) + 1):
            tokens = np.arange(KEPT, dtype=np.int32)
            logits = np.zeros(KEPT, dtype=np.float32)
            logits[sum(text[:end]) % KEPT] = 5.0
            found.append(Said(tokens, logits, np.full(4, float(end), dtype=np.float32)))
        return found


def read(
    backend: Remembered, text: Sequence[Token], start: int, *, all_rows: bool
) -> tuple[list[int], bool]:
    """Most likely token behind the text from `start` on, or behind its end; whether states came."""
    backend.truncate(0, start)
    last = len(text) - 1
    rows = [Row(text[at], at, 0, all_rows or at == last) for at in range(start, len(text))]
    output = backend.decode(rows)
    return output.logits.argmax(axis=1).tolist(), output.states is not None


@given(st.lists(st.tuples(texts, st.integers(0, 30), st.booleans()), max_size=12))
def test_remembered_results_equal_computed_ones(reads: list[tuple[list[Token], int, bool]]) -> None:
    """After any sequence of reading, forgetting and reading again."""
    model = Model()
    backend = Remembered(model, VOCABULARY)
    held: list[Token] = []
    for text, start, all_rows in reads:
        common = 0
        while common < min(len(held), len(text) - 1, start) and held[common] == text[common]:
            common += 1
        sums = [sum(text[: end + 1]) % KEPT for end in range(len(text))]
        results, shown = read(backend, text, common, all_rows=all_rows)
        assert results == (sums[common:] if all_rows else sums[-1:])
        assert shown == (all_rows or common == len(text) - 1)
        held = list(text)


@given(texts)
def test_nothing_is_computed_twice(text: list[Token]) -> None:
    """Nor anything at all while it is silent."""
    model = Model()
    backend = Remembered(model, VOCABULARY)
    once = read(backend, text, 0, all_rows=True)
    assert model.computed == len(text)
    again = Remembered(model, VOCABULARY, backend.known)
    assert read(again, text, 0, all_rows=True) == once
    again.silent = True
    assert again.decode([Row(9, 0, 0, True), Row(9, 1, 0)]).logits.shape == (1, VOCABULARY)
    assert model.computed == len(text)


@given(texts, st.integers(0, 30))
def test_along_its_own_tokens_it_says_what_it_would_say_anyway(
    text: list[Token], right: int
) -> None:
    """And behind a token that is not its own it computes nothing."""
    model = Model()
    for _ in range(right):
        text.append(sum(text) % KEPT)
    text = [*text, KEPT, 1, 2]
    said, _ = read(Remembered(Model(), VOCABULARY), text, 0, all_rows=True)
    along, _ = read(Remembered(model, VOCABULARY, along=True), text, 0, all_rows=True)
    own = [*(token == before for before, token in zip(said, text[1:], strict=False)), False]
    count = own.index(False) + 1
    assert along[:count] == said[:count]
    assert model.computed == count
