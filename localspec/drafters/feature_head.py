"""The feature head: predicts the token after next from the target's last hidden state.

It reads no prompt, because it knows of the text what the target's state holds. So it drafts from an
answer's second token on, in a fraction of a millisecond, where a draft model would have to read
first. Where a draft model drafts, the head's tokens are guesses that are read along with its first
tokens.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, cast

from localspec.types import Draft, DraftRequest, Floats, Proposing, Signal, Token

if TYPE_CHECKING:
    from localspec.engine.speculation.states import FeatureHead, Prediction

NAME = "feature_head"

_EDGES = (0.15, 0.3, 0.5, 0.7, 0.9)
_PRIORS = (0.1, 0.18, 0.34, 0.48, 0.6, 0.88)
"""How often the target agreed, by the head's own probability, on texts that it was not made of."""
_GOES_ON = 0.45
"""The least chance of a chain at which another step gives more than its time."""
_FAR = 3
"""The longest prefix to draft behind: then the head's own state is too far from the target's."""


def build(*, head: FeatureHead, ends: frozenset[Token]) -> FeatureHeadDrafter:
    """A drafter on a head of the target.

    Args:
        head: What the target's states are shown to; only lent.
        ends: End-of-generation tokens, after which drafting stops.
    """
    return FeatureHeadDrafter(head, ends)


class _Step(NamedTuple):
    """One prediction of the head, and the token that it stands behind."""

    token: Token
    foretold: Prediction


@dataclass(slots=True)
class FeatureHeadSession:
    """A request as its head sees it: the latest state and token, and the predictions from them."""

    head: FeatureHead
    ends: frozenset[Token]
    greedy: bool
    token: Token
    state: Floats | None = None
    steps: list[_Step] = field(default_factory=list)
    pending: int = 0

    def commit(self, tokens: Sequence[Token]) -> None:
        """Note the latest token; its state comes with `watch`."""
        self.token, self.state = tokens[-1], None
        self.steps.clear()

    def watch(self, state: Floats) -> None:
        """Take the state from which the last committed token was drawn."""
        self.state = state.copy()

    def propose(self, request: DraftRequest) -> Draft:
        """The chain that the head predicts after the prefix."""
        path = [self.token, *request.prefix.tokens]
        signals: list[Signal] = []
        alive = 1.0
        start = len(request.prefix)
        if self.state is None or start > _FAR:
            return Draft()
        for place in range(min(start + request.budget, self.head.depth)):
            if path[place] in self.ends or alive < _GOES_ON:
                break
            foretold = self._foretold(place, path[place])
            if place < start:
                continue
            path.append(foretold.token)
            signals.append(self._signal(foretold.probability, place))
            alive *= signals[-1].prior
            if not request.worth(signals):
                break
        return Draft.chain(path[1 + start :], signals)

    def _foretold(self, place: int, before: Token) -> Prediction:
        """The head's prediction behind this token; computed once for each place."""
        if place == len(self.steps) or self.steps[place].token != before:
            del self.steps[place:]
            state = self.steps[-1].foretold.state if place else cast("Floats", self.state)
            self.steps.append(_Step(before, self.head.predict(state, before)))
        return self.steps[place].foretold

    def _signal(self, probability: float, place: int) -> Signal:
        bucket = bisect_right(_EDGES, probability)
        kind = 2 * (not self.greedy) + (place > 0)
        return Signal(NAME, bucket + kind * len(_PRIORS), _PRIORS[bucket])

    def close(self) -> None:
        """Nothing is kept."""


class FeatureHeadDrafter:
    """Drafts the predictions of a feature head."""

    name = NAME
    free = True
    takes_time = True

    def __init__(self, head: FeatureHead, ends: frozenset[Token]) -> None:
        self._head = head
        self._ends = ends

    def open(
        self,
        slot: int,
        prompt: Sequence[Token],
        sampler: Proposing,
        prediction: Sequence[Token] = (),
    ) -> FeatureHeadSession:
        """Begin a request; nothing is known before the target's first state."""
        del slot, prediction
        return FeatureHeadSession(self._head, self._ends, sampler.greedy, prompt[-1])

    def propose(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        """One draft for each request."""
        return [
            cast("FeatureHeadSession", request.session).propose(request) for request in requests
        ]

    def close(self) -> None:
        """Do nothing: the head belongs to the loader."""
