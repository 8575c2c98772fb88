"""Grammar: drafts the text where the answer's grammar allows only one.

This is free, because the grammar is there to mask tokens anyway. The forced text may be spelled by
different tokens, all of which the grammar allows. The draft has those that the model's tokenizer
makes of the text, which is how models write it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from localspec.types import Constraint, Draft, DraftRequest, Proposing, Signal, Token

NAME = "grammar"
_PRIOR = 0.95


@dataclass(slots=True)
class GrammarSession:
    """A request's grammar, which the engine itself moves on; without one, nothing is drafted."""

    constraint: Constraint | None
    pending: int = 0

    def commit(self, tokens: Sequence[Token]) -> None:
        """Do nothing: the engine moves the grammar on."""

    def propose(self, request: DraftRequest) -> Draft:
        """The tokens that the grammar forces after the prefix."""
        if self.constraint is None or request.budget <= 0:
            return Draft()
        tokens = self.constraint.forced(request.prefix.tokens)[: request.budget]
        signals: list[Signal] = []
        for position, _ in enumerate(tokens):
            signals.append(Signal(NAME, int(position > 0), _PRIOR))
            if not request.worth(signals):
                signals.pop()
                break
        return Draft.chain(tokens[: len(signals)], signals)

    def close(self) -> None:
        """Nothing is kept."""


class Grammar:
    """Drafts what grammars force."""

    name = NAME
    free = True

    def open(
        self,
        slot: int,
        prompt: Sequence[Token],
        sampler: Proposing,
        prediction: Sequence[Token] = (),
    ) -> GrammarSession:
        """A session of the sampler's grammar."""
        del slot, prompt, prediction
        return GrammarSession(sampler.constraint)

    def propose(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        """One draft for each request."""
        return [
            request.session.propose(request)
            if isinstance(request.session, GrammarSession)
            else Draft()
            for request in requests
        ]

    def close(self) -> None:
        """Nothing to free."""


def build() -> Grammar:
    """The drafter."""
    return Grammar()
