"""Context shift: a session at the end of its context forgets a part of its text and goes on.

The tokens after the forgotten part attended to it when they were read, and they move to other
positions: reading them anew would not give the same bits. So later prompts reuse only what stands
before that part.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Protocol, runtime_checkable

from localspec.engine.session import Session
from localspec.engine.speculation.drafting import Drafting
from localspec.errors import NoRoom
from localspec.types import Backend

_log = logging.getLogger("localspec.engine")

LEAST_BEHIND = 4
"""The fewest tokens after the kept ones: llama-server's number."""


@runtime_checkable
class Shifting(Backend, Protocol):
    """A backend whose slots can forget tokens in the middle."""

    @property
    def shifts(self) -> bool:
        """Whether this model's memory can do that."""

    def shift(self, slot: int, keep: int, count: int) -> None:
        """Forget `count` tokens after the first `keep`; the tokens after them move up.

        Raises NoRoom or MemoryError, and then the slot is to be emptied.
        """


def forgotten(length: int, context: int, keep: int, count: int = 0) -> tuple[int, int]:
    """How many first tokens of a text are kept, and how many after them are forgotten.

    As in llama-server: half of the tokens after the kept ones, or `count` of them.
    """
    keep = max(0, min(keep, context - LEAST_BEHIND, length - 1))
    left = length - keep
    return keep, max(1, min(count or left // 2, left - 1))


def gone(length: int, context: int, keep: int, count: int = 0) -> tuple[int, int]:
    """How many first tokens of a text are kept, and how many after them all shifts forgot."""
    over = length - context + 1
    if over <= 0:
        return 0, 0
    kept, each = forgotten(context - 1, context, keep, count)
    return kept, -(-over // each) * each


class ContextShift:
    """Shifts the sessions of one engine whose requests ask for it. Engine's thread."""

    def __init__(self, target: Backend, drafting: Drafting) -> None:
        able = isinstance(target, Shifting) and target.shifts
        self._target = target if able and isinstance(target, Shifting) else None
        self._drafting = drafting

    def advance(self, sessions: Sequence[Session], context: int) -> list[Session]:
        """Shift each session whose text fills the context, all but its last token decoded.

        Returns those for which there is no memory: they have ended, and their slots are empty.
        """
        ended = []
        for session in sessions:
            full = session.decoding and len(session.tokens) >= context
            if full and session.finish is None and not self._shifted(session, context):
                session.finish = "length"
                ended.append(session)
        return ended

    def _shifted(self, session: Session, context: int) -> bool:
        """Shift a session if its request asks for it; False where that failed."""
        request, target = session.request, self._target
        if target is None or request.keep is None:
            return True
        keep, count = forgotten(session.cached, context, request.keep, request.discard)
        try:
            target.shift(session.slot, keep, count)
        except (NoRoom, MemoryError) as error:
            _log.warning("not shifted id=%s reason=%s", request.id, error)
            session.holds(target.truncate(session.slot, 0))  # it may have been shifted in part
            return False
        session.forget(keep, count)
        self._drafting.open_again(session)
        return True
