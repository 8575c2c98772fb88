"""Overlaps drafting with the forward: by planning the next round, and by continuing drafts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from localspec.control.overlap import Overlap
from localspec.engine.scheduler import Share
from localspec.engine.session import Session
from localspec.engine.speculation.asking import Asking
from localspec.engine.speculation.continuation import Continuation, ContinuedDraft
from localspec.engine.speculation.drafting import Drafting
from localspec.engine.speculation.proposals import Proposals
from localspec.engine.speculation.verification import Outcome
from localspec.types import Backend, ForwardOutput, Row


class OverlappedDrafting:
    """Asks drafters before a forward or, on backends that wait, beside it (`asking.py`).

    With `overlap` drafts are continued while the target verifies them (`continuation.py`), on any
    backend. Engine lifetime. `meanwhile` is called on the engine's thread while a forward runs
    beside it.
    """

    def __init__(
        self,
        drafting: Drafting,
        overlap: Overlap | None,
        clock: Callable[[], float],
        meanwhile: Callable[[], None],
    ) -> None:
        self._asking = Asking(drafting)
        self.proposals = self._asking.proposals
        self.look = self._asking.look
        self.plan_ahead = self._asking.plan_ahead
        self._continuation = Continuation(drafting, overlap, clock) if overlap else None
        self._bases: list[ContinuedDraft] = []
        self._meanwhile = meanwhile

    def expect(
        self, proposals: Proposals, sessions: Sequence[Session], shares: Sequence[Share]
    ) -> None:
        """Note the drafts of the next forward, and the shares that these sessions have in it."""
        self._asking.expect(proposals, shares)
        if self._continuation is None or self._asking.calm:
            return
        nodes = {each: share.nodes for each, share in zip(sessions, shares, strict=True)}
        self._bases = [
            ContinuedDraft(session, view, draft.head(nodes[session]).trunk())
            for session, view, draft in zip(
                proposals.sessions, proposals.views, proposals.drafts, strict=True
            )
            if session in nodes
        ]

    def decode(self, target: Backend, rows: Sequence[Row]) -> ForwardOutput:
        """Run a forward of the target, and continue drafts beside it. Raises what it raises."""
        if self._continuation is None:
            return target.decode(rows)
        return self._continuation.decode(target, rows, self._bases, self._meanwhile)

    def use_time(self) -> None:
        """Call `meanwhile` during a device's forward, unless a continuation has called it."""
        if self._continuation is None or not self._continuation.running:
            self._meanwhile()

    @property
    def late(self) -> float:
        """Seconds for which a draft was still continued after the latest forward was over."""
        return self._continuation.late if self._continuation else 0.0

    @property
    def ran(self) -> bool:
        """Whether a draft was continued beside the latest forward."""
        return self._continuation is not None and self._continuation.ran

    def drop(self) -> None:
        """Forget all preparations: there was no forward, and sessions may be gone by the next."""
        self._asking.drop()
        self._bases = []

    def settle(
        self, proposals: Proposals, outcomes: Mapping[Session, Outcome], *, waits: bool
    ) -> None:
        """Keep the continuations and the plan that fit the outcomes, for the next round."""
        self._bases = []
        if self._continuation is not None:
            self._continuation.settle(outcomes)
        self._asking.settle(proposals, outcomes, waits=waits)
