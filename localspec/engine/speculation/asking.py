"""Asks drafters before a forward, or while a device computes it and the host would wait."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from localspec.control.round import RECURRING_READS, Decision, DraftPlan, View
from localspec.engine.scheduler import Share
from localspec.engine.session import Session
from localspec.engine.speculation.drafting import Drafting
from localspec.engine.speculation.masks import Masks
from localspec.engine.speculation.proposals import Proposals
from localspec.engine.speculation.verification import Outcome
from localspec.types import Draft, Token


@dataclass(frozen=True, slots=True)
class Prepared:
    """A session's plan for the next round, made while the forward of this one runs.

    It is for the case that this round commits `foretold`; None means any outcome. `view` is the
    session as it will be then.
    """

    session: Session
    foretold: tuple[Token, ...] | None
    view: View
    plan: DraftPlan

    def holds(self, outcome: Outcome) -> bool:
        """Whether the plan fits the outcome of the round."""
        came = self.foretold in {None, tuple(outcome.advance.tokens)}
        return came and not self.session.carried and not self.session.undone


class Asking:
    """Decides when the drafters of one engine are asked. Engine's thread, engine lifetime.

    Asking takes host time, in which a fast device is idle, and most often no draft comes of it. So
    if there is only one session, its next round is planned while the forward of this one runs,
    where that costs nothing. The plan has a copy, for the case that all of the draft is accepted
    and the copy has the bonus token right, or else a neural source, for any outcome. A session that
    drafts nothing is calm: its drafters are only looked at during the forward, so that a copy
    begins one token late.

    Drafters are asked before a forward where the round before had a draft and prepared no plan, and
    where one of several sessions wants to draft. They seldom are where asking has not repaid itself
    lately (`Policy.asks`).

    All this is for backends that wait (`engine/waiting.py`); on others every round asks.
    """

    def __init__(self, drafting: Drafting) -> None:
        self._drafting = drafting
        self._calm: set[Session] = set()
        self._unseen: tuple[Proposals, int, int] | None = None
        self._running: tuple[Proposals, Draft] | None = None
        self._prepared: Prepared | None = None
        self._next: Prepared | None = None
        self._bounds = 0, 0
        self._was_prepared = self._wanted = self._weighed = False

    @property
    def calm(self) -> bool:
        """Whether no drafter was asked in this round and its sessions are still to be looked at."""
        return self._unseen is not None

    def proposals(
        self, sessions: list[Session], context: int, other_rows: int, before: int, spare: int
    ) -> Proposals:
        """The drafts of a round, planned ahead where possible; none where all sessions are calm."""
        prepared, self._next = self._next, None
        self._unseen = self._running = self._prepared = None
        self._bounds = context, spare
        self._was_prepared = self._wanted = self._weighed = False
        if prepared and sessions == [prepared.session] and not other_rows:
            self._was_prepared = True
            return self._as_prepared(prepared, spare)
        if not sessions or not self._calm.issuperset(sessions):
            return self._drafting.propose(sessions, context, other_rows, before, spare)
        nothing = Proposals(sessions, [], [Draft()] * len(sessions), [])
        self._unseen = nothing, other_rows, before
        return nothing

    def _as_prepared(self, prepared: Prepared, spare: int) -> Proposals:
        session, plan = prepared.session, prepared.plan
        session.tell()
        plan = replace(plan, base=plan.base.head(spare), budget=min(plan.budget, spare))
        if plan.extend not in session.drafters:
            plan = replace(plan, extend=None)
        return self._drafting.carried_out([session], [prepared.view], [plan], 0)

    def expect(self, proposals: Proposals, shares: Sequence[Share]) -> None:
        """Note the draft of the next forward and its share of rows, if there is one session."""
        if len(proposals.sessions) == len(shares) == 1:
            self._running = proposals, proposals.drafts[0].head(shares[0].nodes)

    def look(self) -> None:
        """Ask the free drafters of calm sessions, once in this round. Touches no backend."""
        if self._unseen is None:
            return
        (proposals, other_rows, before), self._unseen = self._unseen, None
        views = [self._drafting.view(each, *self._bounds) for each in proposals.sessions]
        proposals.views.extend(views)
        if len(views) > 1 or _constrained(proposals.sessions[0]):  # no plan is made for these
            seen = [replace(view, decision=Decision()) for view in views]
            plans = self._drafting.policy.plan(seen, other_rows, before)
            self._wanted = any(plan.extend for plan in plans)

    def plan_ahead(self) -> None:
        """Look at calm sessions, and plan a single session's next round, while the forward runs."""
        self.look()
        running, self._running = self._running, None
        if running is None:
            return
        proposals, draft = running
        ((session,), (view,)) = proposals.sessions, proposals.views
        if draft.trunk() is not draft or _constrained(session):
            return
        session.tell()
        if self._was_prepared:  # its view was a forecast; now the session is known
            fresh = self._drafting.view(session, *self._bounds)
            view = proposals.views[0] = replace(fresh, decision=view.decision)
        used = len(draft) + 1
        budget = self._drafting.budget(session, *self._bounds, used)
        if not budget or view.always:
            return
        later = replace(
            view,
            free=(),
            budget=budget,
            remaining=max(1.0, view.remaining - used),
            cells=view.cells + used,
            asked={},
            carried=Draft(),
            decision=Decision(),
        )
        if proposals.drafted or not self._prepare_copy(session, draft, view, later):
            self._prepare_neural(session, later, used)

    def _prepare_copy(self, session: Session, draft: Draft, view: View, later: View) -> bool:
        """Plan the next round in case all is accepted and a copy predicts the bonus token.

        Returns whether there is such a copy.
        """
        chains = view.free
        if draft:
            chains = tuple(self._drafting.free(session, draft, later.budget + 1)[0])
        longest = max(chains, key=len, default=Draft())
        if len(longest) < 2:  # noqa: PLR2004 - the bonus token, and one after it
            return False
        first = longest.tokens[0]
        free = tuple(_rest(chain) for chain in chains if chain.tokens[0] == first)
        later = replace(later, free=free, neural=(), decision=Decision())
        (plan,) = self._drafting.policy.plan([later], 0, 1 + len(draft))
        self._prepared = Prepared(session, (*draft.tokens, first), later, plan)
        return True

    def _prepare_neural(self, session: Session, later: View, before: int) -> None:
        """Plan the next round with neural sources, whatever this one accepts."""
        self._weighed = True
        if not later.neural:
            return
        (plan,) = self._drafting.policy.plan([later], 0, before)
        if any(each.pending > RECURRING_READS for each in later.neural):
            self._wanted, self._weighed = plan.extend is not None, False
        elif plan.extend:
            self._prepared = Prepared(session, None, later, plan)

    def drop(self) -> None:
        """Forget all preparations: there was no forward, and sessions may be gone by the next."""
        self._unseen = self._running = self._prepared = self._next = None

    def settle(
        self, proposals: Proposals, outcomes: Mapping[Session, Outcome], *, waits: bool
    ) -> None:
        """Keep the plan if it fits the outcome; where the backend `waits`, note calm sessions."""
        self._calm.clear()
        for session, view in zip(proposals.sessions, proposals.views, strict=True) if waits else ():
            outcome = outcomes.get(session)
            if outcome is None or view.always:
                continue
            ready = self._prepared if self._prepared and self._prepared.holds(outcome) else None
            copies = ready is not None and ready.foretold is not None
            suggests = not copies and self._suggests(proposals, view, outcome)
            if suggests and self._drafting.policy.asks(view.stats):
                continue
            if ready and (ready.plan.base or ready.plan.extend):
                self._next = ready
            else:
                self._calm.add(session)

    def _suggests(self, proposals: Proposals, view: View, outcome: Outcome) -> bool:
        """Whether drafters may have a draft that no plan has considered."""
        weighed = self._weighed and bool(proposals.drafted)
        drafts = bool(outcome.advance.session.carried) or (bool(outcome.draft) and not weighed)
        foretold = any(chain.tokens[:1] == tuple(outcome.advance.tokens[:1]) for chain in view.free)
        return self._wanted or foretold or drafts


def _constrained(session: Session) -> bool:
    """Whether a grammar bounds drafts, so that none can be planned after tokens still unknown."""
    return isinstance(session.sampler.constraint, Masks)


def _rest(chain: Draft) -> Draft:
    """A chain without its first node."""
    return Draft.chain(chain.tokens[1:], chain.signals[1:], chain.laws[1:])
