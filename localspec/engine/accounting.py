"""The times of a round, as charged to its sessions and as told to the policy. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from localspec.control.round import Round, VerifiedDraft
from localspec.engine.session import Session
from localspec.engine.speculation.agreement import agreement, predicted
from localspec.engine.speculation.proposals import Proposals
from localspec.engine.speculation.verification import Outcome


class StepTimes(NamedTuple):
    """Clock readings of a step (begin, before and after its forward, end), and facts about it.

    `read` counts its rows of prompts. `late_seconds` are those after the end of the forward in
    which a draft was still continued. The other fields are as in `Round`.
    """

    began: float
    before: float
    after: float
    ended: float
    rows: int
    alike: int
    read: int
    regular: bool
    copies: int
    copy_seconds: float
    first: bool = False
    late_seconds: float = 0.0

    @property
    def target_seconds(self) -> float:
        """Seconds of the forward."""
        return self.after - self.before

    def host_seconds(self, drafting_seconds: float) -> float:
        """Seconds of the step beside its forward, its drafters and copies of states."""
        whole = self.ended - self.began
        known = self.target_seconds + drafting_seconds + self.late_seconds + self.copy_seconds
        return whole - known


def charge(proposals: Proposals, outcomes: Mapping[Session, Outcome], took: StepTimes) -> None:
    """Charge a round to the sessions that got tokens in it."""
    free = {
        session: view.free
        for session, view in zip(proposals.sessions, proposals.views, strict=True)
    }
    for session, (advance, draft) in outcomes.items():
        meter = session.meter
        meter.last_token_at = took.ended
        if meter.first_token_at == 0.0:
            meter.first_token_at = took.ended
            continue
        meter.rounds += 1
        meter.draft_seconds += proposals.seconds + took.late_seconds
        meter.verify_seconds += took.target_seconds
        meter.host_seconds += took.host_seconds(proposals.seconds)
        meter.count(draft, advance.tokens)
        meter.predicted += predicted(free.get(session, ()), advance.tokens)


def observation(
    proposals: Proposals, outcomes: Mapping[Session, Outcome], took: StepTimes
) -> Round | None:
    """The round as a policy learns from it.

    None if prompts were read, if no drafter was asked, or if a session failed.
    """
    seen = [outcomes[session] for session in proposals.sessions if session in outcomes]
    whole = len(seen) == len(proposals.sessions) and all(
        advance.tokens for advance, _ in outcomes.values()
    )
    if took.read or not proposals.views or not whole:
        return None
    return Round(
        rows=took.rows,
        target_seconds=took.target_seconds,
        host_seconds=took.host_seconds(proposals.seconds),
        drafted=tuple(proposals.drafted),
        views=tuple(proposals.views),
        judged=tuple(
            VerifiedDraft(draft, agreement(draft, advance.tokens)) for advance, draft in seen
        ),
        committed=tuple(tuple(advance.tokens) for advance, _ in seen),
        alike=took.alike,
        copies=took.copies,
        copy_seconds=took.copy_seconds,
        asked_seconds=proposals.asked_seconds + took.late_seconds,
        planning_seconds=proposals.planning_seconds,
        regular=took.regular,
        first=took.first,
    )
