"""What forwards and drafts cost, measured one by one while nobody waits."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from localspec.control.round import Drafted
from localspec.engine.sampling import Sampler
from localspec.types import Ask, Backend, Draft, Drafter, Floats, Row, SamplingParams

_READ_TOKENS, _STEPS = 64, 4
"""A rehearsed draft reads so many tokens, and then drafts so many without reading."""


class Timed:
    """A target whose forwards are told to `measured`, as rows and seconds, while it is probed."""

    def __init__(
        self,
        target: Backend,
        measured: Callable[[int, float], None],
        clock: Callable[[], float],
    ) -> None:
        self.n_vocab, self.n_slots = target.n_vocab, target.n_slots
        self.context, self.max_rows = target.context, target.max_rows
        self._target, self._measured, self._clock = target, measured, clock

    def decode(self, rows: Sequence[Row]) -> Floats:
        """As the target does."""
        began = self._clock()
        logits = self._target.decode(rows)
        self._measured(len(rows), self._clock() - began)
        return logits

    def truncate(self, slot: int, length: int) -> None:
        """As the target does."""
        self._target.truncate(slot, length)


def measurements(
    target: Backend, row_counts: Sequence[int], repeats: int, slot: int, clock: Callable[[], float]
) -> Iterator[tuple[int, float]]:
    """Forwards of each row count, interleaved, as (rows, seconds); one forward for each `next`.

    `slot` must be free while an item is computed, and is left empty. The first forward of all warms
    up and is not given.
    """
    fitting = [rows for rows in row_counts if rows <= min(target.max_rows, target.context)]
    for repeat in range(repeats + 1):
        for rows in fitting if repeat else fitting[:1]:
            target.truncate(slot, 0)
            began = clock()
            target.decode([Row(0, index, slot, wants_logits=True) for index in range(rows)])
            seconds = clock() - began
            target.truncate(slot, 0)
            if repeat:
                yield rows, seconds


def rehearsals(
    drafter: Drafter, repeats: int, slot: int, clock: Callable[[], float]
) -> Iterator[Drafted]:
    """Drafts that nobody verifies; one for each `next`. The first of all warms up and is not given.

    `slot` must be free while an item is computed. What the drafter keeps of it is a text like any
    other that ended there.
    """
    sampler = Sampler(SamplingParams(temperature=0.0))
    for repeat in range(repeats + 1):
        session = drafter.open(slot, [repeat] + [0] * (_READ_TOKENS - 1), sampler)
        for depth in (1, _STEPS):
            pending = max(1, session.pending)
            began = clock()
            (draft,) = drafter.propose([Ask(session, Draft(), depth, _always)])
            seconds = clock() - began
            if repeat and draft:
                yield Drafted(drafter.name, pending, len(draft), seconds)
        session.close()


def _always(_signals: object) -> bool:
    return True
