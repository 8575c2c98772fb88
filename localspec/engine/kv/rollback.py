"""How a memory goes back: cell by cell, to states that were kept, or not at all.

Keys and values stand in cells, one for each token, and the last ones can be forgotten. A recurrent
or hybrid model reads its text into a state of fixed size. With some of these models, a forward also
leaves the states before its last rows (snapshots, llama.cpp's `n_rs_seq`); to go back to one costs
nothing. Otherwise only a copy brings a state back (checkpoint). Then `Backend.truncate` may go back
farther than it was asked to, to the latest copy, and the tokens between are read again: by a
session with its next rows, elsewhere by `RereadingBackend`.
"""

from __future__ import annotations

import ctypes
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

from localspec.control.forwards import moves, taken_back
from localspec.engine.images import Gap
from localspec.engine.scheduler import Share
from localspec.engine.session import Session
from localspec.types import Backend, Branching, ForwardOutput, Row, Token

Rollback: TypeAlias = Literal["trim", "restore", "none"]
"""How a memory goes back: it trims its last cells, restores a state, or only begins anew."""

_REREAD_ROWS = 32
"""Rows of a forward that reads again."""
_LASTING_TOKENS = 32
"""Fewer tokens are read again as fast as a state is copied."""
STRIDE = 512
"""Tokens after the latest lasting copy until another one is made: a chunk of a prompt, which one
forward reads on most machines."""
MOST_COPIES = 16
"""The most lasting copies of one slot: with distances that double, so many cover any context."""


@runtime_checkable
class RollbackBackend(Protocol):
    """A backend that tells how its memory goes back."""

    rollback: Rollback


def restores(target: Backend) -> bool:
    """Whether its memory is a state, so that `truncate` may go back farther than it is asked to."""
    return isinstance(target, RollbackBackend) and target.rollback == "restore"


def snapshots_of(target: Backend) -> int:
    """How many last tokens a slot can take back after one forward of more rows; 0 for none.

    Found by attribute: this is asked twice a round, and isinstance of a protocol takes 15 us.
    """
    snapshots: int = getattr(target, "snapshots", 0)
    return snapshots


class Snapshots:
    """How far each slot of one context can go back by the states that its latest forward left.

    The states allow one rollback, directly after that forward: a later forward of several slots may
    move the states of other slots without their snapshots.

    Args:
        most: States that a forward leaves of each slot besides the last one.
    """

    def __init__(self, most: int = 0) -> None:
        self.most = most
        self._back: dict[int, int] = {}
        self._pending: set[int] = set()

    def left_by(self, rows: Sequence[Row]) -> None:
        """Note a decode of these rows."""
        if not self.most:
            return
        counts = Counter(row.slot for row in rows)
        if moves(counts, self.most):
            self._back.clear()
        self._back |= taken_back(counts, self.most)
        self._pending -= counts.keys()

    def reach(self, slot: int, tokens: int) -> bool:
        """Whether so many last tokens can be taken back."""
        return 0 < tokens <= self._back.get(slot, 0)

    def use(self, slot: int) -> None:
        """Note such a rollback: the state comes back with the slot's next forward."""
        del self._back[slot]
        self._pending.add(slot)

    def pending(self, slot: int) -> bool:
        """Whether a rollback awaits the slot's next forward."""
        return slot in self._pending

    def lose(self, slot: int) -> None:
        """Note that the slot's state was replaced, or will be shared."""
        self._back.pop(slot, None)
        self._pending.discard(slot)


@dataclass(slots=True)
class Checkpoint:
    """A copy of a slot's state after its first `length` tokens; -1 while it is not valid."""

    length: int
    state: Any


class Checkpoints:
    """The copies of one context: a passing one of each slot, and lasting ones. On the host.

    Lasting copies are made where texts often part: at the borders of turns, and every so many
    tokens. They share `most_bytes`, but each slot may have one, whatever its size. If there is no
    room for another one, the copy is dropped without which the least has to be read again.

    The passing copy is overwritten: a fresh buffer costs more time than writing into it does. A
    lasting one is never changed, so that others may keep it.

    Args:
        most_bytes: Of all lasting copies together, without the first of each slot.
    """

    def __init__(self, most_bytes: int = 0) -> None:
        self.most_bytes = most_bytes
        self._passing: dict[int, Checkpoint] = {}
        self._lasting: dict[int, list[Checkpoint]] = {}

    def has(self, slot: int, length: int, *, lasting: bool) -> bool:
        """Whether there is a copy of this length; with `lasting`, a lasting one."""
        passing = self._passing.get(slot)
        found = any(each.length == length for each in self._lasting.get(slot, ()))
        return found or (not lasting and passing is not None and passing.length == length)

    def begun(self, slot: int, size: int, *, lasting: bool) -> Checkpoint:
        """A copy of `size` bytes, which the caller fills and gives its length."""
        if lasting:
            kept = self._lasting.setdefault(slot, [])
            self._make_room(size, slot)
            found = Checkpoint(-1, (ctypes.c_uint8 * size)())
            kept.append(found)
            return found
        passing = self._passing.get(slot)
        if passing is None or len(passing.state) != size:
            passing = self._passing[slot] = Checkpoint(-1, (ctypes.c_uint8 * size)())
        passing.length = -1
        return passing

    def _make_room(self, size: int, slot: int) -> None:
        """Drop lasting copies until there is room for one more of `slot`, as far as possible."""
        mine = self._lasting[slot]
        while len(mine) >= MOST_COPIES:
            _thin(mine)
        while self._bytes() + size > self.most_bytes:
            fullest = max(self._lasting.values(), key=len)
            if len(fullest) <= (fullest is not mine):
                return
            _thin(fullest)

    def _bytes(self) -> int:
        return sum(len(each.state) for kept in self._lasting.values() for each in kept)

    def latest(self, slot: int, length: int) -> Checkpoint | None:
        """The longest copy of at most `length` tokens."""
        held = [each for each in self.held(slot) if each.length <= length]
        return max(held, key=lambda each: each.length, default=None)

    def held(self, slot: int) -> list[Checkpoint]:
        """The valid copies of a slot: lasting ones, and the passing one."""
        passing = self._passing.get(slot)
        kept = [*self._lasting.get(slot, ()), *([passing] if passing else ())]
        return [each for each in kept if each.length > 0]

    def lasting(self, slot: int) -> tuple[Checkpoint, ...]:
        """The lasting copies of a slot, which others may keep."""
        return tuple(each for each in self._lasting.get(slot, ()) if each.length > 0)

    def taken(self, slot: int) -> tuple[Checkpoint, ...]:
        """Take all copies of a slot away."""
        kept = tuple(self.held(slot))
        self._lasting.pop(slot, None)
        self._passing.pop(slot, None)
        return kept

    def given(self, slot: int, kept: Sequence[Checkpoint]) -> None:
        """Give the slot what `taken` or `lasting` gave, as far as there is room."""
        self._lasting[slot] = []
        self._passing.pop(slot, None)
        for each in sorted({each.length: each for each in kept}.values(), key=lambda it: it.length):
            self._make_room(len(each.state), slot)
            self._lasting[slot].append(each)

    def cut(self, slot: int, length: int) -> None:
        """Drop copies beyond `length`: the text is another one from there on."""
        passing = self._passing.get(slot)
        if passing is not None and passing.length > length:
            passing.length = -1
        kept = self._lasting.get(slot)
        if kept:
            kept[:] = [each for each in kept if 0 < each.length <= length]


def _thin(kept: list[Checkpoint]) -> None:
    """Drop the copy that is missed least."""
    kept.sort(key=lambda each: each.length)
    kept.pop(dispensable([each.length for each in kept]))


def dispensable(lengths: Sequence[int]) -> int:
    """The index of the copy that is missed least, neither the first nor the last.

    Without a copy, up to as much is read again as lies between its two neighbours. That counts less
    the farther the copy is from the end, because texts part most often near their ends. Of fewer
    than three copies, the first goes.
    """
    if len(lengths) < 3:  # noqa: PLR2004 - one between two others
        return 0
    end = lengths[-1]
    gaps = [
        (lengths[at + 1] - lengths[at - 1]) / (1 + end - lengths[at])
        for at in range(1, len(lengths) - 1)
    ]
    return 1 + min(range(len(gaps)), key=gaps.__getitem__)


@dataclass(frozen=True, slots=True)
class Stored:
    """A copy of what a slot held: its memory of `length` tokens, and copies of earlier states."""

    length: int
    state: Any
    checkpoints: tuple[Checkpoint, ...] = ()
    gaps: tuple[Gap, ...] = ()

    @property
    def size(self) -> int:
        """Bytes of all of it."""
        return len(self.state) + sum(len(each.state) for each in self.checkpoints)


class RereadingBackend:
    """A `Backend` over one that may go back too far; it reads the missing tokens again at once.

    For probes and measurements, which go back to any length. They take a checkpoint at a length to
    which they go back often.
    """

    def __init__(self, target: Backend) -> None:
        self.n_vocab, self.n_slots = target.n_vocab, target.n_slots
        self.max_rows = target.max_rows
        self._target = target
        self._tokens: list[list[Token]] = [[] for _ in range(target.n_slots)]

    @property
    def context(self) -> int:
        """The target's own value."""
        return self._target.context

    def decode(self, rows: Sequence[Row]) -> ForwardOutput:
        """Delegate to the target."""
        output = self._target.decode(rows)
        for row in rows:
            self._tokens[row.slot][row.position :] = [row.token]
        return output

    def truncate(self, slot: int, length: int) -> int:
        """Forget everything from `length` on, and no more."""
        held, tokens = self._target.truncate(slot, length), self._tokens[slot]
        del tokens[length:]
        for start in range(held, length, _REREAD_ROWS):
            part = tokens[start : start + _REREAD_ROWS]
            self._target.decode([Row(token, start + at, slot) for at, token in enumerate(part)])
        return length

    def checkpoint(self, slot: int, *, lasting: bool = False) -> None:
        """Delegate to the target."""
        self._target.checkpoint(slot, lasting=lasting)


def rereading(target: Backend, rollback: Rollback) -> Backend:
    """The target, such that it can go back to any length."""
    return RereadingBackend(target) if rollback == "restore" else target


class StateCopies:
    """Takes rejected rows back after a forward, and before it makes the copies that this needs.

    Engine lifetime. `copies` counts states that were copied or brought back since `prepare`, in
    `seconds`; both are 0 where cells can be forgotten.

    Args:
        target: Whose memory it is.
        rollback: How that memory goes back.
        clock: Seconds, monotonic.
    """

    def __init__(self, target: Backend, rollback: Rollback, clock: Callable[[], float]) -> None:
        self._target = target
        # Asked once: to compare a backend with a protocol takes longer than to forget some cells.
        self._branching = target if isinstance(target, Branching) else None
        self._restores = rollback == "restore"
        self._clock = clock
        self.copies, self.seconds = 0, 0.0
        self._latest: dict[int, tuple[Session, int]] = {}
        """By slot: a session, and where its latest lasting copy was made."""

    def prepare(
        self, sessions: Sequence[Session], shares: Sequence[Share], padding: int = 0
    ) -> list[int]:
        """Make the copies that a forward may need. Returns each session's cells after it.

        A state is copied where more nodes may be rejected than snapshots can take back. A lasting
        copy is made where the client's next prompt may part from this one: where reading goes on
        after an earlier turn, at the borders of turns, before the last rows of a prompt, and every
        `STRIDE` tokens.
        """
        self.copies, self.seconds = 0, 0.0
        began = self._clock()
        back = self._back(sessions, shares)
        for session, share in zip(sessions, shares, strict=True) if self._restores else ():
            lasting = session.cached >= _LASTING_TOKENS and self._parting(session, share)
            if share.nodes > back.get(session.slot, 0) or lasting:
                self._target.checkpoint(session.slot, lasting=lasting)
                self.copies += 1
        if self.copies:
            self.seconds = self._clock() - began
        held = [
            session.cached + share.rows for session, share in zip(sessions, shares, strict=True)
        ]
        held[-1] += padding
        return held

    def _parting(self, session: Session, share: Share) -> bool:
        """Whether a later prompt is likely to part from this text where the forward begins."""
        at, latest = session.cached, self._latest.get(session.slot, (None, 0))
        begun = latest[1] if latest[0] is session else 0
        if session.decoding:
            found = at >= begun + STRIDE
        else:
            found = (
                share.tail == session.tail
                or at == session.cached_tokens
                or at in session.request.borders
                or at >= begun + STRIDE
            )
        if found:
            self._latest[session.slot] = session, at
        return found

    def _back(self, sessions: Sequence[Session], shares: Sequence[Share]) -> Mapping[int, int]:
        """How many tokens each slot will be able to take back by snapshots."""
        snapshots = snapshots_of(self._target)
        if not snapshots or not any(share.nodes for share in shares):
            return {}
        pairs = zip(sessions, shares, strict=True)
        return taken_back({session.slot: share.rows for session, share in pairs}, snapshots)

    def settle(self, sessions: Sequence[Session], held: Sequence[int]) -> None:
        """Take each session back from `held` cells to its text, after a forward."""
        began, copies = self._clock(), self.copies
        for session, there in zip(sessions, held, strict=True):
            if (wanted := session.cached) < there:
                session.holds(self._back_to(session, wanted))
                self.copies += session.cached < wanted
        if self.copies > copies:
            self.seconds += self._clock() - began

    def _back_to(self, session: Session, length: int) -> int:
        """Forget what is not the session's text; returns how many tokens remain."""
        if self._branching is not None:
            return self._branching.keep(session.slot, session.row, length)
        return self._target.truncate(session.slot, length)
