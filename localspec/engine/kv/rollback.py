"""How a memory goes back: cell by cell, to copies of its state, or not at all.

Keys and values stand in cells, one for each token, and the last ones can be forgotten. A recurrent
or hybrid model has read its text into a state of one size, which only a copy brings back. Then
`Backend.truncate` goes back farther than it was asked to, to the latest copy, and what lies between
is read again: by a session with its next rows, elsewhere by `Rereading`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from localspec.control.scheduler import Share
from localspec.engine.session import Session
from localspec.types import Backend, Floats, Row, Token

Rollback: TypeAlias = Literal["trim", "restore", "none"]
"""How a memory goes back: it trims its last cells, restores a checkpoint, or only begins anew."""

_REREAD_ROWS = 32
"""Rows of a forward that reads again."""
_LASTING_TOKENS = 32
"""Less is read again as fast as it is copied."""


@dataclass(slots=True)
class Checkpoint:
    """A copy of a slot's state after its first `length` tokens; -1 where it holds no more."""

    length: int
    state: Any


class Checkpoints:
    """The copies of one context: a lasting one and a passing one of each slot. On the host.

    Buffers are used again: fresh ones of this size cost more than what is written into them.
    """

    def __init__(self) -> None:
        self._kept: dict[tuple[int, bool], Checkpoint] = {}

    def has(self, slot: int, length: int, *, lasting: bool) -> bool:
        """Whether there is one that is kept as long as that."""
        kinds = (True,) if lasting else (True, False)
        kept = (self._kept.get((slot, kind)) for kind in kinds)
        return any(each is not None and each.length == length for each in kept)

    def begun(self, slot: int, size: int, *, lasting: bool) -> Checkpoint:
        """One of so many bytes, to be written and given its length."""
        found = self._kept.get((slot, lasting))
        if found is None or len(found.state) != size:
            found = self._kept[slot, lasting] = Checkpoint(-1, (ctypes.c_uint8 * size)())
        found.length = -1
        return found

    def latest(self, slot: int, length: int) -> Checkpoint | None:
        """That of most tokens, but not of more than `length`."""
        kept = (self._kept.get((slot, kind)) for kind in (True, False))
        held = [each for each in kept if each is not None and 0 < each.length <= length]
        return max(held, key=lambda each: each.length, default=None)

    def taken(self, slot: int) -> dict[bool, Checkpoint]:
        """Take a slot's copies away: the lasting one and the passing one, as far as they are."""
        kept = {kind: self._kept.pop((slot, kind), None) for kind in (True, False)}
        return {kind: each for kind, each in kept.items() if each is not None}

    def given(self, slot: int, kept: Mapping[bool, Checkpoint]) -> None:
        """Give the slot back what `taken` gave."""
        self._kept.update({(slot, kind): each for kind, each in kept.items()})

    def cut(self, slot: int, length: int) -> None:
        """Drop checkpoints beyond `length`: the text is another one from there on."""
        for kind in (True, False):
            kept = self._kept.get((slot, kind))
            if kept is not None and kept.length > length:
                kept.length = -1


@dataclass(frozen=True, slots=True)
class Stored:
    """A copy of what a slot held: tokens, their memory, and copies of the state before them."""

    length: int
    state: Any
    checkpoints: Mapping[bool, Checkpoint]


class Rereading:
    """A `Backend` over one that may go back too far: what lies between is read again at once.

    For probes and measurements, which go back to wherever they like. They take a checkpoint where
    they come back to often.
    """

    def __init__(self, target: Backend) -> None:
        self.n_vocab, self.n_slots = target.n_vocab, target.n_slots
        self.max_rows = target.max_rows
        self._target = target
        self._tokens: list[list[Token]] = [[] for _ in range(target.n_slots)]

    @property
    def context(self) -> int:
        """As the target has it."""
        return self._target.context

    def decode(self, rows: Sequence[Row]) -> Floats:
        """As the target does."""
        logits = self._target.decode(rows)
        for row in rows:
            self._tokens[row.slot][row.position :] = [row.token]
        return logits

    def truncate(self, slot: int, length: int) -> int:
        """Forget everything from `length` on, and no more."""
        held, tokens = self._target.truncate(slot, length), self._tokens[slot]
        del tokens[length:]
        for start in range(held, length, _REREAD_ROWS):
            part = tokens[start : start + _REREAD_ROWS]
            self._target.decode([Row(token, start + at, slot) for at, token in enumerate(part)])
        return length

    def checkpoint(self, slot: int, *, lasting: bool = False) -> None:
        """As the target does."""
        self._target.checkpoint(slot, lasting=lasting)


def rereading(target: Backend, rollback: Rollback) -> Backend:
    """The target, such that it can go back to any length."""
    return Rereading(target) if rollback == "restore" else target


class StateCopies:
    """Forgets what forwards decode in vain, and sees before them that it can. Engine lifetime.

    `copies` of states were made or brought back since `prepare`, which took `seconds`; both are 0
    where cells can be forgotten.

    Args:
        target: Whose memory it is.
        rollback: What that can do.
        clock: Seconds, monotonic.
    """

    def __init__(self, target: Backend, rollback: Rollback, clock: Callable[[], float]) -> None:
        self._target = target
        self._restores = rollback == "restore"
        self._clock = clock
        self.copies, self.seconds = 0, 0.0

    def prepare(self, sessions: Sequence[Session], shares: Sequence[Share]) -> list[int]:
        """Before a forward; how many tokens each session's memory will hold after it.

        There are copies where drafts may be wrong, and where the last rows of a prompt are read:
        in these, or behind them, the next prompt of that client may differ.
        """
        self.copies, self.seconds = 0, 0.0
        began = self._clock()
        for session, share in zip(sessions, shares, strict=True) if self._restores else ():
            last = not session.decoding and share.tail == session.tail
            lasting = last and session.cached >= _LASTING_TOKENS
            if share.nodes or lasting:
                self._target.checkpoint(session.slot, lasting=lasting)
                self.copies += 1
        if self.copies:
            self.seconds = self._clock() - began
        return [
            session.cached + share.rows for session, share in zip(sessions, shares, strict=True)
        ]

    def settle(self, sessions: Sequence[Session], held: Sequence[int]) -> None:
        """After a forward: each session's memory holds `held` tokens, and `cached` are its text."""
        began, copies = self._clock(), self.copies
        for session, there in zip(sessions, held, strict=True):
            if session.cached < there:
                session.holds(self._target.truncate(session.slot, session.cached))
                self.copies += self._restores
        if self.copies > copies:
            self.seconds += self._clock() - began
