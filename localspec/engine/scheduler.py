"""Which rows share the next decode. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from localspec.control.round import STALL_SECONDS

CANCEL_SECONDS = 1.0
"""How long a lone prefill chunk may last: a client that left is noticed between chunks."""

MIN_CHUNK_ROWS = 16
"""Smaller chunks would read all weights for almost nothing."""

FIRST_CHUNK_ROWS = 64
"""Rows of a prefill chunk before any was measured, while no session streams."""

_WHOLE = 16
"""Prefill is charged at least one part in so many of its decode, however little was measured."""


@dataclass(frozen=True, slots=True)
class RowDemand:
    """The rows that one session asks for: its undecoded `tail`, then `nodes` of a draft.

    `room` is how many rows of both may stand in one forward (`room` below). `again` counts tokens
    in the tail of a streaming session that were decoded before and are read again.
    """

    tail: int
    nodes: int = 0
    room: int = 1 << 30
    again: int = 0

    @property
    def streaming(self) -> bool:
        """Whether the session waits for its next token, and not for its first."""
        return self.tail <= 1 + self.again


@dataclass(frozen=True, slots=True)
class Share:
    """The rows that a session gets: tail, draft nodes, and padding, which is forgotten at once."""

    tail: int = 0
    nodes: int = 0
    padding: int = 0

    @property
    def rows(self) -> int:
        """All rows of this session in the decode."""
        return self.tail + self.nodes + self.padding


def chunk_rows(seconds_per_row: float, *, alone: bool, most: int) -> int:
    """Rows of prefill that take CANCEL_SECONDS in one decode, STALL_SECONDS beside streams.

    `seconds_per_row` is 0 while nothing was measured. Beside streams a slow machine may get fewer
    than MIN_CHUNK_ROWS, because the weights are read for the streams anyway.
    """
    least = MIN_CHUNK_ROWS if alone else 1
    if seconds_per_row <= 0:
        return min(most, FIRST_CHUNK_ROWS if alone else MIN_CHUNK_ROWS)
    lasting = (CANCEL_SECONDS if alone else STALL_SECONDS) / seconds_per_row
    return min(most, max(least, int(min(lasting, most))))


@dataclass(slots=True)
class Chunks:
    """How many prompt rows may be read in one decode, by the times of earlier decodes.

    Beside streams a prompt row costs the extra seconds of its decode over the last one without
    prefill, divided by the extra rows. If there are fewer extra rows than prompt rows, the two
    decodes had different drafts and the comparison tells nothing: then a row costs the average over
    all rows of its decode. It never costs more than that average.

    The cost of a row is kept by the size of the chunk, in powers of two: where kernels for many
    rows begin, more rows may take less time than few. A chunk may have twice the rows of a measured
    one, not more, as few rows tell little of many. It is smaller than a measured one only where
    that was the latest and took too long.
    """

    most: int
    _row_seconds: float = 0.0
    _rows: int = 0
    _stream_seconds: float = 0.0
    _stream_rows: int = 0
    _by_size: dict[int, tuple[int, float]] = field(default_factory=dict)

    def rows(self, *, alone: bool, waiting: int = 1 << 30) -> int:
        """Prompt rows of the next decode, `alone` or beside streams; `waiting` rows are unread."""
        seconds = self._row_seconds
        if alone:
            return chunk_rows(seconds, alone=True, most=self.most)
        if not self._rows:
            return chunk_rows(
                self._stream_seconds, alone=False, most=min(self.most, MIN_CHUNK_ROWS)
            )
        least = chunk_rows(seconds, alone=False, most=min(self.most, MIN_CHUNK_ROWS))
        return max(self._known(waiting), default=least)

    def _known(self, waiting: int) -> Iterator[int]:
        """Sizes of chunks that should be short enough, by the measured ones."""
        for rows, seconds in self._by_size.values():
            count = min(self.most, 2 * rows, int(STALL_SECONDS / seconds))
            latest = rows == self._rows and 2 * count >= rows
            if rows <= waiting and (count >= rows or latest):
                yield count

    def ran(self, rows: int, prefill: int, seconds: float, *, alone: bool) -> None:
        """Note how long a decode of so many rows took; `prefill` of them were of prompts."""
        if prefill == 0:
            self._stream_seconds, self._stream_rows = seconds, rows
        elif not alone and self._stream_seconds:
            more, each = rows - self._stream_rows, seconds / rows
            if more >= prefill:
                longer = max(seconds - self._stream_seconds, seconds / _WHOLE)
                each = min(each, longer / more)
            self._read(prefill, each)
        elif prefill >= MIN_CHUNK_ROWS:
            self._read(prefill, seconds / rows)

    def _read(self, rows: int, each: float) -> None:
        self._row_seconds, self._rows = each, rows
        if each > 0:
            self._by_size[rows.bit_length()] = rows, each


def room(start: int, *, multiple: int, border: int) -> int:
    """The most rows that a forward from position `start` on may hold; at least 1.

    Attention may be split by how many cells a forward sees, rounded up to whole blocks of `border`
    cells. Then a row's bits depend on the block in which its forward ends. In plain decoding the
    row at p is in a forward that ends at p + multiple. So rows may share a forward if their plain
    forwards end in the same block; the padded end of the shared one lies between those ends.
    `border` 0 means that attention is not split.
    """
    if border == 0:
        return 1 << 30
    return _padded(start + multiple, border) - multiple - start + 1


def share(
    needs: Sequence[RowDemand], *, max_rows: int, chunk: int, multiple: int = 1
) -> list[Share]:
    """Divide one decode of at most `max_rows` rows; one Share per need, in order.

    1. Sessions whose tail is one token are streaming: they come first and always get its row. One
       that reads tokens before that one again also gets rows for these, as far as there is room.
    2. Then prefill, at most `chunk` rows together: half of them for the oldest prompt; the others,
       and what that leaves, for prompts with the least left. So no question waits for a long text.
    3. The remaining rows go to draft nodes, in order.

    Args:
        needs: In order of admission.
        max_rows: At least `multiple` times the number of needs.
        chunk: Rows of prefill.
        multiple: Every session's rows are padded to a multiple of this.
    """
    tails = [int(need.streaming) for need in needs]
    free = max_rows - multiple * sum(tails)
    for index, need in enumerate(needs):
        if need.streaming and need.tail > 1:
            more = min(need.tail, 1 + free // multiple * multiple, need.room) - 1
            tails[index] += more
            free -= _padded(1 + more, multiple) - multiple
    for index, rows in _prefill(needs, min(chunk, free) // multiple * multiple, multiple).items():
        tails[index] = rows
        free -= _padded(rows, multiple)
    shares = []
    for need, tail in zip(needs, tails, strict=True):
        nodes = 0
        if tail == need.tail:
            within = _padded(tail, multiple) - tail
            nodes = min(need.nodes, within + free // multiple * multiple, need.room - tail)
            free -= _padded(tail + nodes, multiple) - _padded(tail, multiple)
        shares.append(Share(tail, nodes, _padded(tail + nodes, multiple) - tail - nodes))
    return shares


def _prefill(needs: Sequence[RowDemand], chunk: int, multiple: int) -> dict[int, int]:
    """Rows of each prompt; padded, together at most `chunk`, which is a multiple of `multiple`."""
    taken = {index: 0 for index, need in enumerate(needs) if not need.streaming}
    if not taken:
        return {}
    half = _padded((chunk + 1) // 2, multiple)
    shortest = sorted(taken, key=lambda index: needs[index].tail)
    for index, most in [(min(taken), half), *((index, chunk) for index in shortest)]:
        need, rows = needs[index], taken[index]
        others = sum(_padded(each, multiple) for at, each in taken.items() if at != index)
        taken[index] = max(rows, min(need.tail, need.room, most, chunk - others))
    return taken


def _padded(rows: int, multiple: int) -> int:
    return -(-rows // multiple) * multiple
