"""The last part of a step: verify, commit, truncate. A session that fails here fails alone."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from localspec.control import trees
from localspec.engine.block_max import BlockMax
from localspec.engine.rows import first_wanted
from localspec.engine.scheduler import Share
from localspec.engine.session import TARGET, Session
from localspec.engine.speculation.drafting import Drafting
from localspec.engine.verify import VERIFIERS
from localspec.errors import LocalSpecError, known
from localspec.types import Draft, FinishReason, Floats, ForwardOutput, Token, Verified

_log = logging.getLogger("localspec.engine")

_NONE = Draft()


@dataclass(frozen=True, slots=True)
class StepOutput:
    """The gain of one session in a step: new tokens, their sources, and whether the text ended.

    A session with a `failure` could not be served any further; the others are not touched.
    """

    session: Session
    tokens: list[Token]
    sources: list[str]
    finish: FinishReason | None
    failure: LocalSpecError | None = None


class Outcome(NamedTuple):
    """The output of a session's step, and the draft that was verified for it."""

    advance: StepOutput
    draft: Draft


class Verification:
    """Turns a forward's logits into tokens of its sessions. Engine lifetime.

    Samplers and grammars belong to requests: whatever they raise ends their own session.

    Args:
        drafting: Has the drafters that learn what was committed.
        ends: The target's end-of-generation tokens.
        multiple: Each session's rows are padded to a multiple of this.
    """

    def __init__(self, drafting: Drafting, *, ends: frozenset[Token], multiple: int) -> None:
        self._drafting = drafting
        self.ends = ends
        self._multiple = multiple

    def judge(
        self,
        sessions: Sequence[Session],
        shares: Sequence[Share],
        drafts: Mapping[Session, Draft],
        output: ForwardOutput,
        context: int,
    ) -> dict[Session, Outcome]:
        """The outcome of each session whose whole tail was decoded; the others only read on.

        Args:
            sessions: Those of the forward, with their `shares` of its rows.
            shares: In the same order.
            drafts: The proposed drafts; the share says how many nodes of each were verified.
            output: Of the forward.
            context: Tokens that one session may hold.
        """
        outcomes: dict[Session, Outcome] = {}
        follows = self._drafting.follows(sessions)
        features = output.features() if follows else None
        row = place = 0
        for session, share in zip(sessions, shares, strict=True):
            start, first_row = session.cached, place
            place += share.rows
            if share.tail < session.tail:
                session.cached += share.tail
            else:
                draft = drafts.get(session, _NONE).head(share.nodes)
                wanted = first_wanted(share, self._multiple)
                first = row + share.tail - 1 - wanted
                own = slice(first, first + 1 + share.nodes)
                mine = [BlockMax(one) for one in output.logits[own]]
                row += share.rows - wanted
                states = None if output.states is None else output.states[own]
                advance = self._advance(session, draft, mine, context, states)
                outcomes[session] = Outcome(advance, draft)
            if features is not None and share.tail and session.finish is None:
                rows = [first_row + at for at in self._kept(share, outcomes.get(session))]
                feed = partial(self._drafting.feed, session, start, features[rows])
                if session.untold:
                    session.untold.append(feed)  # after the drafters are told what became text
                else:
                    feed()
        return outcomes

    @staticmethod
    def _kept(share: Share, outcome: Outcome | None) -> list[int]:
        """The indices of the session's rows that have become part of its text."""
        nodes = trees.path(outcome.draft, outcome.advance.tokens[:-1]) if outcome else []
        return [*range(share.tail), *(share.tail + node for node in nodes)]

    def _advance(
        self,
        session: Session,
        draft: Draft,
        rows: Sequence[BlockMax],
        context: int,
        states: Floats | None,
    ) -> StepOutput:
        """One session's tokens, or why there are none."""
        try:
            verify = VERIFIERS[session.request.speculation.verify]
            verdict = verify(draft, rows, session.frontier(self.ends))
            session.look(
                rows,
                draft,
                verdict,
                target_confidence=self._drafting.wants_target_confidence(session),
            )
            last = verdict.accepted[-1] + 1 if verdict.accepted else 0
            state = None if states is None else states[last]
            self._drafting.see(session, draft, verdict.accepted, rows)
            return self._commit(session, draft, verdict, context, state)
        except Exception as error:  # noqa: BLE001 — of its sampler or grammar, whatever it is
            _log.exception("request %s failed and ends alone", session.request.id)
            session.finish = "length"
            return StepOutput(session, [], [], session.finish, known(error))

    def _commit(
        self,
        session: Session,
        draft: Draft,
        verdict: Verified,
        context: int,
        state: Floats | None,
    ) -> StepOutput:
        tokens = session.commit(draft, verdict)
        sources = [draft.signals[node].source for node in verdict.accepted]
        sources.append(TARGET)
        session.finish = session.ending(self.ends, context)
        if session.finish is None:
            lasting = None if state is None else state.copy()
            session.untold.append(partial(self._drafting.commit, session, tuple(tokens), lasting))
            if session.sampler.constraint is not None:
                session.sampler.constraint.commit(tokens)
        return StepOutput(session, tokens, sources, session.finish)
