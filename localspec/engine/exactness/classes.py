"""Which forwards give bit-identical logits, and the shape of decodes that follows from it.

A row's logits depend on the forward around it: kernels differ by row count, attention is split by
how many cells a forward sees, and later layers amplify the differences in rounding. Plain and
speculative decoding then part at near-ties. In strict use every forward, prefill included, is of
one class that was found to agree bit for bit. Keys, values and logits are then a function of the
tokens alone, whatever was drafted, shared, reused or chunked. Only what was probed is claimed.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from localspec.control.forwards import Layout
from localspec.engine import scheduler
from localspec.engine.exactness.probe import (
    REACH,
    READ_ROWS,
    Probe,
    SlotPrefix,
    shared,
    sizes,
    window,
)
from localspec.engine.exactness.repeat import read, replay
from localspec.engine.kv.rollback import Rollback, rereading
from localspec.engine.pieces import Pieces, whole
from localspec.errors import NoRoom
from localspec.types import Backend, ForwardOutput, Row, Sharing

BORDER = 256
"""Cells by which llama.cpp pads what attention sees (`llama_kv_cache::get_n_kv`)."""
FIRST_LINE, NEAR_LINES = 64, (2 * BORDER, BORDER)
"""Lines (places in a text) around which rows are always compared. From 512 cells on, attention
takes another path for single rows on a CPU."""
EVERYWHERE = 1 << 30
"""Cells of a class that was probed as far as the context goes."""

_MULTIPLES = (1, 2, 4, 8, 16)
_CONTEXT, _SIZES = 48, (1, 2, 4, 8)
"""Tokens after which, and row counts for which, `standard` finds how far logits differ."""


@dataclass(frozen=True, slots=True)
class Shape:
    """How rows may be put into one forward.

    multiple: Every session's rows are padded to a multiple of this.
    max_rows: Most rows of a forward.
    bitwise: All such forwards agree bit for bit.
    detail: A description for people.
    border: The rows of a session stay in a block of so many cells (`scheduler.room`); 0: anywhere.
    alone: A forward has rows of one session only.
    cells: How far into the context it was probed; nothing is drafted beyond.
    """

    multiple: int = 1
    max_rows: int = 1 << 30
    rollback: Rollback = "trim"
    bitwise: bool = False
    detail: str = "not probed"
    border: int = 0
    alone: bool = False
    cells: int = EVERYWHERE

    @property
    def mixes(self) -> bool:
        """Whether padding rows may be added to a forward."""
        free = self.multiple == 1 and not self.border and not self.alone
        return free and self.rollback == "trim"

    def room(self, start: int) -> int:
        """Rows of one session from position `start` on that one forward may hold."""
        within = scheduler.room(start, multiple=self.multiple, border=self.border)
        return min(within, self.max_rows // self.multiple * self.multiple)


def layout_of(target: Backend, shape: Shape) -> Layout:
    """The layout of such a target's forwards."""
    if shape.alone:
        return "apart"
    streams = isinstance(target, Sharing) and target.shared_cells is None
    return "streams" if streams or shape.rollback == "restore" else "shared"


class Step(NamedTuple):
    """The progress of a search for a class: forwards made so far, and forwards in all.

    The total grows where a class fails and the next one is tried.
    """

    done: int
    total: int


def strict(
    target: Backend,
    *,
    rollback: Rollback = "trim",
    patience: Callable[[], bool] = lambda: True,
    cells: int = EVERYWHERE,
    tell: Callable[[Step], None] = lambda _: None,
) -> Shape:
    """The cheapest class of forwards that agree bit for bit, as `Search` finds it, at once.

    Leaves every slot empty; `tell` hears of each forward.
    """
    search = Search(target, rollback=rollback, patience=patience, cells=cells)
    steps = search.pieces()
    while True:
        try:
            next(steps)
        except StopIteration as done:
            found: Shape = done.value
            return found
        tell(search.step)


class Search:
    """Looks for the cheapest class of forwards that agree bit for bit.

    Near lines are always probed, in every slot. Farther ones are probed while `patience` gives
    True, and up to a line at which a cheaper class failed. The others are left to `farther`. Where
    no class is found, `bitwise` is False and speculation must stay off.

    Args:
        target: With empty slots and, in strict use, a KV stream for each.
        rollback: How its memory goes back; nothing is probed where it does not.
        patience: Asked before each line that is farther than the near ones; by default all are
            probed.
        cells: No slot is read farther than this, so lines beyond are not probed.
    """

    def __init__(
        self,
        target: Backend,
        *,
        rollback: Rollback = "trim",
        patience: Callable[[], bool] | None = None,
        cells: int = EVERYWHERE,
    ) -> None:
        self.step = Step(0, 0)
        self._target, self._rollback = target, rollback
        self._patience, self._cells = patience, cells
        self._probe = Probe(rereading(target, rollback))
        if rollback != "none":
            self._expect(next(candidates(rollback)))

    def vacate(self) -> None:
        """Give all slots away, empty, until the next piece: what they held is read again then."""
        self._probe.vacate()

    def pieces(self) -> Pieces[Shape]:
        """The search, forward by forward; `step` is its progress. Leaves every slot empty.

        If the generator is closed early, it does not touch the target, which may be gone.
        """
        if self._rollback == "none":
            return _unforgetting(self._target)
        try:
            found = yield from self._found()
        except Exception:
            self._probe.close()
            raise
        self._probe.close()
        return found

    def _found(self) -> Pieces[Shape]:
        probe, context = self._probe, self._target.context
        best: Shape | None = None
        failed = 0
        for tried in candidates(self._rollback):
            self._expect(tried)
            found = yield from self._counted(_near(probe, tried))
            while found and (line := next_line(found, context)):
                if line + REACH > self._cells or (line > failed and not self._goes_on()):
                    return found
                far = _line(probe, found, line, _far_slots(self._target))
                reached = yield from self._counted(far)
                if reached is None:
                    failed = max(failed, line)
                    break
                found = reached
            if found and found.cells == EVERYWHERE:
                return found
            if found and (best is None or found.cells > best.cells):
                best = found
        return best or (yield from _no_class(probe, self._rollback))

    def _goes_on(self) -> bool:
        return self._patience is None or self._patience()

    def _expect(self, tried: Shape) -> None:
        """Set how many forwards there are in all if this class holds."""
        blank = CountingBackend(self._target)
        total = self.step.done + sum(1 for _ in _near(Probe(blank), tried))
        reached = _reaching(tried, min(NEAR_LINES[0], _last_line(blank.context)))
        while self._patience is None and (line := next_line(reached, blank.context)):
            if line + REACH > self._cells:
                break
            total += sum(1 for _ in _line(Probe(blank), tried, line, _far_slots(blank)))
            reached = _reaching(tried, EVERYWHERE if line >= _last_line(blank.context) else line)
        self.step = Step(self.step.done, total)

    def _counted(self, pieces: Pieces[Shape | None]) -> Pieces[Shape | None]:
        """Run these pieces, and count every forward as a step."""
        while True:
            try:
                next(pieces)
            except StopIteration as done:
                found: Shape | None = done.value
                return found
            made = self.step.done + 1
            self.step = Step(made, max(self.step.total, made))
            yield


class CountingBackend:
    """A `Backend` that computes nothing and on which all rows agree, for counting forwards."""

    n_vocab = 1

    def __init__(self, target: Backend) -> None:
        self.n_slots, self.max_rows, self.context = target.n_slots, target.max_rows, target.context

    def decode(self, rows: Sequence[Row]) -> ForwardOutput:
        """Zeros as logits."""
        return ForwardOutput(np.zeros((sum(row.wants_logits for row in rows), 1), np.float32))

    def truncate(self, _slot: int, length: int) -> int:
        """Forget nothing, as nothing is held."""
        return length

    def checkpoint(self, slot: int, *, lasting: bool = False) -> None:
        """There is nothing to keep."""


def candidates(rollback: Rollback = "trim") -> Iterator[Shape]:
    """Classes, the cheapest first: those with the fewest bounds, then with the smallest multiples.

    Classes of few rows or of one size have no place for a second session, so they are alone. A
    state cannot forget padding that it has read, so only classes without padding are for it.
    """
    if rollback == "restore":
        for each in candidates():
            if each.multiple == 1:
                yield replace(each, rollback=rollback)
        return
    ways = [(0, False), (BORDER, False), (0, True), (BORDER, True)]
    for border, alone in ways:
        for most in (32, 16):
            for multiple in _MULTIPLES:
                if multiple < most:
                    yield Shape(multiple, most, border=border, alone=alone, bitwise=True)
    for border, _ in ways[2:]:
        for multiple, most in ((16, 16), (2, 8), (4, 8), (1, 8), (8, 8), (2, 4), (1, 4), (4, 4)):
            yield Shape(multiple, most, border=border, alone=True, bitwise=True)


def next_line(shape: Shape, context: int) -> int | None:
    """The next far line to probe; None where the class holds everywhere.

    Lines double, because a kernel is chosen by the order of magnitude. The last one that the
    context holds is always among them.
    """
    if shape.cells == EVERYWHERE:
        return None
    line = 2 * BORDER
    while line <= shape.cells:
        line *= 2
    return min(line, _last_line(context))


def farther(
    target: Backend, shape: Shape, line: int, slots: Sequence[int]
) -> Generator[Shape | None, None, None]:
    """Probe one far line of a class that holds up to there; one forward for each `next`.

    Yields None after each forward, and in the end the class with what was found: it reaches
    farther, or its detail says where it ends.

    Args:
        target: As for `strict`; between two forwards it may do other things, but not in `slots`.
        shape: The class, as far as it is known.
        line: From `next_line`.
        slots: The first is read up to the line; others, if any, share forwards. Not cleared.
    """
    found = yield from _line(Probe(rereading(target, shape.rollback)), shape, line, slots)
    limit = f"it fails at {line}, and beyond {shape.cells} nothing is drafted"
    yield found or replace(shape, detail=_detail(shape, limit))


def _far_slots(target: Backend) -> list[int]:
    """All slots, the last one first: that one reads far, as it does where costs are measured."""
    return list(range(target.n_slots))[::-1]


def _last_line(context: int) -> int:
    return (context - REACH) // BORDER * BORDER


def _near(probe: Probe, tried: Shape) -> Pieces[Shape | None]:
    """Probe a class at the near lines, in every slot, and with slots at different lines."""
    context, slots = probe.target.context, range(probe.target.n_slots)
    lines = [line for line in (*NEAR_LINES, FIRST_LINE) if line + REACH <= context]
    probe.forget()
    for index, line in enumerate(lines):
        # All slots read up to the first border; farther, and before it, one stands for them.
        mine = slots if line == min(BORDER, lines[0]) else slots[:1]
        first, *others = slots
        nearer = lines if len(lines) == 1 else lines[index + 1 :]
        beside = zip(others, itertools.cycle(nearer), strict=False)
        company = [SlotPrefix(*stand) for stand in beside] if not tried.alone else []
        tries = [window(tried, line, mine)]
        if index == 0 or line in NEAR_LINES:
            tries.append(sizes(tried, line, mine, most=8 if index else READ_ROWS))
        stands = [SlotPrefix(slot, line) for slot in mine]
        if not (yield from probe.compare(stands, itertools.chain(*tries), tried)):
            return None
        here = SlotPrefix(first, line)
        together = shared(tried, [here, *company])
        if not (yield from probe.compare(company, together, tried, [here])):
            return None
    if not lines:
        return None
    return _reaching(tried, EVERYWHERE if lines[0] >= _last_line(context) else lines[0])


def _line(probe: Probe, shape: Shape, line: int, slots: Sequence[int]) -> Pieces[Shape | None]:
    """Probe a far line; the class that reaches it, if this one does."""
    first, *others = slots
    stands = [] if shape.alone else [SlotPrefix(slot, FIRST_LINE) for slot in others]
    probe.forget()
    trials = itertools.chain(
        window(shape, line, [first]),
        sizes(shape, line, [first]),
        shared(shape, [SlotPrefix(first, line), *stands]),
    )
    try:
        agreed = yield from probe.compare([SlotPrefix(first, line), *stands], trials, shape)
    except NoRoom:  # no text goes so far either
        agreed = False
    whole_context = line >= _last_line(probe.target.context)
    return _reaching(shape, EVERYWHERE if whole_context else line) if agreed else None


def _no_class(probe: Probe, rollback: Rollback) -> Pieces[Shape]:
    """The shape where no class was found; probes whether at least single rows alone agree."""
    plainly = (yield from _near(probe, Shape(1, 1, alone=True))) is not None
    detail = "no class of forwards agrees bit for bit on this device; nothing is drafted, " + (
        "and each request is alone in its forwards, as single rows agree there"
        if plainly
        else "and what else is running may show, as not even single rows agree"
    )
    return Shape(1, probe.target.max_rows, rollback, detail=detail, alone=plainly)


def _reaching(shape: Shape, cells: int) -> Shape:
    limit = "" if cells == EVERYWHERE else f"probed up to {cells} tokens, beyond nothing is drafted"
    return replace(shape, cells=cells, detail=_detail(shape, limit))


def _detail(shape: Shape, limit: str) -> str:
    rows = (
        f"forwards of {shape.multiple} rows"
        if shape.multiple == shape.max_rows
        else f"multiples of {shape.multiple} up to {shape.max_rows} rows"
    )
    inside = f" that cross no line of {shape.border} cells" if shape.border else ""
    alone = ", one request in a forward" if shape.alone else ""
    return f"bit-identical for {rows}{inside}{alone}" + (f"; {limit}" if limit else "")


def _unforgetting(target: Backend) -> Shape:
    """The class of a memory that cannot forget: plain decoding, not probed."""
    detail = "not probed, for this model's memory cannot forget rows; nothing is drafted"
    return Shape(1, target.max_rows, "none", detail=detail)


def standard(target: Backend, *, rollback: Rollback = "trim") -> Shape:
    """A shape of any rows; its detail says how far their logits differ. Leaves slot 0 empty."""
    return whole(differing(target, rollback))


def differing(target: Backend, rollback: Rollback) -> Pieces[Shape]:
    """`standard`, forward by forward, in slot 0, which is empty and held for this."""
    if rollback == "none":
        return _unforgetting(target)
    context, sizes = _CONTEXT, _SIZES
    span = max(sizes)
    if context + span > target.context:
        return Shape(1, target.max_rows, rollback, detail="context too short to probe")
    target = rereading(target, rollback)
    yield from read(target, context)
    single = yield from replay(target, context, 1, span)
    differences = {}
    for size in sizes:
        logits = yield from replay(target, context, size, span)
        differences[size] = float(np.abs(single - logits).max())
    target.truncate(0, 0)
    same = [size for size, difference in differences.items() if difference == 0.0]
    detail = (
        f"1 to {span} rows agree bit for bit"
        if len(same) == len(sizes)
        else f"{', '.join(map(str, same))} rows agree, others differ by up to "
        f"{max(differences.values()):.2f}"
    )
    bitwise = len(same) == len(sizes)
    return Shape(1, target.max_rows, rollback, bitwise=bitwise, detail=detail)


def least_multiple(target: Backend, rollback: Rollback = "trim") -> Pieces[int]:
    """The smallest multiple that a class of forwards can have: fewer rows have other bits.

    Probed in slot 0, which is empty before and afterwards.
    """
    sizes = [*_SIZES]
    most = sizes.pop()
    if _CONTEXT + most > target.context:
        return 1
    target = rereading(target, rollback)
    yield from read(target, _CONTEXT)
    many = yield from replay(target, _CONTEXT, most, most)
    least = most
    for size in reversed(sizes):
        few = yield from replay(target, _CONTEXT, size, most)
        least = size if (few == many).all() else least
    target.truncate(0, 0)
    return least
