"""One step of generation for all sessions: draft, decode, verify, commit, truncate.

The engine knows tokens; never text, HTTP or policy. It belongs to one thread. Time comes from the
clock it is given.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from localspec.control.overlap import Overlap
from localspec.control.round import Policy, Round
from localspec.engine import scheduler
from localspec.engine.accounting import StepTimes, charge, observation
from localspec.engine.adapters import Adapters, Scales
from localspec.engine.batch import Batch, Batcher
from localspec.engine.exactness.classes import Shape, layout_of
from localspec.engine.exactness.separate import apart
from localspec.engine.image_reading import ImageReading
from localspec.engine.kv.admission import RESERVED_TOKENS, KvAdmission
from localspec.engine.kv.prefix_sharing import PrefixSharing
from localspec.engine.kv.prefixes import Prefixes
from localspec.engine.kv.rollback import StateCopies
from localspec.engine.kv.slots import Slot, SlotTexts, choose
from localspec.engine.routing import SPECULATING
from localspec.engine.sampling import Sampler
from localspec.engine.session import Meter, Request, Session
from localspec.engine.shifting import ContextShift
from localspec.engine.speculation.drafting import Drafting
from localspec.engine.speculation.masks import Masks
from localspec.engine.speculation.overlap import OverlappedDrafting
from localspec.engine.speculation.proposals import Proposals
from localspec.engine.speculation.verification import Outcome, StepOutput, Verification
from localspec.engine.waiting import Waiting
from localspec.errors import Busy, NoRoom
from localspec.forward_counts import ForwardCounts
from localspec.types import Backend, Branching, Drafter, ForwardOutput, Origin, Row, Token

_log = logging.getLogger("localspec.engine")

JUDGED_ROWS = 32
"""Rows with logits that `Engine.read` takes at once: 20 MB of them with a large vocabulary."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds of a step: rows of prefill in one decode, and nodes of one session's draft."""

    prefill_rows: int = 512
    max_draft: int = 31


class Engine(SlotTexts):
    """Advances sessions on one target.

    Args:
        target: The model that decides.
        drafters: Sources of drafts by name; a session opens those that its request allows.
        controller: Decides source and depth each round, and learns from every round.
        ends: The target's end-of-generation tokens.
        shape: The class of forwards whose logits agree (`exactness/classes.py`). Between steps it
            may be replaced by the same class with a longer reach.
        limits: Bounds of a step.
        clock: Seconds, monotonic.
        overlap: Decides whether drafts are continued while the target verifies; None never does.
    """

    def __init__(  # noqa: PLR0913 — all parts of a step meet here
        self,
        target: Backend,
        drafters: Mapping[str, Drafter],
        controller: Policy,
        *,
        ends: frozenset[Token],
        shape: Shape,
        limits: Limits,
        clock: Callable[[], float],
        overlap: Overlap | None = None,
    ) -> None:
        self.backend = target
        self.steps = self.slots_taken = 0
        n_vocab, most = target.n_vocab, limits.max_draft
        self._drafting = Drafting(
            drafters, controller, n_vocab=n_vocab, max_draft=most, clock=clock
        )
        self._overlap = OverlappedDrafting(self._drafting, overlap, clock, self._use_time)
        self._limits, self._ends, self.clock = limits, ends, clock
        self._sessions: list[Session] = []
        self._slots: list[Slot] = []
        self._chunks = scheduler.Chunks(limits.prefill_rows)
        self._ran = ForwardCounts()
        self._adapters = Adapters(target)
        self._shift = ContextShift(target, self._drafting)
        self.prefixes = Prefixes(target, drafters.values(), self._slots, clock)
        self.arrange(shape)
        self.vacate: Callable[[], None] = lambda: None  # called before a slot is taken
        self._lesson: Callable[[], Round | None] | None = None
        self.meanwhile: Callable[[], None] = lambda: None  # called while a device computes
        self._waiting = target if isinstance(target, Waiting) else None
        if self._waiting is not None:
            self._waiting.meanwhile = self._overlap.use_time

    def arrange(self, shape: Shape) -> None:
        """Use this class of forwards from now on. There must be no sessions.

        The target is asked anew for its slots and rows. The caller first forgets the texts that
        slots remember, unless they were read by forwards of the same class.
        """
        target = self.backend
        self.shape, self.layout = shape, layout_of(target, shape)
        self.target = apart(target) if shape.alone else target
        forwards = target.n_slots if shape.alone else 1
        self.max_rows = min(target.max_rows, shape.max_rows * forwards)
        # Every session needs its padded row in every decode, however few rows a class allows.
        n_slots = min(target.n_slots, self.max_rows // shape.multiple)
        judged = n_slots * max(JUDGED_ROWS, 1 + self._limits.max_draft)
        most_padded = min(self.max_rows, judged)
        policy = self._drafting.policy
        self._batcher = Batcher(self.target, shape, policy, self.max_rows, most_padded)
        self._slots[n_slots:] = [Slot() for _ in range(n_slots - len(self._slots))]
        self._room = KvAdmission(
            target, self._slots, self._sessions, shape.multiple, self.prefixes.lose
        )
        self._images = ImageReading(target, self._room, self._adapters)
        self._verification = Verification(self._drafting, ends=self._ends, multiple=shape.multiple)
        self._undo = StateCopies(self.target, shape.rollback, self.clock)
        trims = shape.rollback == "trim"
        self.prefix_sharing = PrefixSharing(self.target, self._slots, self._sessions, trims=trims)
        able = isinstance(self.target, Branching) and self.target.trees
        self._drafting.trees = able and shape.mixes

    # --- sessions ---------------------------------------------------------------------------------

    @property
    def drafters(self) -> Mapping[str, Drafter]:
        """Sources of drafts by name."""
        return self._drafting.drafters

    @property
    def waits(self) -> bool:
        """Whether a device computes the forwards, so that this thread is free meanwhile."""
        return self._waiting is not None and self._waiting.waits

    @property
    def sessions(self) -> Sequence[Session]:
        """Admitted and not yet retired, oldest first."""
        return self._sessions

    @property
    def max_draft(self) -> int:
        """Most nodes of one session's draft."""
        return self._limits.max_draft

    @property
    def context(self) -> int:
        """Tokens that one session may hold; padding rows may need the last few positions."""
        return self.target.context - self.shape.multiple + 1

    @property
    def unasked(self) -> int:
        """Tokens that an idle slot may hold to probe something (`cells.unasked`)."""
        return self._room.unasked

    def admit(self, request: Request) -> Session:
        """Give a request a slot, if possible one that already holds a prefix of its text.

        Raises:
            Busy: every slot is taken.
        """
        client, text = request.client, request.text
        index, shared = self.take_slot(client, text, request.session, reuse=request.reuse)
        try:
            origin: Origin = "slot"
            if request.reuse:
                shared = self.prefix_sharing.copied(index, shared, client, text)
                shared, origin = self.prefixes.take_over(index, client, text, shared)
                shared = self._images.held(index, request.images, shared)
                if request.route == SPECULATING:
                    self.prefixes.take_over_drafts(index, client, text)
            session = self._session(request, index, shared)
            session.origin = origin
        except Exception:
            self.release_slot(index, client, [])
            raise
        self._sessions.append(session)
        longest = len(session.tokens) + min(request.max_tokens, RESERVED_TOKENS)
        self._room.foresee(index, longest)
        return session

    def _session(self, request: Request, index: int, shared: int) -> Session:
        masks = Masks(request.constraint, self.clock) if request.constraint else None
        sampler = Sampler(request.sampling, masks, request.speculation.verify, request.breakers)
        session = Session(
            request=request,
            slot=index,
            tokens=request.text,
            cached=shared,
            cached_tokens=min(shared, len(request.prompt)),
            sampler=sampler,
            meter=Meter(admitted_at=self.clock()),
            sound=request.gone[0],
            dropped=request.gone[1],
        )
        sampler.offset = session.dropped
        if request.route == SPECULATING:
            self._drafting.open(session)
        ends = self._verification.ends
        session.finish = session.ending(ends, self.context)  # it may be at its end
        return session

    def retire(self, session: Session, keep: int | None = None) -> None:
        """Free the session's slot. Its memory stays for the next prompt that begins the same.

        Args:
            session: An admitted session.
            keep: Output tokens that belong to the text (a stop string may have cut it short); all
                by default.
        """
        self._learn()
        self._sessions.remove(session)
        self._drafting.close(session)
        length = session.cached if keep is None else min(session.cached, session.n_prompt + keep)
        request = session.request
        self.release_slot(
            session.slot,
            request.client,
            session.tokens[: session.reusable(length)],
            request.session,
            adapters=request.adapters,
        )

    def take_slot(
        self, client: str, prompt: Sequence[Token], session: str = "", *, reuse: bool = True
    ) -> tuple[int, int]:
        """Take the free slot that is best for `prompt`; the slot, and how many tokens it holds.

        `kv/slots.py: choose` says which one; without `reuse` it is emptied. A caller without a
        `Session` fills it with `read` and gives it back with `release_slot`.

        Raises:
            Busy: every slot is taken.
        """
        self.vacate()
        chosen = choose(self._slots, client, prompt, session)
        if chosen is None:
            raise Busy("Every slot is busy.", fix="Try again, or raise engine.slots.")
        index, shared = chosen
        self.prefixes.lose(index, shared if reuse else 0)
        shared = self.target.truncate(index, shared if reuse else 0)
        self._slots[index].busy = True
        self.slots_taken += 1
        return index, shared

    def release_slot(
        self,
        slot: int,
        client: str,
        held: list[Token],
        session: str = "",
        *,
        adapters: Scales = (),
    ) -> None:
        """Free a slot. Its memory keeps the tokens `held`, or as many first ones as it can."""
        self._room.foresee(slot)
        held = held[: self.target.truncate(slot, len(held))]
        self._slots[slot] = Slot(client, held, self.steps, session=session, adapters=adapters)
        self._adapters.rest(self._sessions)

    def read(
        self,
        slot: int,
        tokens: Sequence[Token],
        start: int,
        judged: int,
        adapters: Scales = (),
    ) -> tuple[ForwardOutput, int]:
        """One forward over given tokens, outside of any session, shaped like those of sessions.

        Args:
            slot: Taken with `take_slot`; it holds `tokens[:start]`.
            tokens: At most as many as the context holds.
            start: The first position to read; `start` < `len(tokens)`.
            judged: Positions from here on want logits. No forward reads both these and others.
            adapters: Scales of the model's adapters.

        Returns:
            The output, and the number of tokens that were read: all further rows are padding.

        Raises:
            EngineError: llama.cpp failed; the engine must not be used any more.
        """
        multiple = self.shape.multiple
        end, most = (judged, self.max_rows) if start < judged else (len(tokens), JUDGED_ROWS)
        most = min(most, self.max_rows, self._chunk_rows())
        count = min(end - start, max(multiple, most - most % multiple), self.shape.room(start))
        last, padding = start + count - 1, -count % multiple
        rows = [
            Row(tokens[min(place, last)], place, slot, wants_logits=start >= judged)
            for place in range(start, start + count + padding)
        ]
        self.steps += 1
        self._ran.ran(len(rows))
        self._adapters.use(adapters)
        output = self.target.decode(rows)
        if padding:
            self.target.truncate(slot, start + count)
        return output, count

    # --- one step ---------------------------------------------------------------------------------

    def step(self) -> list[StepOutput]:
        """Run one decode for all sessions; the gain of each, [] where there is nothing to do.

        Raises:
            EngineError: llama.cpp failed; the engine must not be used any more.
        """
        if not self._sessions:
            return []
        self.steps += 1
        if ended := self._shift.advance(self._sessions, self.context):
            return [StepOutput(each, [], [], each.finish) for each in ended]
        if outgrown := self._room.outgrown(self.context):
            return [StepOutput(each, [], [], "length", failure) for each, failure in outgrown]
        self._drafting.read_on(self._sessions)
        going, spare = self._images.fitting()
        if not going:
            return []
        began = self.clock()
        chunk = self._chunk_rows()
        proposals = self._propose(going, chunk, spare)
        drafts = dict(zip(proposals.sessions, proposals.drafts, strict=True))
        batch = self._batcher.batch(going, drafts, chunk)
        self._overlap.expect(proposals, batch.sessions, batch.shares)
        held = self._undo.prepare(batch.sessions, batch.shares, len(batch.padding))
        before = self.clock()
        output = self._forward(batch)
        after = self.clock()
        if output is None:
            self._overlap.drop()
            self._undo.settle(batch.sessions, held)
            return []
        self._overlap.look()
        outcomes = self._verification.judge(
            batch.sessions, batch.shares, drafts, output, self.context
        )
        self._undo.settle(batch.sessions, held)
        self._observe(proposals, outcomes, self._times(batch, began, before, after))
        return [outcomes[each].advance for each in self._sessions if each in outcomes]

    def _propose(self, going: Sequence[Session], chunk: int, spare: int) -> Proposals:
        """Drafts for the sessions that decode, each of at most `spare` nodes."""
        decoding = [session for session in going if session.decoding]
        tails = sum(session.tail for session in decoding)
        waiting = sum(session.tail for session in going) - tails
        return self._overlap.proposals(
            decoding,
            min(self.context, self.shape.cells),
            min(chunk, waiting) + tails - len(decoding),
            self._ran.rows,
            spare,
        )

    def _forward(self, batch: Batch) -> ForwardOutput | None:
        """Decode a batch; None where memory is smaller than planned. Later steps plan with less.

        Raises:
            NoRoom: the memory is as large as before, and the batch does not fit.
        """
        try:
            return self._decode(batch.rows, batch.padding)
        except NoRoom as error:
            if not self._room.shrank:
                raise
            _log.warning("%s", error)
            return None

    def _decode(self, rows: list[Row], padding: list[Row]) -> ForwardOutput:
        """One forward, with the padding where there are cells for it. Raises NoRoom."""
        try:
            output = self._overlap.decode(self.target, rows + padding)
        except NoRoom:
            if not padding:
                raise
            return self._decode(rows, [])
        self._ran.ran(len(rows) + len(padding))
        return output

    def _times(self, batch: Batch, began: float, before: float, after: float) -> StepTimes:
        """The clock readings of a step, and what it was."""
        return StepTimes(
            began,
            before,
            after - self._overlap.late,
            self.clock(),
            rows=self._ran.rows,
            alike=self._ran.alike,
            first=self._ran.first,
            read=batch.prompt_rows,
            regular=batch.regular and not self._overlap.ran,
            copies=self._undo.copies,
            copy_seconds=self._undo.seconds,
            late_seconds=self._overlap.late,
        )

    def _observe(
        self, proposals: Proposals, outcomes: Mapping[Session, Outcome], times: StepTimes
    ) -> None:
        """Charge the round to its sessions, and keep it for the policy."""
        charge(proposals, outcomes, times)
        alone = not proposals.sessions
        self._chunks.ran(times.rows, times.read, times.target_seconds, alone=alone)
        if alone and self.prefixes.source and times.read == times.rows:
            self.prefixes.source.read(times.read, times.target_seconds)
        self._lesson = partial(observation, proposals, outcomes, times)
        self._overlap.settle(proposals, outcomes, waits=self.waits)
        if not self.waits:
            self._learn()

    def _chunk_rows(self) -> int:
        """Rows of prefill that this step may take."""
        alone = not any(session.decoding or session.request.brief for session in self._sessions)
        tails = sum(session.tail for session in self._sessions if not session.decoding)
        chunk = self._chunks.rows(alone=alone, waiting=tails or self.max_rows)
        return max(self.shape.multiple, chunk)

    # --- learn ------------------------------------------------------------------------------------

    def _learn(self) -> None:
        """Let the policy learn from the latest round; on a device during the next forward."""
        lesson, self._lesson = self._lesson, None
        if lesson is not None and (round_ := lesson()) is not None:
            self._drafting.policy.observe(round_)

    def _use_time(self) -> None:
        """Learn and plan while a forward runs."""
        self._learn()
        self.meanwhile()
        self._overlap.plan_ahead()
