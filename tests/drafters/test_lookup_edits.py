"""Edits that a copy makes: expected again where the same text comes again, until they are not."""

from __future__ import annotations

import pytest
from drafters.copying import opened, propose, written

from localspec.drafters._edits import Edit, Edits, between

A, B, NEW = 50, 51, 60
BEFORE, MIDDLE, AFTER = [*range(100, 110)], [*range(110, 122)], [*range(130, 140)]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param([A, B], [NEW], id="a renaming"),
        pytest.param([A], [NEW, NEW + 1, NEW + 2], id="one by three"),
        pytest.param([], [NEW], id="an insertion"),
        pytest.param([A, B], [], id="a deletion"),
    ],
)
def test_an_edit_is_made_again(old: list[int], new: list[int]) -> None:
    """The text that it was made in comes again, with the same token behind it, and goes on."""
    prompt = [*BEFORE, *old, *MIDDLE, *old, MIDDLE[0], *AFTER, BEFORE[0]]
    session = written(opened(prompt), [*BEFORE[1:], *new, *MIDDLE])
    assert propose(session, budget=24).tokens[: len(new) + 5] == (*new, MIDDLE[0], *AFTER[:4])


def test_an_edit_that_is_not_made_again_is_forgotten_and_the_copy_goes_on() -> None:
    """The old text is followed without losing the place, and expected where it comes again."""
    prompt = [*BEFORE, A, *MIDDLE, A, *AFTER, A, *range(150, 160), BEFORE[0]]
    session = written(opened(prompt), [*BEFORE[1:], NEW, *MIDDLE])
    assert propose(session, budget=24).tokens[:2] == (NEW, AFTER[0])
    session.commit([A])
    assert propose(session, budget=24).tokens[:13] == (*AFTER, A, 150, 151)


def test_an_expected_edit_has_its_own_bucket() -> None:
    """Its first token alone; the tokens after it are a copy like any."""
    prompt = [*BEFORE, A, *MIDDLE, A, *AFTER, BEFORE[0]]
    session = written(opened(prompt), [*BEFORE[1:], NEW, *MIDDLE[:-1]])
    last, edit, after, *_ = propose(session, budget=24).signals
    assert edit.prior < last.prior
    assert edit.bucket not in {last.bucket, after.bucket}


def test_what_counts_as_an_edit() -> None:
    """Not a long detour, nor one that gives the same text, nor a copy that never broke."""
    text = [1, 2, 3, 4, 5, 6, 1, 2, 9, 5]
    assert between(text, 2, 2, 5, 1) == Edit((3, 4), (9,))
    assert between(text, 2, 2, 3, 0) == Edit((3,), (9, 5))
    assert between(text, 2, 2, 2, 0) is None
    assert between(text, 6, 2, 3, 1) is None
    assert between([3, 4, 5, 3, 4], 0, 2, 2, 0) is None
    assert between([*range(40), 0, 99, 30], 1, 2, 31, 1) is None
    edits = Edits()
    edits.learn(Edit((3, 4), (9,)))
    edits.learn(Edit((3,), (8,)))
    assert edits.at(text, 2) == Edit((3,), (8,))
    edits.forget(Edit((3,), (8,)))
    assert edits.at(text, 2) == Edit((3, 4), (9,))
    assert edits.at(text, 3) is edits.at(text, len(text)) is None
