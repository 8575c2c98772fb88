"""Which forwards give bit-identical logits, and the shape of decodes that follows from it.

A row's logits depend on the forward around it: kernels differ by row count, attention is split by
how many cells a forward sees, and what they round differently the next layers amplify. Plain and
speculative decoding then part at near-ties. In strict use every forward, prefill included, is of
one class that was found to agree bit for bit. Keys, values and logits are then a function of the
tokens alone, whatever was drafted, shared, reused or chunked. What is claimed is what was probed.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from localspec.control import scheduler
from localspec.control.forwards import Layout
from localspec.engine.probe import REACH, READ_ROWS, Probe, Stand, Trial, shared, sizes, window
from localspec.engine.rollback import Rollback, rereading
from localspec.errors import NoRoom
from localspec.types import Backend, Floats, Row, Sharing, Token

BORDER = 256
"""Cells by which llama.cpp pads what attention sees (`llama_kv_cache::get_n_kv`)."""
FIRST_LINE, NEAR_LINES = 64, (2 * BORDER, BORDER)
"""Where rows are compared in any case. From 512 cells on, attention takes another path for single
rows on a CPU."""
EVERYWHERE = 1 << 30
"""Cells of a class that was probed as far as the context goes."""

_MULTIPLES = (1, 2, 4, 8, 16)
_CONTEXT, _SIZES = 48, (1, 2, 4, 8)
"""Where and for which row counts `standard` tells how far logits differ."""


@dataclass(frozen=True, slots=True)
class Shape:
    """How rows may be put into one forward.

    multiple: Every session's rows are padded to a multiple of this.
    max_rows: Most rows of a forward.
    bitwise: All such forwards agree bit for bit.
    detail: Says it to people.
    border: The rows of a session stay in a block of so many cells (`scheduler.room`); 0: anywhere.
    alone: A forward has rows of one session only.
    cells: How far a context was probed; nothing is drafted behind it.
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
        """Whether rows that nobody asked for may be added to a forward."""
        free = self.multiple == 1 and not self.border and not self.alone
        return free and self.rollback == "trim"

    def room(self, start: int) -> int:
        """Rows of one session from position `start` on that one forward may hold."""
        within = scheduler.room(start, multiple=self.multiple, border=self.border)
        return min(within, self.max_rows // self.multiple * self.multiple)


def layout_of(target: Backend, shape: Shape) -> Layout:
    """What decodes of such a target are made into."""
    if shape.alone:
        return "apart"
    streams = isinstance(target, Sharing) and target.shared_cells is None
    return "streams" if streams or shape.rollback == "restore" else "shared"


def strict(
    target: Backend,
    *,
    rollback: Rollback = "trim",
    patience: Callable[[], bool] = lambda: True,
    cells: int = EVERYWHERE,
) -> Shape:
    """The cheapest class of forwards that agree bit for bit. Leaves every slot empty.

    Near lines are always probed, in every slot; farther ones while `patience` gives True, and those
    at which a cheaper class failed. What remains is for `farther`. Where no class is found,
    `bitwise` is False and speculation must stay off.

    Args:
        target: With empty slots and, in strict use, a KV stream for each.
        rollback: How its memory goes back; nothing is probed where it does not.
        patience: Asked before each line that is farther than the near ones.
        cells: Where they end in any case: a slot is not read farther.
    """
    if rollback == "none":
        return _unforgetting(target)
    probe = Probe(rereading(target, rollback))
    best: Shape | None = None
    failed = 0
    try:
        for tried in candidates(rollback):
            found = _near(probe, tried)
            while found and (line := next_line(found, target.context)):
                if line + REACH > cells or (line > failed and not patience()):
                    return found
                *_, reached = (None, *_line(probe, found, line, _far_slots(target)))
                if reached is None:
                    failed = max(failed, line)
                    break
                found = reached
            if found and found.cells == EVERYWHERE:
                return found
            if found and (best is None or found.cells > best.cells):
                best = found
        return best or _no_class(probe, rollback)
    finally:
        probe.close()


def candidates(rollback: Rollback = "trim") -> Iterator[Shape]:
    """Classes, the cheapest first: as free as possible, then few rows with many behind them.

    Those of few rows or of one size leave no place for a second session, so they are alone. A state
    has read padding as it reads all else, so that only classes without padding are for it.
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

    They double, because a kernel is chosen by the order of magnitude; the last one that the context
    holds is always among them.
    """
    if shape.cells == EVERYWHERE:
        return None
    line = 2 * BORDER
    while line <= shape.cells:
        line *= 2
    return min(line, _last_line(context))


def farther(
    target: Backend, shape: Shape, line: int, slots: Sequence[int]
) -> Iterator[Shape | None]:
    """Probe one far line of a class that holds up to there; one forward for each `next`.

    The last of what it gives is the class with what is known then: it reaches farther, or is told
    to end here. Everything before is None.

    Args:
        target: As for `strict`; between two forwards it may do other things, but not in `slots`.
        shape: What is known.
        line: From `next_line`.
        slots: The first is read up to the line; others, if any, share forwards. Not cleared.
    """
    found = None
    for step in _line(Probe(rereading(target, shape.rollback)), shape, line, slots):
        found = step
        yield None
    limit = f"it fails at {line}, and beyond {shape.cells} nothing is drafted"
    yield found or replace(shape, detail=_detail(shape, limit))


def _far_slots(target: Backend) -> list[int]:
    """The last slot reads far, as it does where costs are measured."""
    return list(range(target.n_slots))[::-1]


def _last_line(context: int) -> int:
    return (context - REACH) // BORDER * BORDER


def _near(probe: Probe, tried: Shape) -> Shape | None:
    """Try a class near the first lines, in every slot, and with slots at different lines."""
    context, slots = probe.target.context, range(probe.target.n_slots)
    lines = [line for line in (*NEAR_LINES, FIRST_LINE) if line + REACH <= context]
    probe.forget()
    for index, line in enumerate(lines):
        # All slots read up to the first border; farther, and before it, one stands for them.
        mine = slots if line == min(BORDER, lines[0]) else slots[:1]
        first, *others = slots
        nearer = lines if len(lines) == 1 else lines[index + 1 :]
        beside = zip(others, itertools.cycle(nearer), strict=False)
        company = [Stand(*stand) for stand in beside] if not tried.alone else []
        tries = [window(tried, line, mine)]
        if index == 0 or line in NEAR_LINES:
            tries.append(sizes(tried, line, mine, most=8 if index else READ_ROWS))
        if not (
            _agree(probe, tried, [Stand(slot, line) for slot in mine], tries)
            and _agree(probe, tried, company, [shared(tried, [Stand(first, line), *company])])
        ):
            return None
    if not lines:
        return None
    return _reaching(tried, EVERYWHERE if lines[0] >= _last_line(context) else lines[0])


def _agree(
    probe: Probe, tried: Shape, stands: Sequence[Stand], tries: Sequence[Iterable[Trial]]
) -> bool:
    """Whether forwards of a class agree, once these slots stand where they should."""
    for _ in probe.read(stands):
        pass
    return all(probe.agree(trial, tried) for trial in itertools.chain(*tries))


def _line(probe: Probe, shape: Shape, line: int, slots: Sequence[int]) -> Iterator[Shape | None]:
    """Probe a far line; one forward for each `next`. The last is the class that reaches it."""
    first, *others = slots
    stands = [] if shape.alone else [Stand(slot, FIRST_LINE) for slot in others]
    probe.forget()
    trials = itertools.chain(
        window(shape, line, [first]),
        sizes(shape, line, [first]),
        shared(shape, [Stand(first, line), *stands]),
    )
    try:
        for _ in probe.read([Stand(first, line), *stands]):
            yield None
        for trial in trials:
            if not probe.agree(trial, shape):
                return
            yield None
    except NoRoom:  # so far no text goes either
        return
    whole = line >= _last_line(probe.target.context)
    yield _reaching(shape, EVERYWHERE if whole else line)


def _no_class(probe: Probe, rollback: Rollback) -> Shape:
    """No class; whether single rows that are alone in a forward agree at least."""
    plainly = _near(probe, Shape(1, 1, alone=True)) is not None
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
    """For a memory that cannot go back: whatever was decoded there, stays."""
    detail = "not probed, for this model's memory cannot forget rows; nothing is drafted"
    return Shape(1, target.max_rows, "none", detail=detail)


def standard(target: Backend, *, rollback: Rollback = "trim") -> Shape:
    """Any rows in any forward, with a word on how far their logits differ. Leaves slot 0 empty."""
    if rollback == "none":
        return _unforgetting(target)
    context, sizes = _CONTEXT, _SIZES
    span = max(sizes)
    if context + span > target.context:
        return Shape(1, target.max_rows, rollback, detail="context too short to probe")
    target = rereading(target, rollback)
    _read(target, context)
    single = _replay(target, context, [1], span)
    differences = {
        size: float(np.abs(single - _replay(target, context, [size], span)).max()) for size in sizes
    }
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


def least_multiple(target: Backend, rollback: Rollback = "trim") -> int:
    """A class of forwards has no smaller multiple: so few rows have other bits. Empties slot 0."""
    sizes = [*_SIZES]
    most = sizes.pop()
    if _CONTEXT + most > target.context:
        return 1
    target = rereading(target, rollback)
    _read(target, _CONTEXT)
    many = _replay(target, _CONTEXT, [most], most)
    agree = [size for size in sizes if (_replay(target, _CONTEXT, [size], most) == many).all()]
    target.truncate(0, 0)
    return min(agree, default=most)


def _tokens(target: Backend, count: int) -> list[Token]:
    """The same random tokens in every call; a longer list begins like a shorter one."""
    tokens: list[Token] = np.random.default_rng(0).integers(0, target.n_vocab, count).tolist()
    return tokens


def _read(target: Backend, context: int) -> None:
    """Put the first `context` tokens into slot 0, in forwards that any target can take."""
    tokens = _tokens(target, context)
    target.truncate(0, 0)
    for start in range(0, context, READ_ROWS):
        part = tokens[start : start + READ_ROWS]
        target.decode([Row(token, start + index, 0) for index, token in enumerate(part)])
    target.checkpoint(0)


def _replay(target: Backend, context: int, sizes: Sequence[int], span: int) -> Floats:
    """Logits (span, n_vocab) of the tokens after `context` read ones, in forwards of `sizes`."""
    tokens = _tokens(target, context + span)
    target.truncate(0, context)
    found = []
    start = context
    forwards = itertools.cycle(sizes)
    while start < context + span:
        size = next(forwards)
        part = tokens[start : start + size]
        padded = part + tokens[-1:] * (size - len(part))
        rows = [Row(token, start + index, 0, True) for index, token in enumerate(padded)]
        found.append(target.decode(rows)[: len(part)].copy())
        start += len(part)
        target.truncate(0, start)
    return np.concatenate(found)
