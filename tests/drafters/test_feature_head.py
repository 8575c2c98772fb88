"""When a head is asked, and what of: by a head that writes down what it is asked."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from localspec.drafters import load
from localspec.engine.sampling import Sampler
from localspec.types import Draft, Drafter, DraftRequest, Floats, SamplingParams, Signal, Token

END = 9


@dataclass
class Counting:
    """Expects the next number: of the token it sees, and its state counts how often it was asked.

    At `sure` it is as sure as that.
    """

    sure: float = 0.95
    asked: list[tuple[float, Token]] = field(default_factory=list)

    def predict(self, state: Floats, token: Token) -> _Next:
        """The number behind `token`."""
        self.asked.append((float(state[0]), token))
        return _Next(token + 1, self.sure, state + 1)

    def close(self) -> None:
        """Nothing is held."""


@dataclass
class _Next:
    token: Token
    probability: float
    state: Floats


def _always(_signals: Sequence[Signal]) -> bool:
    return True


def _begun(head: Counting) -> tuple[Drafter, DraftRequest]:
    drafter = load("feature_head", head=head, ends=frozenset({END}))
    session = drafter.open(0, [0], Sampler(SamplingParams(temperature=0)))
    return drafter, DraftRequest(session, Draft(), 8, _always)


def _behind(ask: DraftRequest, *prefix: Token) -> DraftRequest:
    nodes = Draft.chain(prefix, [Signal("x", 0, 0.5)] * len(prefix))
    return DraftRequest(ask.session, nodes, ask.budget, ask.worth)


def _go_on(ask: DraftRequest, *tokens: Token) -> None:
    ask.session.commit(tokens)
    ask.session.watch(np.zeros(4, np.float32))  # type: ignore[attr-defined]


def test_a_chain_goes_on_from_its_own_states_to_an_end() -> None:
    """Each step of the state before and of the token that was expected; asked once for each."""
    head = Counting()
    drafter, ask = _begun(head)
    _go_on(ask, 4)

    for _ in range(3):
        assert drafter.propose([ask])[0].tokens == (5, 6, 7, 8, 9)
    assert head.asked == [(0, 4), (1, 5), (2, 6), (3, 7), (4, 8)]


def test_behind_another_one_s_tokens_it_follows_those() -> None:
    """Not what it expected itself; of the states it has, and not too far from the target's."""
    head = Counting()
    drafter, ask = _begun(head)
    _go_on(ask, 1)
    drafter.propose([ask])
    head.asked.clear()

    assert drafter.propose([_behind(ask, 2)])[0].tokens[0] == 3
    assert (1, 2) not in head.asked
    assert drafter.propose([_behind(ask, 5)])[0].tokens[0] == 6
    assert (1, 5) in head.asked
    assert drafter.propose([_behind(ask, 5, END)]) == [Draft()]
    assert drafter.propose([_behind(ask, 5, 1, 2, 3)]) == [Draft()]


def test_what_is_hardly_sure_is_not_followed_further() -> None:
    """One node, whose prior says how likely it is."""
    drafter, ask = _begun(Counting(sure=0.2))
    _go_on(ask, 1)

    (draft,) = drafter.propose([ask])

    assert draft.tokens == (2,)
    assert draft.signals[0].prior < 0.3
