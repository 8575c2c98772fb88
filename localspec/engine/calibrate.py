"""Measures forwards and drafts one by one while the worker is idle."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from localspec.control.costs import STEADY
from localspec.control.round import Drafted
from localspec.engine.pieces import Pieces
from localspec.engine.sampling import Sampler
from localspec.engine.speculation.states import feed
from localspec.engine.step import Engine
from localspec.errors import NoRoom
from localspec.forward_counts import ForwardCounts
from localspec.types import (
    Backend,
    Computing,
    Draft,
    Drafter,
    DraftRequest,
    ForwardOutput,
    Row,
    SamplingParams,
    Token,
)

FAR_TOKENS = 1024
"""Attended tokens of a far measurement: attention shows, and reading them takes seconds only."""
REPEATS, _AGAIN = 3, 4
"""Measurements of each row count, by which one stolen time slice is outvoted; and how often row
counts that still disagree are measured again at most."""
_SURPRISE = 0.1
"""A forward that is off by a tenth was measured in a bad moment, or those before it were."""
_FAR_ROWS = (1, 4, 16)
_CHUNK_ROWS = 64
"""Rows of one forward while far tokens are read: requests may wait for it."""
_READ_TOKENS, _STEPS = 64, 4
"""A rehearsed draft reads so many tokens, and then drafts so many without reading."""


_JUDGED_ROWS = 32
"""Rows of a long forward that want logits."""

_CHANGING_ROWS = (1, 4)
"""Row counts between which changes are measured."""
FREE = 0.02
"""A change that takes less than this share of a forward cannot be told from noise."""
_PRIME = 7919


def token(place: int, n_vocab: int) -> Token:
    """The token at a place of a meaningless text. Tokens differ, because experts depend on them."""
    return place * _PRIME % n_vocab


class Timed:
    """A target whose forwards are told to `measured`, as `Costs.measured` takes them."""

    def __init__(
        self,
        target: Backend,
        measured: Callable[[int, float, float, int], object],
        clock: Callable[[], float],
    ) -> None:
        self.n_vocab, self.n_slots = target.n_vocab, target.n_slots
        self.context, self.max_rows = target.context, target.max_rows
        self._target, self._measured, self._clock = target, measured, clock
        self._rows = self._alike = 0

    def decode(self, rows: Sequence[Row]) -> ForwardOutput:
        """Delegate to the target."""
        self._alike = self._alike + 1 if len(rows) == self._rows else 0
        self._rows = len(rows)
        began = self._clock()
        output = self._target.decode(rows)
        seconds = self._clock() - began
        self._measured(len(rows), seconds, sum(row.position for row in rows), self._alike)
        return output

    def truncate(self, slot: int, length: int) -> int:
        """Delegate to the target."""
        return self._target.truncate(slot, length)

    def checkpoint(self, slot: int, *, lasting: bool = False) -> None:
        """Delegate to the target."""
        self._target.checkpoint(slot, lasting=lasting)


class MeasuredForward(NamedTuple):
    """One forward of the target, as `Costs.measured` takes it."""

    rows: int
    seconds: float
    attended: int


class MeasuringPlace(NamedTuple):
    """Where to measure: after the tokens that an idle slot holds, which stay."""

    slot: int
    held: int


def place(engine: Engine) -> MeasuringPlace:
    """The end of the last slot as it is now; without room if memory cannot trim what it holds."""
    slot = engine.target.n_slots - 1
    kept = engine.kept(slot)
    stuck = kept and engine.shape.rollback != "trim"
    return MeasuringPlace(slot, engine.target.context if stuck else kept)  # there is no room then


def warmed(target: Backend, place: MeasuringPlace, rows: int, clock: Callable[[], float]) -> float:
    """Seconds of one forward, right after another one of as many rows. Raises NoRoom."""
    if place.held + rows > target.context:
        raise NoRoom(f"There is no room for {rows} rows behind {place.held} tokens.")
    return _warmed(target, place, rows, clock, 1).seconds


def changes(target: Backend, place: MeasuringPlace, clock: Callable[[], float]) -> list[float]:
    """Seconds by which the first and the second forward of a row count are slower than a third one.

    [] where the held tokens leave no room to measure that.
    """
    if place.held + max(_CHANGING_ROWS) > target.context:
        return []
    extra: list[list[float]] = [[] for _ in range(STEADY)]
    for rows in _CHANGING_ROWS * (STEADY + 1):  # what is made once and kept is no cost of changes
        _forward(target, place, rows, clock)
    for _ in range(REPEATS):
        for rows in _CHANGING_ROWS:
            spans = [_forward(target, place, rows, clock).seconds for _ in range(STEADY + 2)]
            steady = min(spans[STEADY:])
            for alike in range(STEADY):
                extra[alike].append(spans[alike] - steady)
    return [max(0.0, statistics.median(each)) for each in extra]


def staircase(  # noqa: PLR0913, PLR0917 — what is measured, where, and who is told
    target: Backend,
    row_counts: Sequence[int],
    where: Callable[[], MeasuringPlace],
    measured: Callable[[int, float, int], float],
    clock: Callable[[], float],
    warm: int,
) -> Iterator[None]:
    """Measure forwards of each row count in turn; one for each `next`.

    Before each measured one come `warm` forwards of as many rows. `measured` takes a
    `MeasuredForward` and returns how far it is from what was expected, as a logarithm. After the
    regular turns, row counts whose latest forward was still a surprise are measured again.
    `where` gives a place that is free while an item is computed. Row counts for which there is no
    room after the tokens held there are left out.
    """
    wanted = [rows for rows in row_counts if rows <= min(target.max_rows, target.context)]
    for turn in range(1, REPEATS + _AGAIN + 1):
        surprising = []
        wanted = [rows for rows in wanted if where().held + rows <= target.context]
        for rows in wanted[:1]:
            _forward(target, where(), rows, clock)  # the first forward after a rest is slow
        for rows in wanted:
            if where().held + rows > target.context:  # a request was here meanwhile
                continue
            if abs(measured(*_warmed(target, where(), rows, clock, warm))) > _SURPRISE:
                surprising.append(rows)
            yield
        if turn >= REPEATS:
            wanted = surprising


def copying(target: Backend, clock: Callable[[], float]) -> float:
    """Seconds of a copy of the state of slot 0, not counting a first copy. Needs slot 0 empty."""
    spans = []
    for length in range(REPEATS + 1):
        target.decode([Row(token(length, target.n_vocab), length, 0)])
        began = clock()
        target.checkpoint(0)
        spans.append(clock() - began)
    target.truncate(0, 0)
    return min(spans[1:])


def in_turns(
    target: Backend, row_counts: Sequence[int], repeats: int, clock: Callable[[], float]
) -> Pieces[dict[int, list[float]]]:
    """Seconds of forwards of each row count, in turns, in the last slot, which is empty.

    On a busy machine some forwards are slower, but hardly ever all of one row count.
    """
    slot = target.n_slots - 1
    found: dict[int, list[float]] = {rows: [] for rows in row_counts}
    for rows in list(found) * repeats:
        batch = [
            Row(token(at, target.n_vocab), at, slot, at >= rows - _JUDGED_ROWS)
            for at in range(rows)
        ]
        began = clock()
        target.decode(batch)
        found[rows].append(clock() - began)
        target.truncate(slot, 0)
        yield
    return found


def far_tokens(target: Backend) -> int:
    """How many tokens the rows of a far measurement look back on."""
    return max(0, min(FAR_TOKENS, target.context - max(_FAR_ROWS)))


def far_measurements(
    engine: Engine, repeats: int, clock: Callable[[], float], warm: int
) -> Iterator[MeasuredForward]:
    """Forwards after `far_tokens` tokens, and those that read these tokens; one for each `next`.

    Where the engine's last slot holds too few tokens, more are read after them, and again whenever
    a session had a slot meanwhile. What the slot held stays; so a memory that is a state is
    measured in an empty slot only. Where another slot is idle, each far forward is followed by a
    near one of as many rows: the machine is as busy for both, so their difference is due to the
    distance.
    """
    target = engine.target
    far, slot = far_tokens(target), target.n_slots - 1
    wanted = [rows for rows in _FAR_ROWS * repeats if rows <= target.max_rows] if far else []
    trims = engine.shape.rollback == "trim"
    held, known = engine.kept(slot), engine.slots_taken
    while wanted and (trims or not engine.kept(slot)):
        if engine.slots_taken != known:
            held, known = engine.kept(slot), engine.slots_taken
        target.truncate(slot, held)
        reading = min(far - held, _CHUNK_ROWS, target.max_rows)
        if reading > 0:
            forward = _forward(target, MeasuringPlace(slot, held), reading, clock, keep=True)
            held += reading
            yield forward
            continue
        rows = wanted.pop(0)
        if held + rows > target.context:
            break
        yield _warmed(target, MeasuringPlace(slot, held), rows, clock, warm)
        for place in _near(engine, slot):  # as it is now: a request may have been here
            yield _warmed(target, place, rows, clock, warm)
    target.truncate(slot, engine.kept(slot))


def _near(engine: Engine, far: int) -> list[MeasuringPlace]:
    """The place with the fewest held tokens outside of slot `far`, if they are few enough."""
    places = [
        MeasuringPlace(slot, engine.kept(slot))
        for slot in range(engine.target.n_slots)
        if slot != far
    ]
    most = _READ_TOKENS if engine.shape.rollback == "trim" else 1
    least = min(places, key=lambda place: place.held, default=None)
    return [least] if least is not None and least.held < most else []


def _warmed(
    target: Backend, place: MeasuringPlace, rows: int, clock: Callable[[], float], warm: int
) -> MeasuredForward:
    """One forward after `warm` ones of as many rows."""
    for _ in range(warm):
        _forward(target, place, rows, clock)
    return _forward(target, place, rows, clock)


def _forward(
    target: Backend,
    place: MeasuringPlace,
    rows: int,
    clock: Callable[[], float],
    *,
    keep: bool = False,
) -> MeasuredForward:
    """One forward after what the slot holds; forgotten again unless it is to `keep`.

    Rows to keep are read like a prompt: only the last one wants logits.
    """
    slot, held = place
    places = range(held, held + rows)
    last = held + rows - 1
    batch = [Row(token(at, target.n_vocab), at, slot, not keep or at == last) for at in places]
    if not keep:
        target.checkpoint(slot)
    began = clock()
    target.decode(batch)
    seconds = clock() - began
    if not keep:
        target.truncate(slot, held)
    return MeasuredForward(rows, seconds, sum(places))


def draft_change(
    drafter: Drafter, slot: int, held: list[Token], n_vocab: int, clock: Callable[[], float]
) -> Pieces[float]:
    """The extra seconds, in all, that a drafter takes after a change to another row count."""
    found = []
    for repeat in range(REPEATS):
        text, spans = held + _text(repeat, _READ_TOKENS, n_vocab), list[float]()
        for cost in _rehearse(drafter, slot, text, [1] * (STEADY + 2), clock):
            spans.append(cost.seconds)
            yield
        drafts = spans[-STEADY - 2 :]  # after those that read the text
        steady = min(drafts[STEADY:], default=0.0)
        found.append(sum(span - steady for span in drafts[:STEADY]))
    return max(0.0, statistics.median(found))


def rehearsals(  # noqa: PLR0913, PLR0917 — a drafter, how often, where and how
    drafter: Drafter,
    repeats: int,
    slot: int,
    held: list[Token],
    n_vocab: int,
    clock: Callable[[], float],
) -> Iterator[Drafted]:
    """Costs of drafts that are not verified, and of reading texts for them; one for each `next`.

    Drafts come after short texts, each read anew, and then after a long one. All texts begin with
    `held`, the tokens of the slot. A drafter that has made no forward needs `draft_change` before.
    `slot` must be idle while an item is computed. The drafter may remember these texts like any
    other.
    """
    for repeat in range(repeats):
        text = held + _text(repeat, _READ_TOKENS, n_vocab)
        yield from _rehearse(drafter, slot, text, [_STEPS], clock)
    long = held + _text(repeats, max(_READ_TOKENS, FAR_TOKENS - len(held)), n_vocab)
    yield from _rehearse(drafter, slot, long, [_STEPS] * repeats, clock)


def _text(first: int, length: int, n_vocab: int) -> list[Token]:
    return [token(1 + first + place, n_vocab) for place in range(length)]


def _rehearse(
    drafter: Drafter, slot: int, text: list[Token], depths: list[int], clock: Callable[[], float]
) -> Iterator[Drafted]:
    """Read the text, then make a draft of each of these depths after it."""
    forwards = drafter.forwards if isinstance(drafter, Computing) else ForwardCounts()
    session = drafter.open(slot, text, Sampler(SamplingParams(temperature=0.0)))
    if inputs := getattr(session, "inputs", 0):  # their values do not change the time
        feed(session, 0, np.ones((len(text) - 1, inputs), np.float32))
    left = list(reversed(depths))
    while left:
        pending, changed = session.pending, forwards.changes
        depth = 1 if pending > 1 else left.pop()
        steps, began = _Steps(), clock()
        (draft,) = drafter.propose([DraftRequest(session, Draft(), depth, _always, steps.guess)])
        seconds = clock() - began
        read, cells = pending - session.pending, len(text) - session.pending
        if read == 0 and not draft:
            break  # it has no room for this text
        changes = forwards.changes - changed
        steps.asked = steps.asked or len(draft)
        yield Drafted(drafter.name, max(1, read), steps.asked, seconds, cells, changes=changes)
    session.close()


class _Steps:
    """Counts a draft's forwards, as each asks for a guess; two of them may make one token."""

    def __init__(self) -> None:
        self.asked = 0

    def guess(self, _nodes: Draft) -> Sequence[Token]:
        """No guess, as nothing is known of the text."""
        self.asked += 1
        return ()


def _always(_signals: object) -> bool:
    return True
