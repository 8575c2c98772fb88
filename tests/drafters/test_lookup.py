"""Prompt lookup: what it proposes, what it believes, and how it finds its way back."""

from __future__ import annotations

import pytest
from drafters.copying import ask, opened
from hypothesis import given
from hypothesis import strategies as st

from localspec import drafters
from localspec.errors import ConfigError
from localspec.types import Draft


def test_kinds_are_found_by_name_and_a_typo_names_them() -> None:
    """`load` knows what lies in the package; nothing else needs a list."""
    assert "lookup" in drafters.kinds()
    assert not any(kind.startswith("_") for kind in drafters.kinds())
    with pytest.raises(ConfigError, match="Did you mean lookup") as caught:
        drafters.load("lokup")
    assert "lookup" in caught.value.fix


def test_it_continues_the_longest_match_and_prefers_the_latest() -> None:
    """[1 2 3] occurs twice with three tokens; the later occurrence wins over the earlier."""
    session = opened([1, 2, 3, 4, 9, 8, 1, 2, 3, 5, 6, 7, 3, 0, 1, 2, 3])
    assert ask(session, budget=3).tokens == (5, 6, 7)


def test_it_says_nothing_about_a_text_that_never_occurred() -> None:
    """No match, no draft; an empty prompt is a text too."""
    assert ask(opened([])) == Draft()
    assert ask(opened([1, 2, 3])) == Draft()
    assert ask(opened([1, 2, 1]), budget=0) == Draft()


def test_a_copy_runs_over_the_end_of_the_text_into_itself() -> None:
    """A period that has shown itself once is continued as far as the budget goes."""
    assert ask(opened([5, 6, 7, 5, 6, 7]), budget=8).tokens == (5, 6, 7, 5, 6, 7, 5, 6)


def test_the_caller_ends_a_draft_by_saying_that_more_is_not_worth_it() -> None:
    """`worth` is asked before each node with the signals so far."""
    session = opened([1, 2, 3, 4, 5, 6, 1])
    assert len(ask(session, worth=2)) == 2
    assert len(ask(session, worth=0)) == 0


def test_it_continues_what_another_source_proposed() -> None:
    """The match is sought after the prefix, which is not part of the text yet."""
    session = opened([1, 2, 3, 4, 5, 6, 9])
    assert ask(session, prefix=[2, 3], budget=3).tokens == (4, 5, 6)
    session = opened([1, 2, 3])
    assert ask(session, prefix=[1, 2], budget=4).tokens == (3, 1, 2, 3)


def test_belief_grows_with_the_match_and_falls_with_dispute() -> None:
    """Longer is surer; occurrences that went on differently make it less sure."""
    short = ask(opened([1, 2, 3, 8, 2]), budget=1).signals[0]
    long = ask(opened([*range(20, 32), 3, 8, *range(20, 32)]), budget=1).signals[0]
    assert short.prior < 0.5
    assert long.prior > 0.85
    disputed = ask(opened([1, 2, 5, 1, 2, 6, 1, 2]), budget=1).signals[0]
    agreed = ask(opened([1, 2, 6, 1, 2, 6, 8, 1, 2]), budget=1).signals[0]
    assert disputed.prior < agreed.prior
    assert len({short.bucket, long.bucket, disputed.bucket, agreed.bucket}) == 4
    deep = ask(opened([*range(20, 40), 1, 20]), budget=10).signals
    assert [signal.prior for signal in deep] == sorted(signal.prior for signal in deep)


OLD = list(range(100, 160))


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        pytest.param([*OLD[:20], 7], OLD[21:25], id="a token replaced"),
        pytest.param([*OLD[:20], 7, 8, OLD[20]], OLD[21:25], id="two tokens inserted"),
        pytest.param([*OLD[:20], OLD[30]], OLD[31:35], id="ten tokens deleted"),
        pytest.param([*OLD[:20], 7, 8, 9, OLD[25]], OLD[26:30], id="five replaced by three"),
    ],
)
def test_a_copy_that_an_edit_broke_is_found_again(written: list[int], expected: list[int]) -> None:
    """One token of the old text is enough, even where it also occurs later in the text."""
    decoy = [1, OLD[20], 2, OLD[30], 3, OLD[25], 4]
    session = opened([*OLD, *decoy, OLD[0]])
    for token in written[1:]:
        ask(session)
        session.commit([token])
    draft = ask(session, budget=4)
    assert list(draft.tokens) == expected


def test_a_copy_that_goes_on_is_told_from_a_match_just_found() -> None:
    """The same length believed for another reason has another bucket."""
    fresh = ask(opened([1, 2, 3, 4, 9, 1, 2]), budget=1).signals[0]
    session = opened([1, 2, 3, 4, 9, 1])
    ask(session)
    session.commit([2])
    copied = ask(session, budget=1).signals[0]
    assert fresh.bucket != copied.bucket
    assert fresh.prior < copied.prior


@given(st.lists(st.integers(0, 3), max_size=60))
def test_every_node_is_a_continuation_seen_before(prompt: list[int]) -> None:
    """Each proposed token has followed the token before it, somewhere in text or draft."""
    draft = ask(opened(prompt), budget=6)
    whole = prompt + list(draft.tokens)
    for node in range(len(prompt), len(whole)):
        assert whole[node - 1 : node + 1] in [whole[at : at + 2] for at in range(node - 1)]


@given(
    st.lists(st.integers(0, 3), max_size=60),
    st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=9), max_size=30),
)
def test_whatever_is_written_drafts_are_of_what_was_seen(
    prompt: list[int], rounds: list[list[int]]
) -> None:
    """Broken copies, edits made again and texts that copy themselves included."""
    session = opened(prompt)
    seen = set(prompt)
    for committed in rounds:
        draft = ask(session, budget=6)
        assert len(draft) <= 6
        assert set(draft.tokens) <= seen
        session.commit(committed)
        seen.update(committed)
    session.close()
    assert ask(session) == Draft()
