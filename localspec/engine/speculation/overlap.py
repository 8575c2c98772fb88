"""Overlaps drafting with the forward: decisions, and what a draft model drafts behind a draft."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from localspec.control.overlap import Overlap
from localspec.engine.scheduler import Share
from localspec.engine.session import Session
from localspec.engine.speculation.continuation import Continuation, ContinuedDraft
from localspec.engine.speculation.drafting import Drafting, Proposals
from localspec.engine.speculation.verification import Outcome
from localspec.types import Backend, Draft, Floats, Row, Token


class OverlappedDrafting:
    """Asks drafters before a forward, or while it is on its way.

    To ask takes host time, which a fast device spends idle, and most often nothing comes of it.
    After a round that drafted nothing a session is calm: it is looked at while the next forward
    runs, which costs nothing there, and is asked again before one as soon as a copy has foretold
    the token that came, or a look says that a neural source would pay. A copy so begins one token
    late. Where asking has not repaid itself lately (`Policy.asks`) it is seldom asked, also after a
    draft.

    That is for backends that wait (`engine/waiting.py`); else no session is calm. With `overlap`
    drafts are continued while the target verifies them (`continuation.py`), on any backend.

    Engine lifetime. `meanwhile` is called on the engine's thread while a device computes.
    """

    def __init__(
        self,
        drafting: Drafting,
        overlap: Overlap | None,
        clock: Callable[[], float],
        meanwhile: Callable[[], None],
    ) -> None:
        self._drafting = drafting
        self._continuation = Continuation(drafting, overlap, clock) if overlap else None
        self._bases: list[ContinuedDraft] = []
        self._meanwhile = meanwhile
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

    def expect(
        self, proposals: Proposals, sessions: Sequence[Session], shares: Sequence[Share]
    ) -> None:
        """Before the forward of these drafts, as far as these sessions have a share in it."""
        if self._continuation is None or self._unseen is not None:
            return
        nodes = {each: share.nodes for each, share in zip(sessions, shares, strict=True)}
        self._bases = [
            ContinuedDraft(session, view, draft.head(nodes[session]).trunk())
            for session, view, draft in zip(
                proposals.sessions, proposals.views, proposals.drafts, strict=True
            )
            if session in nodes
        ]

    def decode(self, target: Backend, rows: Sequence[Row]) -> Floats:
        """A forward of the target. Raises what that raises."""
        if self._continuation is None:
            return target.decode(rows)
        return self._continuation.decode(target, rows, self._bases, self._meanwhile)

    def use_time(self) -> None:
        """A device's forward is on its way: `meanwhile`, unless that runs beside it anyway."""
        if self._continuation is None or not self._continuation.running:
            self._meanwhile()

    @property
    def late(self) -> float:
        """Seconds of the latest forward in which it was over, and a draft was still continued."""
        return self._continuation.late if self._continuation else 0.0

    @property
    def ran(self) -> bool:
        """Whether a draft was continued beside the latest forward."""
        return self._continuation is not None and self._continuation.ran

    def look(self) -> None:
        """Look at calm sessions, if that was not done in this round. Touches no backend."""
        if self._unseen is not None:
            (proposals, how), self._unseen = self._unseen, None
            views, self._wanted = self._drafting.look(proposals.sessions, *how)
            proposals.views.extend(views)

    def drop(self) -> None:
        """There was no forward: a session that was to be looked at may be gone by the next."""
        self._unseen = None
        self._bases = []

    def settle(
        self, proposals: Proposals, outcomes: Mapping[Session, Outcome], *, waits: bool
    ) -> None:
        """Keep what was continued for the next round; and who is calm where it `waits`."""
        self._bases = []
        if self._continuation is not None:
            self._continuation.settle(outcomes)
        self._calm.clear()
        if not waits:
            return
        for session, view in zip(proposals.sessions, proposals.views, strict=True):
            outcome = outcomes.get(session)
            if outcome is None or view.always:
                continue
            foretold = any(_foretold(chain, outcome.advance.tokens) for chain in view.free)
            suggests = self._wanted or foretold or bool(outcome.draft)
            if not suggests or not self._drafting.policy.asks(view.stats):
                self._calm.add(session)


def _foretold(chain: Draft, tokens: list[Token]) -> bool:
    return chain.tokens[:1] == tuple(tokens[:1])
