"""Lookup in a predicted answer: where it begins, which text it prefers, where it stops."""

from __future__ import annotations

import itertools
from operator import eq, truth

import pytest
from drafters.copying import opened, propose, written
from hypothesis import given
from hypothesis import strategies as st

from localspec.types import Draft

OLD = list(range(100, 160))
DECOY = [1, OLD[20], 2, OLD[30], 3, OLD[25], 4]


def sources(draft: Draft) -> set[str]:
    """Source of each node."""
    return {signal.source for signal in draft.signals}


def test_the_first_proposal_is_the_beginning_of_the_prediction() -> None:
    """Before anything is written, with any prompt; its source is the prediction."""
    draft = propose(opened([5, 6, 5, 6], OLD), budget=4)
    assert list(draft.tokens) == OLD[:4]
    assert sources(draft) == {"prediction"}


def test_an_answer_that_follows_it_is_proposed_to_its_end_and_no_further() -> None:
    """No copy runs on into the prompt; at the end there is no draft."""
    session = opened([4, 5, 6], OLD)
    for at in range(len(OLD)):
        assert list(propose(session, budget=16).tokens) == OLD[at : at + 16]
        session.commit([OLD[at]])
    assert propose(session) == Draft()


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        pytest.param([7, 8, *OLD[:1]], OLD[1:5], id="an introduction before it"),
        pytest.param([*OLD[:20], 7], OLD[21:25], id="a token replaced"),
        pytest.param([*OLD[:20], 7, 8, OLD[20]], OLD[21:25], id="two tokens inserted"),
        pytest.param([*OLD[:20], OLD[30]], OLD[31:35], id="ten tokens deleted"),
        pytest.param([*OLD[:20], 7, 8, 9, OLD[25]], OLD[26:30], id="five replaced by three"),
        pytest.param(OLD[40:43], OLD[43:47], id="its first half left out"),
    ],
)
@pytest.mark.parametrize("prompt", [[1, 2], [*OLD, *DECOY], [*DECOY, 5, *OLD, 9]])
def test_after_an_edit_it_finds_back_into_the_prediction(
    prompt: list[int], output: list[int], expected: list[int]
) -> None:
    """Also where the prompt holds the same old text again and later."""
    draft = propose(written(opened(prompt, OLD), output), budget=4)
    assert list(draft.tokens) == expected
    assert sources(draft) == {"prediction"}


@pytest.mark.parametrize("first", [12, 23, 40])
@pytest.mark.parametrize("fence", [[9], [8, 9], [6, 7, 8, 9]])
def test_a_fence_that_only_the_prompt_has_does_not_lead_away_from_it(
    fence: list[int], first: int
) -> None:
    """The prompt's match is longer by the fence alone, and the prediction still wins.

    With a first draft of any length, also one too long to be doubted.
    """
    session = written(opened([1, *fence, *OLD, 9], OLD), fence)
    session.commit(OLD[:first])  # in one round
    last = max(first, 24)
    draft = propose(written(session, OLD[first:last]), budget=4)
    assert list(draft.tokens) == OLD[last : last + 4]
    assert sources(draft) == {"prediction"}


@pytest.mark.parametrize("apart", [3, 5, 9, 13, 60])
@pytest.mark.parametrize("fence", [[9], [6, 7, 8, 9]])
def test_an_answer_is_copied_from_it_although_only_the_prompt_has_its_fence(
    fence: list[int], apart: int
) -> None:
    """Also when edits keep every match short: a copy finds back to where the one before it was."""
    session = written(opened([1, *fence, *OLD, 9], OLD), fence)
    answer = [7 if at % apart == apart - 1 else token for at, token in enumerate(OLD)]
    accepted: set[str] = set()
    while answer:
        draft = propose(session, budget=16)
        right = list(itertools.takewhile(truth, map(eq, draft.tokens, answer)))
        accepted |= {signal.source for signal in draft.signals[: len(right)]}
        session.commit(answer[: len(right) + 1])
        answer = answer[len(right) + 1 :]
    assert accepted == {"prediction"}


def test_the_prediction_is_preferred_to_the_prompt() -> None:
    """With an old file in the prompt and a new one predicted, the new one is drafted.

    Also where the prompt has the same words before the file as the answer does.
    """
    new = [*OLD[:10], 7, 8, *OLD[12:]]
    fence = [90, 91, 92]
    session = written(opened([*fence, *OLD, 93], new), [*fence, *new[:6]])
    assert list(propose(session, budget=6).tokens) == new[6:12]
    session = written(opened([*OLD, 93], new), new[40:43])
    draft = propose(session, budget=4)
    assert list(draft.tokens) == new[43:47]
    assert sources(draft) == {"prediction"}


def test_no_match_crosses_from_the_prediction_into_the_prompt() -> None:
    """A match across the border between both texts does not count."""
    with_prediction = propose(opened([9, 5], [7, 8]), prefix=[8, 9], budget=1)
    without = propose(opened([9, 5]), prefix=[8, 9], budget=1)
    assert with_prediction == without
    assert list(without.tokens) == [5]


def test_a_wrong_prediction_leaves_the_rest_to_the_prompt() -> None:
    """An answer that goes another way is copied from where it is found."""
    session = written(opened([*range(20, 40), 3], OLD), range(20, 26))
    draft = propose(session, budget=4)
    assert list(draft.tokens) == [26, 27, 28, 29]
    assert sources(draft) == {"lookup"}


tokens = st.lists(st.integers(0, 3), max_size=40)


@given(tokens, tokens, tokens)
def test_predicted_nodes_are_pieces_of_the_prediction(
    prompt: list[int], prediction: list[int], output: list[int]
) -> None:
    """Every node is a token of the texts, and an edit of the output is not "predicted"."""
    session = opened(prompt, prediction)
    for token in [*output, 0]:
        draft = propose(session, budget=6)
        assert {*draft.tokens} <= {*prompt, *prediction, *output}
        nodes = zip(draft.signals, draft.tokens, strict=True)
        for source, run in itertools.groupby(nodes, lambda node: node[0].source):
            piece = [token for _, token in run]
            starts = range(len(prediction) - len(piece) + 1)
            pieces = [prediction[start : start + len(piece)] for start in starts]
            assert source != "prediction" or piece in pieces
        session.commit([token])
    session.close()
    assert propose(session) == Draft()


@given(tokens, tokens)
def test_an_empty_prediction_is_none(prompt: list[int], output: list[int]) -> None:
    """Token for token and signal for signal."""
    one, other = opened(prompt), opened(prompt, [])
    for token in output:
        assert propose(one) == propose(other)
        one.commit([token])
        other.commit([token])
