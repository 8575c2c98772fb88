"""The first part of a step: asking drafters, by the policy's plans. Drafters are not trusted."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

from localspec.control.round import Drafted, DraftPlan, Neural, Policy, View
from localspec.engine.block_max import BlockMax
from localspec.engine.images import words
from localspec.engine.session import Session
from localspec.engine.speculation.filling import filled, filling, rejected
from localspec.engine.speculation.guesses import Guesses
from localspec.engine.speculation.masks import Masks
from localspec.engine.speculation.proposals import Proposals
from localspec.engine.speculation.states import commit, feed
from localspec.errors import EngineError
from localspec.forward_counts import ForwardCounts
from localspec.types import (
    Computing,
    Draft,
    Drafter,
    DraftRequest,
    DraftSession,
    Floats,
    Reading,
    Token,
)

_log = logging.getLogger("localspec.engine")

INDEXED = 2048
"""Tokens that free drafters read in one step at most, of all sessions together: 15 ms of Python."""


class Drafting:
    """Opens drafters for sessions and turns plans into drafts.

    Args:
        drafters: Sources of drafts by name.
        policy: Decides source and depth.
        n_vocab: The target's vocabulary; no draft may leave it.
        max_draft: Most nodes of one session's draft.
        clock: Seconds, monotonic.
    """

    def __init__(
        self,
        drafters: Mapping[str, Drafter],
        policy: Policy,
        *,
        n_vocab: int,
        max_draft: int,
        clock: Callable[[], float],
    ) -> None:
        self.drafters = dict(drafters)
        self._computing = {
            name: drafter for name, drafter in drafters.items() if isinstance(drafter, Computing)
        }
        self._indexing = {
            name: drafter
            for name, drafter in drafters.items()
            if drafter.free and isinstance(drafter, Reading)
        }
        self.beside = [name for name, each in drafters.items() if getattr(each, "beside", False)]
        """Sources that can draft while the target computes."""
        self._slow = {name for name, each in drafters.items() if getattr(each, "takes_time", False)}
        self.policy = policy
        self._n_vocab = n_vocab
        self._max_draft = max_draft
        self.trees = False
        """Whether a draft may be a tree, where it is verified by the coupled rule."""
        self._clock = clock

    def open(self, session: Session) -> None:
        """Open the drafters that the session's request allows; nothing is decoded yet."""
        request = session.request
        allowed = request.speculation.drafters
        rejects = request.speculation.verify == "rejection"
        prompt = words(request.prompt) if request.images else request.prompt
        if session.dropped:
            prompt = list(session.tokens)
        session.stats = self.policy.open_session()
        for name, drafter in self.drafters.items():
            if allowed is not None and name not in allowed:
                continue
            if rejects and _coupled_only(drafter):
                continue
            with self._optional(name, [session]):
                session.drafters[name] = drafter.open(
                    session.slot, prompt, session.sampler, request.prediction
                )
        if request.so_far and not session.dropped:
            self.commit(session, request.so_far)

    def open_again(self, session: Session) -> None:
        """Open a session's drafters anew with its text, of which a shift has forgotten a part."""
        self.close(session)
        names, session.drafters = list(session.drafters), {}
        for name in names:
            with self._optional(name, [session]):
                session.drafters[name] = self.drafters[name].open(
                    session.slot, list(session.tokens), session.sampler, ()
                )

    def read_on(self, sessions: Sequence[Session]) -> None:
        """Let free drafters read a bounded part of what is pending, the oldest session first.

        Called once in every step: no session waits for all of another one's long text to be read.
        """
        left = INDEXED
        for name, drafter in self._indexing.items():
            for session in sessions:
                opened = session.drafters.get(name)
                if opened is None or not left or not opened.pending:
                    continue
                with self._optional(name, [session]):
                    left -= drafter.read(opened, left)

    def commit(
        self, session: Session, tokens: Sequence[Token], state: Floats | None = None
    ) -> None:
        """Tell a session's drafters which tokens have become part of its text.

        `state` is the one that the last token came of, if the target shows states.
        """
        for name, opened in list(session.drafters.items()):
            with self._optional(name, [session]):
                commit(opened, tokens, state)

    def follows(self, sessions: Sequence[Session]) -> bool:
        """Whether any drafter of these is fed with the target's features."""
        return any(
            hasattr(opened, "follow") for each in sessions for opened in each.drafters.values()
        )

    def feed(self, session: Session, start: int, features: Floats) -> None:
        """Show a session's drafters the features of its text's tokens from place `start` on."""
        start -= session.unseen(start)  # drafters have the words of the text alone
        for name, opened in list(session.drafters.items()):
            with self._optional(name, [session]):
                feed(opened, start, features)

    def close(self, session: Session) -> None:
        """Tell a session's drafters what they have not been told, and close them."""
        session.tell()
        for opened in session.drafters.values():
            _close_quietly(opened)

    def wants_target_confidence(self, session: Session) -> bool:
        """Whether a neural drafter may be judged by how easy the session's text is."""
        return any(not self.drafters[name].free for name in session.drafters)

    def propose(
        self,
        sessions: list[Session],
        context: int,
        other_rows: int,
        before: int,
        spare: int,
    ) -> Proposals:
        """One draft per session, cut to what is worth verifying; drawn nodes are never cut.

        Args:
            sessions: Those that decode in this step.
            context: Tokens that one session may hold.
            other_rows: Rows of prefill that share the decode.
            before: Rows of the target's latest forward.
            spare: Nodes of each session for which there are cells.
        """
        began = self._clock()
        views = [self.view(session, context, spare) for session in sessions]
        plans = self.policy.plan(views, other_rows, before)
        planning_seconds = self._clock() - began - sum(sum(view.asked.values()) for view in views)
        asked_seconds = sum(sum(view.asked.values()) for view in views)
        done = self.carried_out(sessions, views, plans, other_rows)
        return replace(
            done,
            asked_seconds=done.asked_seconds + asked_seconds,
            planning_seconds=planning_seconds,
        )

    def carried_out(
        self,
        sessions: list[Session],
        views: list[View],
        plans: Sequence[DraftPlan],
        other_rows: int,
    ) -> Proposals:
        """The drafts that these plans ask for, as `propose` returns them."""
        drafts = [plan.base for plan in plans]
        drafted = []
        asked_seconds = 0.0
        for name in dict.fromkeys(plan.extend for plan in plans if plan.extend is not None):
            asking = [index for index, plan in enumerate(plans) if plan.extend == name]
            tails, cost, seconds = self._extend(
                name, [sessions[index] for index in asking], [plans[index] for index in asking]
            )
            drafted.append(cost)
            asked_seconds += seconds
            for index, tail in zip(asking, tails, strict=True):
                drafts[index] = drafts[index].then(tail)
        drafts = self.policy.trees(views, drafts)
        drafts = [
            draft if view.trees else draft.trunk()
            for draft, view in zip(drafts, views, strict=True)
        ]
        cuts = self.policy.cut(views, drafts, other_rows)
        heads = [draft.head(max(cut, draft.drawn)) for draft, cut in zip(drafts, cuts, strict=True)]
        heads = self._filled(sessions, views, heads, other_rows)
        return Proposals(sessions, views, heads, drafted, asked_seconds)

    def _filled(
        self,
        sessions: Sequence[Session],
        views: Sequence[View],
        drafts: list[Draft],
        other_rows: int,
    ) -> list[Draft]:
        """The drafts with more nodes in rows that are paid anyway, where a drafter has some."""
        fillers = [filling(session.drafters) for session in sessions]
        if not any(fillers):
            return drafts
        paid = self.policy.paid(views, [len(draft) for draft in drafts], other_rows)
        for place, (session, view) in enumerate(zip(sessions, views, strict=True)):
            count = min(paid[place], view.budget - len(drafts[place]))
            if (filler := fillers[place]) is None or count <= 0:
                continue
            with self._optional(filler[0], [session]):
                draft = filled(drafts[place], filler[1], count)
                self._check(draft, view.budget)
                drafts[place] = draft
        return drafts

    def see(
        self, session: Session, draft: Draft, accepted: Sequence[int], rows: Sequence[BlockMax]
    ) -> None:
        """Show a verified draft to the drafter that fills rows, where nodes of it were rejected."""
        if len(accepted) < len(draft) and (filler := filling(session.drafters)) is not None:
            with self._optional(filler[0], [session]):
                filler[1].see(rejected(draft, accepted, session.tokens[-1], rows))

    def _extend(
        self, name: str, sessions: list[Session], plans: list[DraftPlan]
    ) -> tuple[list[Draft], Drafted, float]:
        """Extend the plans' bases by one source, for all sessions together.

        Returns the extensions, what they cost, and the seconds in which free drafters were asked
        for guesses.
        """
        guesses = [
            Guesses(partial(self.free, session, beside=name), plan)
            for session, plan in zip(sessions, plans, strict=True)
        ]
        requests = [
            DraftRequest(
                session.drafters[name],
                plan.base,
                plan.budget,
                plan.worth,
                guess,
                plan.read,
                plan.skip,
                plan.siblings,
            )
            for session, plan, guess in zip(sessions, plans, guesses, strict=True)
        ]
        unread = self._unread(name, requests, sessions)
        ran = self._ran(name)
        began = self._clock()
        tails = self.ask(name, requests, sessions)
        asked_seconds = sum(guess.asked_seconds for guess in guesses)
        seconds = self._clock() - began - asked_seconds
        left = self._unread(name, requests, sessions)
        read = unread - left
        cells = sum(len(session.tokens) for session in sessions) - left
        forwards = max(
            guess.asked or len(tail.trunk()) for guess, tail in zip(guesses, tails, strict=True)
        )
        if getattr(self.drafters[name], "stepwise", False):
            forwards += max(len(plan.base) for plan in plans)
        guessed = sum(guess.tokens for guess in guesses)
        now = self._ran(name)
        changes, first = now.changes - ran.changes, now.firsts > ran.firsts
        cost = Drafted(name, read, forwards, seconds, cells, guessed, changes, first)
        return tails, cost, asked_seconds

    def _ran(self, name: str) -> ForwardCounts:
        """The forwards that a drafter has run so far."""
        drafter = self._computing.get(name)
        return replace(drafter.forwards) if drafter else ForwardCounts()

    def free(
        self, session: Session, prefix: Draft, budget: int, beside: str | None = None
    ) -> tuple[list[Draft], dict[str, float]]:
        """The chains that the session's free drafters expect after `prefix`.

        Also returns the seconds of those drafters that take a while. `beside` is the neural drafter
        that reads the chains along, if any.
        """
        drafts: list[Draft] = []
        asked: dict[str, float] = {}
        always = session.request.speculation.mode == "always"
        for name, opened in list(session.drafters.items()) if budget > 0 else ():
            slow = name in self._slow
            if not self.drafters[name].free or (
                slow
                and not always
                and not self.policy.wants_slow_source(name, session.stats, beside)
            ):
                continue
            request = DraftRequest(opened, prefix, budget, self.policy.likely(session.stats))
            began = self._clock()
            draft = self.ask(name, [request], [session])[0].trunk()
            if not draft.tokens:
                continue
            drafts.append(draft)
            if slow:
                asked[name] = self._clock() - began
        return drafts, asked

    def view(self, session: Session, context: int, spare: int) -> View:
        """The session as the policy sees it, after its free drafters were asked."""
        session.tell()
        budget = self.budget(session, context, spare)
        free, asked = self.free(session, Draft(), budget)
        neural = []
        for name, opened in list(session.drafters.items()):
            if self.drafters[name].free or not getattr(opened, "ready", True):
                continue
            with self._optional(name, [session]):
                neural.append(self._neural(name, opened))
        wish = session.request.speculation
        likely = session.request.expectation.remaining(session.n_output)
        return View(
            free=tuple(free),
            neural=tuple(neural),
            budget=budget,
            remaining=min(float(session.remaining), likely),
            always=wish.mode == "always",
            stats=session.stats,
            target_confidence=session.target_confidence,
            cells=session.cached,
            elapsed_seconds=self._clock() - session.meter.admitted_at,
            asked=asked,
            carried=session.carried.head(budget),
            trees=self.trees and wish.verify == "coupled",
        )

    def budget(self, session: Session, context: int, spare: int, ahead: int = 0) -> int:
        """How many nodes may be drafted for a session once it has `ahead` more tokens."""
        wish = session.request.speculation
        most = self._max_draft if wish.max_draft is None else wish.max_draft
        if session.undone:  # a rejected draft could add to it
            most = 0
        room = context - len(session.tokens) - 1  # the bonus needs a place too
        masks = session.sampler.constraint
        if isinstance(masks, Masks):
            most = min(most, masks.nodes)
        left = min(session.remaining - 1, room) - ahead
        return max(0, min(most, self._max_draft, left, spare))

    def _neural(self, name: str, opened: DraftSession) -> Neural:
        computing = self._computing.get(name)
        before = computing.forwards.rows if computing else 0
        stepwise = getattr(self.drafters[name], "stepwise", False)
        return Neural(name, opened.pending, before, _skipped(opened), stepwise=stepwise)

    def ask(self, name: str, requests: list[DraftRequest], sessions: list[Session]) -> list[Draft]:
        """Ask a drafter; a session loses one that fails or gives nonsense, and nothing else.

        The cause may be one session's sampler or grammar. So a drafter that fails for several
        sessions is asked for each alone, and left out only where it fails again.
        """
        if len(requests) == 1:
            with self._optional(name, sessions):
                return self._checked(name, requests)
            return [Draft()]
        try:
            return self._checked(name, requests)
        except Exception:  # noqa: BLE001 — whose fault it is shows next
            _log.exception("drafter %s failed and is asked for each request alone", name)
            pairs = zip(requests, sessions, strict=True)
            return [self.ask(name, [request], [session])[0] for request, session in pairs]

    @contextmanager
    def _optional(self, name: str, sessions: list[Session]) -> Iterator[None]:
        """Run the block; these sessions go on without the drafter if it raises anything."""
        try:
            yield
        except Exception:  # noqa: BLE001
            _log.exception("drafter %s failed and is left out of these requests", name)
            for session in sessions:
                if (opened := session.drafters.pop(name, None)) is not None:
                    _close_quietly(opened)

    def _unread(self, name: str, requests: list[DraftRequest], sessions: list[Session]) -> int:
        """Tokens of these sessions' texts that a drafter has not read, as it reports them."""
        unread = 0
        for request, session in zip(requests, sessions, strict=True):
            with self._optional(name, [session]):
                unread += request.session.pending + (_skipped(request.session) or 0)
        return unread

    def _checked(self, name: str, requests: list[DraftRequest]) -> list[Draft]:
        """The drafts of a drafter. Raises what it raises, and EngineError for nonsense."""
        drafts = self.drafters[name].propose(requests)
        for request, draft in zip(requests, drafts, strict=True):
            self._check(draft, request.budget * (1 + request.siblings))
        return drafts

    def _check(self, draft: Draft, most: int) -> None:
        """A draft is foreign input: it must not reach native code unchecked."""
        sane = (
            len(draft) <= most
            and len(draft.parents) == len(draft.signals) == len(draft.laws) == len(draft)
            and all(0 <= token < self._n_vocab for token in draft.tokens)
            and all(-1 <= parent < node for node, parent in enumerate(draft.parents))
        )
        if not sane:
            raise EngineError(f"A draft of {len(draft)} nodes is malformed.")


def _coupled_only(drafter: Drafter) -> bool:
    """Whether only the coupled rule can verify its drafts, as with another tokenizer."""
    return bool(getattr(drafter, "coupled_only", None))


def indexed(drafter: Drafter, opened: DraftSession) -> Iterator[None]:
    """Let a free drafter read all that is pending; yields after each bounded part."""
    while drafter.free and isinstance(drafter, Reading) and drafter.read(opened, INDEXED):
        yield


def _skipped(opened: DraftSession) -> int | None:
    """Tokens that a `Skipping` drafter has left out; None for one that has to read them all.

    Found by attribute: this is asked three times a round, and isinstance of a protocol takes 15 us.
    """
    return getattr(opened, "skipped", None)


def _close_quietly(opened: DraftSession) -> None:
    try:
        opened.close()
    except Exception:  # noqa: BLE001 — it is being thrown away
        _log.exception("a drafter failed while it was closed")
