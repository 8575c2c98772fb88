"""Decides which sessions go on, and what is forgotten, where slots share too few cells."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from localspec.engine.kv.cells import Reserving, unasked
from localspec.engine.kv.slots import Slot, fitting, idle
from localspec.engine.session import Session
from localspec.errors import LocalSpecError, NoRoom
from localspec.types import Backend, Sharing

RESERVED_TOKENS = 1024
"""Tokens of an answer that are foreseen with its prompt; few answers are longer."""


class KvAdmission:
    """Admits the sessions of one engine to one KV cache. It reads the engine's own lists.

    No session is turned away for want of cells: one that does not fit beside older ones waits,
    and when it goes on it reads again what had to be forgotten. The oldest always goes on.

    Args:
        target: What holds the cells; one without `Sharing` has enough.
        slots: What each slot remembers.
        sessions: Admitted ones, the oldest first.
        multiple: Rows of a session in a forward are padded to a multiple of this.
        lose: Called before an idle slot's text is forgotten.
    """

    def __init__(
        self,
        target: Backend,
        slots: list[Slot],
        sessions: Sequence[Session],
        multiple: int,
        lose: Callable[[int], None] = lambda _: None,
    ) -> None:
        self._lose = lose
        self._target = target
        self._sharing = target if isinstance(target, Sharing) else None
        self._slots = slots
        self._sessions = sessions
        self._multiple = multiple
        self.going: list[Session] = []
        """The sessions of the present step."""
        self._known = self._size
        if self._sharing is not None:
            self._sharing.on_full = self._forget

    @property
    def _size(self) -> tuple[int | None, int]:
        """The most tokens that all slots together may hold, and one slot."""
        return self._sharing.shared_cells if self._sharing else None, self._target.context

    @property
    def shrank(self) -> bool:
        """Whether there are fewer cells than when it was last decided who fits."""
        return self._size != self._known

    @property
    def unasked(self) -> int:
        """Tokens that an idle slot may hold to probe something."""
        return unasked(self._target)

    def foresee(self, slot: int, tokens: int = 0) -> None:
        """Note that the slot is going to hold so many tokens; 0 if that is no longer known."""
        if isinstance(self._target, Reserving):
            self._target.foresee(slot, min(tokens, self._target.context))

    def fitting(self) -> tuple[list[Session], int]:
        """The sessions that there are cells for, and how many draft nodes each of them may add.

        None of them where a slot without a session (a replay) holds too many cells: it ends soon.
        """
        sharing, self._known = self._sharing, self._size
        if sharing is None or sharing.shared_cells is None:
            self.going = list(self._sessions)
            return self.going, self._target.context
        mine = {session.slot for session in self._sessions}
        others = sum(
            sharing.held[index]
            for index, slot in enumerate(self._slots)
            if slot.busy and index not in mine
        )
        needs = [len(session.tokens) + self._multiple for session in self._sessions]
        if others and needs and needs[0] > sharing.shared_cells - others:
            self.going = []
            return [], 0
        chosen, spare = fitting(needs, sharing.shared_cells - others)
        self.going = [self._sessions[index] for index in chosen]
        return self.going, spare // len(chosen)

    def outgrown(self, context: int) -> list[tuple[Session, LocalSpecError | None]]:
        """Sessions whose text fills a context that became smaller, to so many tokens.

        Each comes with an error if it has no output that could be its answer.
        """
        found: list[tuple[Session, LocalSpecError | None]] = []
        for session in self._sessions:
            if session.finish is None and len(session.tokens) >= context:
                session.finish = "length"
                why = NoRoom(
                    f"There is memory for {context} tokens now; the prompt has {session.n_prompt}.",
                    fix="Shorten it, or end programs that take memory.",
                )
                found.append((session, None if session.n_output else why))
        return found

    def _forget(self) -> bool:
        """Drop the idle text unused for longest or, without one, what a waiting session holds.

        Nothing is dropped while no slot is busy: a measurement is not worth a text.
        """
        if not any(slot.busy for slot in self._slots):
            return False
        if remembering := idle(self._slots):
            slot = remembering[-1]
            self._lose(slot)
            self._slots[slot] = Slot(used=self._slots[slot].used)
        else:
            waiting = [each for each in self._sessions if each not in self.going and each.cached]
            if not waiting:
                return False
            slot, waiting[-1].cached = waiting[-1].slot, 0
        self._target.truncate(slot, 0)
        return True
