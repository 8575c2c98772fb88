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
"""At least so small a part of a decode is taken to be its prefill's, however it was measured."""


@dataclass(frozen=True, slots=True)
class RowDemand:
    """The rows that one session asks for: its undecoded `tail`, then `nodes` of a draft.

    `room` is how many rows of both may stand in one forward (`room` below). `again` tokens of the
    tail of a session that is streaming are read again.
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
    """The rows it gets: of its tail, draft nodes, and padding rows, forgotten at once."""

    tail: int = 0
    nodes: int = 0
    padding: int = 0

    @property
    def rows(self) -> int:
        """All rows of this session in the decode."""
        return self.tail + self.nodes + self.padding


def chunk_rows(seconds_per_row: float, *, alone: bool, most: int) -> int:
    """Rows of prefill in one decode: what lasts CANCEL_SECONDS alone, STALL_SECONDS beside streams.

    `seconds_per_row` is 0 while nothing was measured. Beside streams even less than MIN_CHUNK_ROWS,
    where a machine is so slow: the weights are read for the streams as well.
    """
    least = MIN_CHUNK_ROWS if alone else 1
    if seconds_per_row <= 0:
        return min(most, FIRST_CHUNK_ROWS if alone else MIN_CHUNK_ROWS)
    lasting = (CANCEL_SECONDS if alone else STALL_SECONDS) / seconds_per_row
    return min(most, max(least, int(min(lasting, most))))


@dataclass(slots=True)
class Chunks:
    """How much of their prompts sessions may read in one decode, by what decodes have taken.

    Beside streams a row costs what the decode took longer than the last one without prefill, which
    had fewer rows: drafts differ, and a draft's rows are no prefill's. Where that tells nothing it
    costs what the rows of the decode cost on average, and never more.

    What a row costs is known by the size of its chunk, in powers of two: where kernels for many
    rows begin, more of them may take less than few. A chunk may be twice one that was measured, few
    rows tell little of many; it is smaller than one only where the latest took too long.
    """

    most: int
    _row_seconds: float = 0.0
    _rows: int = 0
    _stream_seconds: float = 0.0
    _stream_rows: int = 0
    _by_size: dict[int, tuple[int, float]] = field(default_factory=dict)

    def rows(self, *, alone: bool, waiting: int = 1 << 30) -> int:
        """Prompt rows of the next decode; `alone` without streams, `waiting` are to be read."""
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
        """Rows of chunks that were measured to be short enough, or are like such ones."""
        for rows, seconds in self._by_size.values():
            count = min(self.most, 2 * rows, int(STALL_SECONDS / seconds))
            latest = rows == self._rows and 2 * count >= rows
            if rows <= waiting and (count >= rows or latest):
                yield count

    def ran(self, rows: int, prefill: int, seconds: float, *, alone: bool) -> None:
        """A decode of so many rows, `prefill` of them of prompts, took so long."""
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
    """Rows from position `start` on that one forward may hold: 1 at least.

    Where attention is split by how many cells a forward sees, rounded up to whole blocks of
    `border` cells, a row's bits depend on the block in which its forward ends. Decoded plainly, the
    row at p stands in a forward that ends at p + multiple. The last row that may join one from
    `start` on is the last whose plain forward ends in the same block as that of the first; the
    padded end of the whole lies between the two. `border` 0: attention knows no blocks.
    """
    if border == 0:
        return 1 << 30
    return _padded(start + multiple, border) - multiple - start + 1


def share(
    needs: Sequence[RowDemand], *, max_rows: int, chunk: int, multiple: int = 1
) -> list[Share]:
    """Divide one decode of at most `max_rows` rows; one Share per need, in order.

    1. Sessions whose tail is one token come first and always get it: they are streaming. Where one
       reads again what came before that token, it gets that too, as far as there is room.
    2. Then prefill, at most `chunk` rows together: half of them are the oldest prompt's, the others
       and what it leaves are for those with the least left. So a question waits for no long text.
    3. What is left goes to draft nodes, in order.

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
    """Rows of each prompt; padded and together at most `chunk`, a multiple of `multiple`."""
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
