"""States of the target: who drafts from what its logits are made of."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from localspec.types import DraftSession, Floats, Token


class Prediction(NamedTuple):
    """The likeliest token with its probability among the words, and the state that it comes of.

    `state` float32 (width,) is a copy.
    """

    token: Token
    probability: float
    state: Floats


class FeatureHead(Protocol):
    """A draft head: the next state of this one and of a token.

    `depth` is how many tokens it can foretell one behind the other.
    """

    @property
    def depth(self) -> int:
        """The most tokens that it predicts one behind the other."""

    @property
    def sentence(self) -> str:
        """The kind of head, for people."""

    def predict(self, state: Floats, token: Token) -> Prediction:
        """The token predicted behind `token`, which came of `state` float32 (width,)."""

    def close(self) -> None:
        """Free all of it."""


class StateDraftSession(DraftSession, Protocol):
    """A drafter's memory of a request that wants to see the target's states."""

    def watch(self, state: Floats) -> None:
        """The state that the last committed token came of, float32 (width,): only lent."""


def feed(opened: DraftSession, start: int, features: Floats) -> None:
    """Features of the text's tokens from place `start` on, for a session that is `Following`."""
    follow = getattr(opened, "follow", None)
    if follow is not None:
        follow(start, features)


def commit(opened: DraftSession, tokens: Sequence[Token], state: Floats | None) -> None:
    """Tell a drafter the committed tokens, and the state that the last one came of, if known."""
    opened.commit(tokens)
    watch = getattr(opened, "watch", None)  # asked each round: isinstance of a protocol takes 15 us
    if watch is not None and state is not None:
        watch(state)
