"""Lookahead: what it learns from rejected nodes, what it guesses, and that it stays small."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from localspec.drafters import lookahead
from localspec.drafters.lookahead import LookaheadSession
from localspec.engine.speculation.filling import TargetGuess
from localspec.types import Draft, DraftRequest, Signal, Token

SIGNAL = Signal("other", 0, 0.5)
LAST = 99
"""The text's last token, where it makes no difference."""

tokens = st.integers(0, 9)
chains = st.lists(tokens, min_size=1, max_size=6)


def chain(nodes: Sequence[Token]) -> Draft:
    """Nodes of another source."""
    return Draft.chain(nodes, [SIGNAL] * len(nodes))


def propose(session: LookaheadSession, budget: int = 8, prefix: Sequence[Token] = ()) -> Draft:
    """All that it proposes behind the nodes of another source."""
    return session.propose(DraftRequest(session, chain(prefix), budget, lambda _: True))


def seen(
    session: LookaheadSession,
    nodes: Sequence[Token],
    says: Sequence[Token],
    accepted: int,
    end: int,
) -> None:
    """A round: the target says `says[i]` behind node i, keeps some, and goes on with `end`."""
    before = [LAST, *nodes]
    session.see(
        TargetGuess(place + 1, before[place], nodes[place], says[place])
        for place in range(accepted, len(nodes))
    )
    session.commit([*nodes[:accepted], end])


def test_it_is_silent_before_a_node_was_rejected() -> None:
    """It knows nothing, and a text alone teaches it nothing: that is lookup's."""
    session = LookaheadSession([1, 2, 1, 2, 1], sampled=False)
    session.commit([2, 1, 2])
    assert propose(session) == Draft()


def test_what_the_target_said_behind_two_tokens_it_is_taken_to_say_again() -> None:
    """A node that was wrong here comes later; what follows it is known by then."""
    session = LookaheadSession([1], sampled=False)
    seen(session, [5, 6], [6, 7], accepted=0, end=9)
    session.commit([9, 9, 9, 5, 6])
    assert propose(session, budget=1).tokens == (7,)


def test_the_latest_word_behind_the_same_tokens_counts() -> None:
    """A token depends on more than the two before it."""
    session = LookaheadSession([1], sampled=False)
    seen(session, [4, 5], [0, 7], accepted=0, end=1)
    seen(session, [4, 5], [0, 8], accepted=0, end=1)
    session.commit([4, 5])
    assert propose(session, budget=1).tokens == (8,)


def test_guesses_move_with_the_text_until_the_target_says_otherwise() -> None:
    """Behind rejected nodes 0 and 1 it said 20 and 21: those are for the next two places."""
    session = LookaheadSession([1], sampled=False)
    seen(session, [10, 11, 12], [20, 21, 22], accepted=0, end=30)
    assert propose(session).tokens == (20, 21, 22)
    session.commit([20, 40])
    assert propose(session).tokens == (22,)


def test_behind_accepted_nodes_places_are_counted_from_the_new_end() -> None:
    """Two nodes became text; the third one's row tells of the place behind the correction."""
    session = LookaheadSession([1], sampled=False)
    seen(session, [10, 11, 12, 13], [11, 31, 22, 23], accepted=2, end=31)
    assert propose(session).tokens == (22, 23)


def test_it_guesses_behind_a_prefix_of_another_source() -> None:
    """A guess for a place holds whatever is drafted before it."""
    session = LookaheadSession([1], sampled=False)
    seen(session, [10, 11, 12], [20, 21, 22], accepted=0, end=30)
    assert propose(session, prefix=[50], budget=1).tokens == (21,)


def test_what_it_drafts_is_its_own_source_and_a_sampled_text_is_judged_apart() -> None:
    """Each kind of guess has a bucket of its own."""
    drafts = []
    for sampled in (False, True):
        session = LookaheadSession([1], sampled=sampled)
        seen(session, [10, 11], [20, 21], accepted=0, end=30)
        drafts.append(propose(session))
    greedy, drawn = (set(draft.signals) for draft in drafts)
    assert {signal.source for signal in greedy | drawn} == {"lookahead"}
    assert not greedy & drawn


@given(chains, st.lists(st.tuples(chains, chains, st.integers(0, 6), tokens), max_size=8))
def test_rows_are_filled_whatever_it_has_seen(
    prompt: list[Token], rounds: list[tuple[list[Token], list[Token], int, Token]]
) -> None:
    """As many nodes as there are rows for, each a token of the text or the target's own."""
    session = LookaheadSession(prompt, sampled=False)
    known = {*prompt}
    for nodes, says, accepted, end in rounds:
        count = min(len(nodes), len(says))
        seen(session, nodes[:count], says[:count], min(accepted, count), end)
        known |= {*nodes, *says, end}
        for width in (1, 4, 15):
            draft = session.fill(nodes, width)
            assert len(draft) == len(draft.trunk()) == width
            assert {*draft.tokens} <= known


def test_a_long_answer_takes_no_more_memory() -> None:
    """The latest n-grams are kept, and the end of the text."""
    session = LookaheadSession([0], sampled=False)
    for place in range(3 * lookahead.NGRAMS):
        seen(session, [place, place + 1], [place + 2, place + 3], accepted=0, end=place)
    assert session.size <= 2 * lookahead.NGRAMS + lookahead.RECENT
    session.commit([place, place + 1])
    assert propose(session, budget=1).tokens == (place + 3,)
