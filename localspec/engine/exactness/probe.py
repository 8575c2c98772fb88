"""Compares forwards of one class: whether every row has the same bits in all of them.

All slots hold the same tokens, so there is one right answer for each position. The first forward
with a position sets its bits, and every other has to agree, whatever its size, the row's place in
it, its slot, and the slots that share it. A row attends to the keys and values before it, so these
are compared as well. So is the state from which the logits are computed, where the target shows it:
its numbers are rounded before the output's product, so that a difference in the last bit shows in
the logits of only one of 400 rows (LFM2's convolution, one row against several).
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

import numpy as np

from localspec.engine.pieces import Pieces
from localspec.types import Backend, Row, Token

READ_ROWS = 32
"""Rows of a forward that reads the tokens before the compared rows. Every slot is read by the same
forwards, which begin at multiples of this, so that all slots start from the same bits."""
_BEYOND = 8
"""Positions after a line that are compared."""
REACH = _BEYOND + READ_ROWS
"""Cells after a line that a window may need."""


class Class(Protocol):
    """The class that is tried: `engine/exactness/classes.py`'s Shape."""

    @property
    def multiple(self) -> int:
        """Rows of a session in one forward are padded to a multiple of this."""

    @property
    def max_rows(self) -> int:
        """Most rows of a forward; at most READ_ROWS."""

    @property
    def alone(self) -> bool:
        """Whether a forward has rows of one slot only."""

    def room(self, start: int) -> int:
        """Rows from `start` on that one forward may hold."""


class Part(NamedTuple):
    """The rows of one slot in a forward: `n` tokens from position `start` on."""

    slot: int
    start: int
    n: int


Trial = Sequence[Part]
"""One forward."""


class SlotPrefix(NamedTuple):
    """A slot, and the line near which it stands."""

    slot: int
    line: int


@dataclass
class Probe:
    """Slots of a target, what they hold, and which bits were seen at which position.

    The slots are its own while it works; `close` leaves them empty. Sessions may have them
    between two forwards, after `vacate`: then the tokens before the compared rows are read again.
    """

    target: Backend
    held: dict[int, int] = field(default_factory=dict)
    _read: dict[int, int] = field(default_factory=dict)
    _seen: dict[int, bytes] = field(default_factory=dict)
    _vacated: int = 0

    def __post_init__(self) -> None:
        size = self.target.context
        self._tokens: list[Token] = (
            np.random.default_rng(0).integers(0, self.target.n_vocab, size).tolist()
        )

    def forget(self) -> None:
        """Forget the bits that were seen, before another class is tried."""
        self._seen.clear()

    def close(self) -> None:
        """Leave every slot that was used empty."""
        for slot in self.held:
            self.target.truncate(slot, 0)
        self.held.clear()
        self._read.clear()

    def vacate(self) -> None:
        """Give the slots away, empty, until the next forward."""
        self.close()
        self._vacated += 1

    def compare(
        self,
        stands: Sequence[SlotPrefix],
        trials: Iterable[Trial],
        shape: Class,
        beside: Sequence[SlotPrefix] = (),
    ) -> Pieces[bool]:
        """Whether these trials of a class agree, after these slots were read up to their lines.

        The slots `beside` have been read before. After `vacate` all are read again, and the trial
        in which that happened is repeated.
        """
        known = self._vacated
        here = all(stand.slot in self.held for stand in beside)
        yield from self.read(stands if here else [*beside, *stands])
        for trial in trials:
            same: bool | None = None
            while same is None:
                while known != self._vacated:
                    known = self._vacated
                    yield from self.read([*beside, *stands])
                same = yield from self.agree(trial, shape)
            if not same:
                return False
        return True

    def read(self, stands: Iterable[SlotPrefix]) -> Pieces[None]:
        """Bring each slot to the beginning of its line's window."""
        known = self._vacated
        for slot, line in stands:
            base = _base(line)
            self._cut(slot, min(base, self._read.get(slot, 0)))
            while self.held[slot] < base:
                self._decode([Part(slot, self.held[slot], READ_ROWS)], 1, wants=False)
                yield
                if self._vacated != known:
                    return
            self.target.checkpoint(slot)
            self._read[slot] = base

    def agree(self, trial: Trial, shape: Class) -> Pieces[bool | None]:
        """Decode a trial; whether every row has the bits that were seen before at its position.

        None if the slots were vacated before it was decoded.
        """
        known = self._vacated
        for slot, start, _ in trial:
            while (at := self.held[slot]) < start:
                part = Part(slot, at, min(start - at, shape.room(at)))
                if not self._same([part], shape.multiple):
                    return False
                yield
                if self._vacated != known:
                    return None
            self._cut(slot, start)
        same = self._same(trial, shape.multiple)
        yield
        return same

    def _same(self, trial: Trial, multiple: int) -> bool:
        found = self._decode(trial, multiple, wants=True)
        places = [place for part in trial for place in range(part.start, part.start + part.n)]
        return all(
            self._seen.setdefault(place, bits) == bits
            for place, bits in zip(places, found, strict=True)
        )

    def _decode(self, trial: Trial, multiple: int, *, wants: bool) -> list[bytes]:
        rows: list[Row] = []
        real: list[bool] = []
        for slot, start, count in trial:
            tokens = self._tokens[start : start + count]
            tokens += tokens[-1:] * (-count % multiple)
            rows += (Row(token, start + index, slot, wants) for index, token in enumerate(tokens))
            real += [index < count for index in range(len(tokens))]
        logits, shown, _ = self.target.decode(rows)
        states = logits[:, :0] if shown is None else shown
        found = [
            hashlib.blake2b(row.tobytes() + state.tobytes(), digest_size=16).digest()
            for row, state in itertools.compress(zip(logits, states, strict=True), real)
        ]
        for slot, start, count in trial:
            self.held[slot] = start + count
            if count % multiple:
                self.target.truncate(slot, start + count)
        return found

    def _cut(self, slot: int, length: int) -> None:
        self.target.truncate(slot, length)
        self.held[slot] = length


def window(shape: Class, line: int, slots: Sequence[int]) -> Iterator[Trial]:
    """Trials around a line, in each slot, by the largest forwards."""
    for slot in slots:
        start, end = _base(line), line + _BEYOND
        while start < end:
            count = min(end - start, shape.room(start))
            yield [Part(slot, start, count)]
            start += count


def sizes(
    shape: Class, line: int, slots: Sequence[int], *, most: int = READ_ROWS
) -> Iterator[Trial]:
    """Trials around a line whose window the slots hold: plain rows and every size, slots in turn.

    With more sizes than `most`, only every second one is tried.

    Trials go backwards, so that every forward finds the cells before it. Their rows end at the
    line, cross it (if the class allows that) or begin where plain rows first see beyond it.
    """
    multiple, turn = shape.multiple, line // (8 * READ_ROWS)
    plain = {line + _BEYOND // 2, line, line - 1, line - multiple, line - multiple + 1}
    wanted = [(start, 1) for start in plain]
    every = range(multiple, shape.max_rows + 1, multiple)
    for index, size in enumerate(every[:: 2 if len(every) > most else 1], start=turn):
        starts = [
            start
            for start in (line - size, line - size // 2, line - multiple + 1)
            if shape.room(start) > size - multiple
        ]
        wanted.append((starts[index % len(starts)], size - multiple // 2 * (index % 2)))
    wanted.sort(reverse=True)
    for index, (start, count) in enumerate(wanted, start=turn):
        begin = min(max(_base(line), start), line + _BEYOND)
        yield [Part(slots[index % len(slots)], begin, min(count, shape.room(begin)))]


def shared(shape: Class, stands: Sequence[SlotPrefix]) -> Iterator[Trial]:
    """Forwards of several slots near different lines: as few and as many rows as the class has."""
    multiple, most = shape.multiple, shape.max_rows
    first, *others = stands
    ways = itertools.product(
        (first.line - multiple + 1, first.line - multiple),
        ((1, 1), (multiple + 1, 1), (1, multiple + 1), (most - multiple, multiple)),
    )
    for (start, (mine, theirs)), other in zip(ways, itertools.cycle(others), strict=False):
        parts = [Part(first.slot, start, mine), Part(other.slot, other.line, theirs)]
        yield from _fitting(shape, parts)
    everybody = [Part(slot, line, 1) for slot, line in stands]
    yield from _fitting(shape, everybody[: most // multiple])


def _fitting(shape: Class, parts: Sequence[Part]) -> Iterator[Trial]:
    """The forward of these parts, if the class has such a one."""
    trial = [Part(slot, start, min(count, shape.room(start))) for slot, start, count in parts]
    rows = sum(part.n + -part.n % shape.multiple for part in trial)
    if len(trial) > 1 and rows <= shape.max_rows:
        yield trial


def _base(line: int) -> int:
    """Where the window of a line begins; 0 is possible."""
    return max(0, line // READ_ROWS * READ_ROWS - READ_ROWS)
