"""Calls that the drafter makes to a feature head, by a head that records them."""

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
    """Head that expects the next number after a token; its state counts its calls.

    It gives that number the probability `sure`.
    """

    sure: float = 0.95
    depth: int = 1000
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


def _behind(request: DraftRequest, *prefix: Token) -> DraftRequest:
    nodes = Draft.chain(prefix, [Signal("x", 0, 0.5)] * len(prefix))
    return DraftRequest(request.session, nodes, request.budget, request.worth)


def _go_on(request: DraftRequest, *tokens: Token) -> None:
    request.session.commit(tokens)
    request.session.watch(np.zeros(4, np.float32))  # type: ignore[attr-defined]


def test_a_chain_continues_from_its_own_states() -> None:
    """Each node comes from the state and the token before it, by one call each."""
    head = Counting()
    drafter, request = _begun(head)
    _go_on(request, 4)

    for _ in range(3):
        assert drafter.propose([request])[0].tokens == (5, 6, 7, 8, 9)
    assert head.asked == [(0, 4), (1, 5), (2, 6), (3, 7), (4, 8)]


def test_it_drafts_behind_another_drafters_tokens() -> None:
    """From its own states along those tokens, and not too far from the target's state."""
    head = Counting()
    drafter, request = _begun(head)
    _go_on(request, 1)
    drafter.propose([request])
    head.asked.clear()

    assert drafter.propose([_behind(request, 2)])[0].tokens[0] == 3
    assert (1, 2) not in head.asked
    assert drafter.propose([_behind(request, 5)])[0].tokens[0] == 6
    assert (1, 5) in head.asked
    assert drafter.propose([_behind(request, 5, END)]) == [Draft()]
    assert drafter.propose([_behind(request, 5, 1, 2, 3)]) == [Draft()]


def test_an_unlikely_token_ends_a_chain() -> None:
    """One node, whose prior says how likely it is."""
    drafter, request = _begun(Counting(sure=0.2))
    _go_on(request, 1)

    (draft,) = drafter.propose([request])

    assert draft.tokens == (2,)
    assert draft.signals[0].prior < 0.3


def test_a_head_of_few_positions_is_not_asked_for_more() -> None:
    """It foretells as many tokens as it has heads, and behind a prefix fewer."""
    head = Counting(depth=3)
    drafter, request = _begun(head)
    _go_on(request, 1)
    assert drafter.propose([request])[0].tokens == (2, 3, 4)
    assert drafter.propose([_behind(request, 2)])[0].tokens == (3, 4)
    assert drafter.propose([_behind(request, 2, 3, 4)])[0].tokens == ()
    assert len(head.asked) == 3
