"""Lookahead: guesses in rows that are paid anyway, and the n-grams that come of them.

The target's token behind a node that does not become text is a guess at the text further on (Jacobi
decoding) and, with the tokens before it, an n-gram in the target's own words. Rejected nodes give
such tokens. Where a forward has rows without a draft, guesses are put into them to get more.

Fu et al., "Break the Sequential Dependency of LLM Inference Using Lookahead Decoding" (2024), give
guesses and n-grams masks of their own; here they share one chain.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, NamedTuple, cast

from localspec.types import LOOKAHEAD, Draft, DraftRequest, Proposing, Signal, Token

if TYPE_CHECKING:
    from localspec.engine.speculation.filling import TargetGuess

RECENT = 64
"""Tokens of the text that stand in for guesses while there are none."""
NGRAMS = 4096
"""N-grams that are kept of one answer, of each length: the latest."""


class Origin(IntEnum):
    """Where a guess is from."""

    TRIGRAM = 0  # what the target said behind the same two tokens
    PLACE = 1  # what it said last for this place of the text
    BIGRAM = 2  # what it said behind the same token
    RECENT = 3  # a token of the text


_PRIORS = (0.3, 0.1, 0.08, 0.02)
_SIGNALS = [
    [Signal(LOOKAHEAD, origin + sampled * len(Origin), _PRIORS[origin]) for origin in Origin]
    for sampled in (0, 1)
]


class _Guess(NamedTuple):
    token: Token
    origin: Origin


class LookaheadSession:
    """The n-grams of one request, and its guesses at the tokens that come next."""

    pending = 0

    def __init__(self, prompt: Sequence[Token], *, sampled: bool) -> None:
        self._text = list(prompt[-RECENT:])
        self._ahead: list[Token] = []
        """Guesses for the places from the end of the text on."""
        self._ngrams: dict[tuple[Token, ...], Token] = {}
        """The token that followed one or two others, the latest last."""
        self._signals = _SIGNALS[sampled]

    @property
    def size(self) -> int:
        """Tokens and n-grams that it remembers."""
        return len(self._text) + len(self._ngrams)

    def commit(self, tokens: Sequence[Token]) -> None:
        """Append tokens to the text, and drop the guesses for their places."""
        self._text = [*self._text, *tokens][-RECENT:]
        del self._ahead[: len(tokens)]

    def see(self, rejected: Iterable[TargetGuess]) -> None:
        """Learn what the target says behind nodes that did not become text. Before `commit`."""
        told: dict[int, Token] = {}
        for place, before, node, token in rejected:
            self._learn((before, node), token)
            told.setdefault(place, token)
        for place in sorted(told):
            if place < len(self._ahead):
                self._ahead[place] = told[place]
            else:  # this fills places before it too, which will be text before they are used
                self._ahead += [told[place]] * (place + 1 - len(self._ahead))

    def propose(self, request: DraftRequest) -> Draft:
        """A chain of what the target has said behind the same tokens, or for the same places."""
        prefix, signals = request.prefix.tokens, list[Signal]()
        tokens = [*prefix]
        while len(signals) < request.budget and request.worth(signals):
            guess = self._guess(tokens)
            if guess is None or guess.origin > Origin.PLACE:
                break
            tokens.append(guess.token)
            signals.append(self._signals[guess.origin])
        return Draft.chain(tokens[len(prefix) :], signals)

    def fill(self, prefix: Sequence[Token], count: int) -> Draft:
        """`count` guesses behind a draft, for rows that would otherwise be padding."""
        tokens, signals = [*prefix], list[Signal]()
        for _ in range(count):
            guess = self._guess(tokens)
            if guess is None:
                guess = _Guess(self._text[len(signals) % len(self._text)], Origin.RECENT)
            tokens.append(guess.token)
            signals.append(self._signals[guess.origin])
        return Draft.chain(tokens[len(prefix) :], signals)

    def close(self) -> None:
        """Nothing is kept."""

    def _guess(self, path: Sequence[Token]) -> _Guess | None:
        """The best guess behind the text and `path`, if there is one."""
        last = (*self._text[-2:], *path[-2:])[-2:]
        if (token := self._ngrams.get(last)) is not None:
            return _Guess(token, Origin.TRIGRAM)
        if len(path) < len(self._ahead):
            return _Guess(self._ahead[len(path)], Origin.PLACE)
        if (token := self._ngrams.get(last[-1:])) is not None:
            return _Guess(token, Origin.BIGRAM)
        return None

    def _learn(self, before: tuple[Token, Token], token: Token) -> None:
        for key in (before, before[-1:]):
            self._ngrams.pop(key, None)
            self._ngrams[key] = token
        while len(self._ngrams) > 2 * NGRAMS:
            del self._ngrams[next(iter(self._ngrams))]


class LookaheadDrafter:
    """Drafts the target's own words behind nodes that did not become text."""

    name = LOOKAHEAD
    free = True
    live = True
    """It learns from rejected nodes of real rounds, which a replay does not have."""

    def open(
        self,
        slot: int,
        prompt: Sequence[Token],
        sampler: Proposing,
        prediction: Sequence[Token] = (),
    ) -> LookaheadSession:
        """Begin without any guess."""
        del slot, prediction
        return LookaheadSession(prompt, sampled=not sampler.greedy)

    def propose(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        """One chain for each request."""
        return [cast("LookaheadSession", each.session).propose(each) for each in requests]

    def close(self) -> None:
        """Nothing to free."""


def build() -> LookaheadDrafter:
    """The drafter, for `drafters.load`."""
    return LookaheadDrafter()
