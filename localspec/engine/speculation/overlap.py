"""Overlaps drafting decisions with the forward: on a device they then cost nothing."""

from __future__ import annotations

from collections.abc import Mapping

from localspec.engine.session import Session
from localspec.engine.speculation.drafting import Drafting, Proposals
from localspec.engine.speculation.verification import Outcome
from localspec.types import Draft, Token


class OverlappedDrafting:
    """Asks drafters before a forward, or looks at what they expect while it is on its way.

    To ask takes host time, which a fast device spends idle, and most often nothing comes of it.
    After a round that drafted nothing a session is calm: it is looked at while the next forward
    runs, which costs nothing there, and is asked again before one as soon as a copy has foretold
    the token that came, or a look says that drafting would pay. A copy so begins one token late.

    Engine lifetime. Only for backends that wait (`engine/waiting.py`); else no session is calm.
    """

    def __init__(self, drafting: Drafting) -> None:
        self._drafting = drafting
        self._calm: set[Session] = set()
        self._unseen: tuple[Proposals, tuple[int, int, int, int]] | None = None
        self._wanted = False

    def proposals(
        self, sessions: list[Session], context: int, other_rows: int, before: int, spare: int
    ) -> Proposals:
        """As `Drafting.propose`; where all are calm no drafts, and views after `look`."""
        self._unseen, self._wanted = None, False
        if not sessions or not self._calm.issuperset(sessions):
            return self._drafting.propose(sessions, context, other_rows, before, spare)
        nothing = Proposals(sessions, [], [Draft()] * len(sessions), [])
        self._unseen = nothing, (context, other_rows, before, spare)
        return nothing

    def look(self) -> None:
        """Look at calm sessions, if that was not done in this round. Touches no backend."""
        if self._unseen is not None:
            (proposals, how), self._unseen = self._unseen, None
            views, self._wanted = self._drafting.look(proposals.sessions, *how)
            proposals.views.extend(views)

    def drop(self) -> None:
        """There was no forward: a session that was to be looked at may be gone by the next."""
        self._unseen = None

    def settle(self, proposals: Proposals, outcomes: Mapping[Session, Outcome]) -> None:
        """Who is calm after this round."""
        self._calm.clear()
        if self._wanted:
            return
        for session, view in zip(proposals.sessions, proposals.views, strict=True):
            outcome = outcomes.get(session)
            if outcome is None or outcome.draft or view.always:
                continue
            if not any(_foretold(chain, outcome.advance.tokens) for chain in view.free):
                self._calm.add(session)


def _foretold(chain: Draft, tokens: list[Token]) -> bool:
    return chain.tokens[:1] == tuple(tokens[:1])
