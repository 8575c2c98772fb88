"""Drafting from the target's states, the hidden vectors from which its logits are computed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from localspec.types import DraftSession, Floats, Token


class Prediction(NamedTuple):
    """A head's likeliest token, its probability among the head's words, and the predicted state.

    `state` float32 (width,), from which the token came, is a copy.
    """

    token: Token
    probability: float
    state: Floats


class FeatureHead(Protocol):
    """A draft head: it predicts the next state from a state and the token that came of it."""

    @property
    def depth(self) -> int:
        """The most tokens that it can predict one after the other."""

    @property
    def sentence(self) -> str:
        """The kind of head, for people."""

    def predict(self, state: Floats, token: Token) -> Prediction:
        """The token predicted after `token`, which came of `state` float32 (width,)."""

    def close(self) -> None:
        """Free all of it."""


class StateDraftSession(DraftSession, Protocol):
    """A drafter's memory of a request that wants to see the target's states."""

    def watch(self, state: Floats) -> None:
        """Take the state that the last committed token came of, float32 (width,): copy to keep."""


def feed(opened: DraftSession, start: int, features: Floats) -> None:
    """Give a session, if it is `Following`, the features of the text's tokens from `start` on."""
    follow = getattr(opened, "follow", None)
    if follow is not None:
        follow(start, features)


def commit(opened: DraftSession, tokens: Sequence[Token], state: Floats | None) -> None:
    """Tell a drafter the committed tokens, and the state that the last one came of, if known."""
    opened.commit(tokens)
    watch = getattr(opened, "watch", None)  # asked each round: isinstance of a protocol takes 15 us
    if watch is not None and state is not None:
        watch(state)
