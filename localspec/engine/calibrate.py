"""What forwards and drafts cost, measured one by one while nobody waits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from localspec.control.round import Drafted
from localspec.engine.sampling import Sampler
from localspec.engine.step import Engine
from localspec.types import (
    Ask,
    Backend,
    Draft,
    Drafter,
    Floats,
    Row,
    SamplingParams,
    Token,
)

FAR_TOKENS = 1024
"""What a far measurement looks back on: enough that attention shows, read in some seconds."""
REPEATS, _AGAIN = 3, 4
"""Measurements of one thing: one stolen time slice is outvoted. Row counts that still disagree are
repeated, at most so many times."""
_SURPRISE = 0.1
"""A forward that is off by a tenth was measured in a bad moment, or those before it were."""
_FAR_ROWS = (1, 4, 16)
_CHUNK_ROWS = 64
"""Rows of one forward while that is read: requests may wait for it."""
_READ_TOKENS, _STEPS = 64, 4
"""A rehearsed draft reads so many tokens, and then drafts so many without reading."""


class Timed:
    """A target whose forwards are told to `measured`, as `Costs.measured` takes them."""

    def __init__(
        self,
        target: Backend,
        measured: Callable[[int, float, float], object],
        clock: Callable[[], float],
    ) -> None:
        self.n_vocab, self.n_slots = target.n_vocab, target.n_slots
        self.context, self.max_rows = target.context, target.max_rows
        self._target, self._measured, self._clock = target, measured, clock

    def decode(self, rows: Sequence[Row]) -> Floats:
        """As the target does."""
        began = self._clock()
        logits = self._target.decode(rows)
        self._measured(len(rows), self._clock() - began, sum(row.position for row in rows))
        return logits

    def truncate(self, slot: int, length: int) -> None:
        """As the target does."""
        self._target.truncate(slot, length)


class Forward(NamedTuple):
    """One forward of the target, as `Costs.measured` takes it."""

    rows: int
    seconds: float
    looks: int


def staircase(
    target: Backend,
    row_counts: Sequence[int],
    slot: int,
    measured: Callable[[int, float, int], float],
    clock: Callable[[], float],
) -> Iterator[None]:
    """Forwards of each row count, interleaved; one for each `next`.

    `measured` takes a `Forward` and gives by how much it surprised, as a logarithm. In the end
    those row counts are measured again whose latest forward still did.
    `slot` must be free while an item is computed, and is left empty.
    """
    wanted = [rows for rows in row_counts if rows <= min(target.max_rows, target.context)]
    for turn in range(1, REPEATS + _AGAIN + 1):
        surprising = []
        for rows in wanted[:1]:
            _alone(target, slot, rows, clock)  # the first forward after a rest is slow
        for rows in wanted:
            if abs(measured(*_alone(target, slot, rows, clock))) > _SURPRISE:
                surprising.append(rows)
            yield
        if turn >= REPEATS:
            wanted = surprising


def far_tokens(target: Backend) -> int:
    """How many tokens the rows of a far measurement look back on."""
    return max(0, min(FAR_TOKENS, target.context - max(_FAR_ROWS)))


def far_measurements(engine: Engine, repeats: int, clock: Callable[[], float]) -> Iterator[Forward]:
    """Forwards behind `far_tokens` tokens, and those that read them; one for each `next`.

    The engine's last slot holds the tokens; it must be free while an item is computed. After a step
    of the engine they are read again. Where another slot is empty, every far forward has a near one
    of as many rows after it: the machine's mood is that of both, so their difference is the
    distance. Both slots are left empty.
    """
    target = engine.target
    far, slot = far_tokens(target), target.n_slots - 1
    wanted = [rows for rows in _FAR_ROWS * repeats if rows <= target.max_rows] if far else []
    held, known = 0, engine.steps
    while wanted:
        if engine.steps != known:
            held, known = 0, engine.steps
        target.truncate(slot, held)
        reading = min(far - held, _CHUNK_ROWS, target.max_rows)
        rows = reading or wanted.pop(0)
        yield _forward(target, slot, held, rows, clock)
        held += reading
        beside = None if reading else _empty_slot(engine)
        if beside is not None:
            yield _alone(target, beside, rows, clock)
    target.truncate(slot, 0)


def _empty_slot(engine: Engine) -> int | None:
    """One that holds nothing; not the last."""
    slots = range(engine.target.n_slots - 1)
    return next((slot for slot in slots if not engine.remembers(slot)), None)


def _alone(target: Backend, slot: int, rows: int, clock: Callable[[], float]) -> Forward:
    """A forward with nothing before it; the slot is left empty."""
    target.truncate(slot, 0)
    forward = _forward(target, slot, 0, rows, clock)
    target.truncate(slot, 0)
    return forward


def _forward(
    target: Backend, slot: int, held: int, rows: int, clock: Callable[[], float]
) -> Forward:
    places = range(held, held + rows)
    began = clock()
    target.decode([Row(0, place, slot, wants_logits=True) for place in places])
    return Forward(rows, clock() - began, sum(places))


def rehearsals(
    drafter: Drafter, repeats: int, slot: int, clock: Callable[[], float]
) -> Iterator[Drafted]:
    """Drafts that nobody verifies, and what is read for them; one for each `next`.

    After short texts, each read anew, and after a long one. The first of all warms up and is not
    given. `slot` must be free while an item is computed. What the drafter keeps of it is a text
    like any other that ended there.
    """
    for repeat in range(repeats + 1):
        drafts = _rehearse(drafter, slot, [repeat] + [0] * (_READ_TOKENS - 1), 1, clock)
        for drafted in drafts:
            if repeat:
                yield drafted
    yield from _rehearse(drafter, slot, [repeats + 1] + [0] * (FAR_TOKENS - 1), repeats, clock)


def _rehearse(
    drafter: Drafter, slot: int, text: list[Token], repeats: int, clock: Callable[[], float]
) -> Iterator[Drafted]:
    """Read the text, then draft some tokens after it, `repeats` times."""
    session = drafter.open(slot, text, Sampler(SamplingParams(temperature=0.0)))
    depths = [_STEPS] * repeats
    while depths:
        pending = session.pending
        depth = 1 if pending > 1 else depths.pop()
        began = clock()
        (draft,) = drafter.propose([Ask(session, Draft(), depth, _always)])
        seconds = clock() - began
        read, cells = pending - session.pending, len(text) - session.pending
        if read == 0 and not draft:
            break  # it has no room for this text
        yield Drafted(drafter.name, max(1, read), len(draft), seconds, cells)
    session.close()


def _always(_signals: object) -> bool:
    return True
