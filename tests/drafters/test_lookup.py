"""Prompt lookup: its drafts, its confidence, and how it finds a copy again."""

from __future__ import annotations

import pytest
from drafters.copying import opened, propose
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
    assert propose(session, budget=3).tokens == (5, 6, 7)


def test_without_a_match_there_is_no_draft() -> None:
    """An empty prompt has none either."""
    assert propose(opened([])) == Draft()
    assert propose(opened([1, 2, 3])) == Draft()
    assert propose(opened([1, 2, 1]), budget=0) == Draft()


def test_a_copy_runs_over_the_end_of_the_text_into_itself() -> None:
    """A period that has shown itself once is continued as far as the budget goes."""
    assert propose(opened([5, 6, 7, 5, 6, 7]), budget=8).tokens == (5, 6, 7, 5, 6, 7, 5, 6)


def test_the_caller_ends_a_draft() -> None:
    """`worth` is called before each node with the signals so far."""
    session = opened([1, 2, 3, 4, 5, 6, 1])
    assert len(propose(session, worth=2)) == 2
    assert len(propose(session, worth=0)) == 0


def test_it_continues_what_another_source_proposed() -> None:
    """The match is searched after the prefix, which is not part of the text yet."""
    session = opened([1, 2, 3, 4, 5, 6, 9])
    assert propose(session, prefix=[2, 3], budget=3).tokens == (4, 5, 6)
    session = opened([1, 2, 3])
    assert propose(session, prefix=[1, 2], budget=4).tokens == (3, 1, 2, 3)


def test_confidence_grows_with_the_match_and_falls_with_dispute() -> None:
    """Occurrences that went on differently lower it."""
    short = propose(opened([1, 2, 3, 8, 2]), budget=1).signals[0]
    long = propose(opened([*range(20, 32), 3, 8, *range(20, 32)]), budget=1).signals[0]
    assert short.prior < 0.5
    assert long.prior > 0.85
    disputed = propose(opened([1, 2, 5, 1, 2, 6, 1, 2]), budget=1).signals[0]
    agreed = propose(opened([1, 2, 6, 1, 2, 6, 8, 1, 2]), budget=1).signals[0]
    assert disputed.prior < agreed.prior
    assert len({short.bucket, long.bucket, disputed.bucket, agreed.bucket}) == 4
    deep = propose(opened([*range(20, 40), 1, 20]), budget=10).signals
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
        propose(session)
        session.commit([token])
    draft = propose(session, budget=4)
    assert list(draft.tokens) == expected


def test_a_running_copy_has_another_bucket_than_a_new_match() -> None:
    """Also where both have the same length."""
    fresh = propose(opened([1, 2, 3, 4, 9, 1, 2]), budget=1).signals[0]
    session = opened([1, 2, 3, 4, 9, 1])
    propose(session)
    session.commit([2])
    copied = propose(session, budget=1).signals[0]
    assert fresh.bucket != copied.bucket
    assert fresh.prior < copied.prior


@given(st.lists(st.integers(0, 3), max_size=60))
def test_every_node_is_a_continuation_seen_before(prompt: list[int]) -> None:
    """Each proposed token has followed the token before it, somewhere in text or draft."""
    draft = propose(opened(prompt), budget=6)
    whole = prompt + list(draft.tokens)
    for node in range(len(prompt), len(whole)):
        assert whole[node - 1 : node + 1] in [whole[at : at + 2] for at in range(node - 1)]


@given(
    st.lists(st.integers(0, 3), max_size=60),
    st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=9), max_size=30),
)
def test_drafts_are_of_tokens_seen_before(prompt: list[int], rounds: list[list[int]]) -> None:
    """After broken copies, repeated edits and texts that copy themselves."""
    session = opened(prompt)
    seen = set(prompt)
    for committed in rounds:
        draft = propose(session, budget=6)
        assert len(draft) <= 6
        assert set(draft.tokens) <= seen
        session.commit(committed)
        seen.update(committed)
    session.close()
    assert propose(session) == Draft()
