"""Laws of sharing one decode."""

from __future__ import annotations

from dataclasses import dataclass
from dataclasses import field as dataclass_field

from hypothesis import given, settings
from hypothesis import strategies as st

from localspec.control.round import STALL_SECONDS
from localspec.engine.scheduler import (
    MIN_CHUNK_ROWS,
    Chunks,
    RowDemand,
    chunk_rows,
    room,
    share,
)

NEEDS = st.lists(
    st.builds(
        lambda tail, nodes, room: RowDemand(tail, nodes if tail == 1 else 0, room),
        st.one_of(st.just(1), st.integers(1, 3000)),
        st.integers(0, 24),
        st.one_of(st.just(1 << 30), st.integers(1, 40)),
    ),
    min_size=1,
    max_size=8,
)


@given(NEEDS, st.sampled_from([1, 2, 4, 8]), st.integers(0, 512), st.integers(0, 512))
def test_a_decode_is_shared_lawfully(
    needs: list[RowDemand], multiple: int, chunk: int, extra: int
) -> None:
    """Within the rows; streams always move; prefill within its chunk; padding to the multiple."""
    most = multiple * len(needs) + extra

    shares = share(needs, max_rows=most, chunk=chunk, multiple=multiple)

    assert sum(part.rows for part in shares) <= most
    for need, part in zip(needs, shares, strict=True):
        assert part.rows % multiple == 0
        assert part.tail <= need.tail
        assert part.nodes <= need.nodes
        assert part.nodes == 0 or part.tail == need.tail
        assert part.tail == 1 or need.tail > 1
        assert part.padding < multiple
        assert part.tail + part.nodes <= need.room
    assert (
        sum(part.tail for part, need in zip(shares, needs, strict=True) if need.tail > 1) <= chunk
    )


@given(NEEDS, st.sampled_from([1, 2, 4, 8]), st.integers(0, 512))
def test_half_of_a_chunk_is_the_oldest_prompts_and_the_shortest_come_next(
    needs: list[RowDemand], multiple: int, chunk: int
) -> None:
    """The others also get the rows that it leaves, and no row is left while a prompt waits."""
    shares = share(needs, max_rows=10_000, chunk=chunk, multiple=multiple)

    chunk -= chunk % multiple
    prompts = [pair for pair in zip(needs, shares, strict=True) if pair[0].tail > 1]
    for need, part in prompts[:1]:
        assert part.tail >= min(need.tail, need.room, chunk // 2)
    waiting = [need.tail for need, part in prompts if part.tail < min(need.tail, need.room)]
    if waiting:
        assert sum(part.rows for _, part in prompts) == chunk
    for need, part in prompts[1:]:
        assert part.tail == 0 or need.tail <= min(waiting, default=need.tail)


@given(st.integers(2, 400), st.lists(st.integers(2, 100_000), min_size=1, max_size=6))
def test_a_question_waits_for_no_long_text(question: int, texts: list[int]) -> None:
    """It is read at half of a chunk's rows at least, where texts before it are longer."""
    left = [*(question + text for text in texts), question]
    for _ in range(-(-question // 32)):
        shares = share([RowDemand(max(1, tail)) for tail in left], max_rows=512, chunk=64)
        left = [tail - part.tail for tail, part in zip(left, shares, strict=True)]
    assert left[-1] <= 0


@given(st.integers(0, 3000), st.integers(1, 64), st.sampled_from([1, 2, 3, 4, 8, 16]))
def test_rows_that_have_room_end_in_the_block_where_each_would_end_alone(
    start: int, count: int, multiple: int
) -> None:
    """And one row more would not: its own plain forward sees another block than the first row's."""
    border = 256

    def block(end: int) -> int:
        return -(-end // border)

    most = room(start, multiple=multiple, border=border)
    count = min(count, most)
    padded = start + count + -count % multiple

    assert all(block(row + multiple) == block(padded) for row in range(start, start + count))
    assert most >= 1
    assert block(start + most + multiple) > block(start + multiple)
    assert room(start, multiple=multiple, border=0) > 1 << 20


@given(NEEDS, st.sampled_from([1, 2, 4]))
def test_every_prompt_is_read_in_the_end(needs: list[RowDemand], multiple: int) -> None:
    """Sharing again and again finishes all prefill."""
    left = [need.tail for need in needs]
    for _ in range(4000):
        if all(tail == 1 for tail in left):
            break
        shares = share(
            [RowDemand(tail) for tail in left], max_rows=64 * multiple, chunk=32, multiple=multiple
        )
        moved = [part.tail if tail > 1 else 0 for part, tail in zip(shares, left, strict=True)]
        assert sum(moved) > 0
        left = [max(1, tail - gone) for tail, gone in zip(left, moved, strict=True)]

    assert all(tail == 1 for tail in left)


@given(st.floats(0, 10), st.integers(16, 2048), st.booleans())
def test_a_chunk_of_prefill_is_bounded_in_time(
    seconds_per_row: float, most: int, alone: bool
) -> None:
    """Beside streams it is a stutter at most; alone it is short enough to be cancelled."""
    rows = chunk_rows(seconds_per_row, alone=alone, most=most)

    least = MIN_CHUNK_ROWS if alone else 1
    assert min(least, most) <= rows <= most
    if rows > least and seconds_per_row > 0:
        assert rows * seconds_per_row <= (1.0 if alone else 0.2) + 1e-9


@given(
    st.floats(1e-4, 0.4),
    st.floats(0.001, 1),
    st.lists(st.floats(0.5, 1), min_size=1, max_size=20),
    st.integers(1, 4000),
)
def test_beside_a_stream_no_chunk_lasts_long_on_any_machine(
    base: float, share: float, noise: list[float], prompt: int
) -> None:
    """For any cost of a decode and of one more row, and any variation, from the first one on.

    A row may be taken for as cheap as it ever was, and one row is the least.
    """
    chunks, decodes, row = Chunks(512), 0, base * share
    chunks.ran(1, 0, base, alone=False)
    while prompt > 0 and decodes < 10_000:
        rows = min(prompt, chunks.rows(alone=False))
        extra = rows * row * noise[decodes % len(noise)]
        assert extra <= max(STALL_SECONDS / min(noise), row) + 1e-9
        chunks.ran(1 + rows, rows, base + extra, alone=False)
        prompt, decodes = prompt - rows, decodes + 1
    assert prompt <= 0


@given(
    st.floats(1e-4, 0.4),
    st.floats(0.01, 1),
    st.lists(st.integers(0, 31), min_size=40, max_size=60),
)
def test_a_draft_beside_it_makes_no_prompt_wait(
    base: float, share: float, drafts: list[int]
) -> None:
    """Its rows are not taken for the prompt's: however they vary, chunks stay as long as they may.

    The first row of a decode costs `base`, and each more `share` of that. Where more was drafted
    without the prompt only the average tells, which may be dearer by the first row.
    """
    chunks, row = Chunks(512), base * share
    before, most = drafts[0], STALL_SECONDS / row
    least = max(1, int(0.9 * most * (share if before else 1)))
    chunks.ran(1 + before, 0, base + row * before, alone=False)
    for drafted in drafts:
        rows = chunks.rows(alone=False)
        chunks.ran(1 + drafted + rows, rows, base + row * (drafted + rows), alone=False)
        assert min(512, 2 * rows, least) <= chunks.rows(alone=False) <= max(1, most + 1)


@given(
    st.lists(st.tuples(st.integers(0, 20), st.booleans()), min_size=1, max_size=8),
    st.integers(0, 200),
    st.integers(0, 64),
)
def test_what_streams_read_again_comes_before_prompts(
    sessions: list[tuple[int, bool]], extra: int, chunk: int
) -> None:
    """As much of it as there is room for, the oldest first, and every stream gets its row."""
    needs = [
        RowDemand(1 + again, again=again) if one else RowDemand(999) for again, one in sessions
    ]
    most = len(needs) + extra
    shares = share(needs, max_rows=most, chunk=chunk)
    free = most - sum(need.streaming for need in needs)
    for need, part in zip(needs, shares, strict=True):
        if need.streaming:
            assert part.tail == 1 + min(need.again, free)
            free -= part.tail - 1
    assert sum(part.rows for part in shares) <= most
    read = sum(part.tail for need, part in zip(needs, shares, strict=True) if not need.streaming)
    assert read == (min(chunk, free) if any(not need.streaming for need in needs) else 0)


# --- what happens on a machine, by lists of events ------------------------------------------------


@dataclass(frozen=True)
class SimulatedMachine:
    """A decode's seconds: the first row, each more, and where kernels for many rows begin.

    Every row of a prompt takes `depth` longer for each token before it.
    """

    first: float
    row: float
    many: int = 1 << 30
    gain: float = 1.0
    depth: float = 0.0

    def seconds(self, rows: int, read: int, before: int) -> float:
        """Of a decode of so many rows, `read` of them of a prompt that has `before` tokens."""
        each = self.row / self.gain if rows >= self.many else self.row
        return self.first + (rows - 1) * each + read * before * self.depth


@dataclass
class Room:
    """Sessions of one machine: streams, and prompts by what is left of them and what was read."""

    machine: SimulatedMachine
    chunks: Chunks = dataclass_field(default_factory=lambda: Chunks(512))
    streams: int = 0
    left: list[int] = dataclass_field(default_factory=list)
    done: list[int] = dataclass_field(default_factory=list)
    pauses: list[float] = dataclass_field(default_factory=list)
    sizes: list[int] = dataclass_field(default_factory=list)

    def happen(self, event: int) -> None:
        """A prompt of so many tokens comes; 0: a stream comes; -1: one ends."""
        if event > 1:
            self.left.append(event)
            self.done.append(0)
        else:
            self.streams = max(0, self.streams + (event == 0) - (event < 0))

    def decode(self) -> None:
        """One, as an engine makes it."""
        needs = [RowDemand(1)] * self.streams + [RowDemand(tail) for tail in self.left]
        if not needs:
            return
        alone = self.streams == 0
        parts = share(
            needs,
            max_rows=512 + len(needs),
            chunk=self.chunks.rows(alone=alone, waiting=sum(self.left)),
        )
        rows = sum(part.rows for part in parts)
        read = [part.tail for part in parts[self.streams :]]
        before = max((done for done, of in zip(self.done, read, strict=True) if of), default=0)
        took = self.machine.seconds(rows, sum(read), before)
        self.chunks.ran(rows, sum(read), took, alone=alone)
        if not alone:
            self.pauses.append(took - self.machine.seconds(self.streams, 0, 0))
        self.sizes.append(sum(read))
        self.left = [left - of for left, of in zip(self.left, read, strict=True)]
        self.done = [done + of for done, of in zip(self.done, read, strict=True)]
        over = [left <= 1 for left in self.left]
        self.streams += sum(over)
        self.left = [left for left, ends in zip(self.left, over, strict=True) if not ends]
        self.done = [done for done, ends in zip(self.done, over, strict=True) if not ends]

    def run(self, events: list[int], decodes: int) -> None:
        """Each event, some decodes after the one before; then until all prompts are read."""
        for event in events:
            self.happen(event)
            for _ in range(decodes):
                self.decode()
        while self.left:
            self.decode()


MACHINES = st.builds(
    SimulatedMachine,
    first=st.floats(0.005, 0.1),
    row=st.floats(2e-4, 0.02),
    many=st.sampled_from([1 << 30, 32, 64, 128]),
    gain=st.floats(1, 8),
    depth=st.floats(0, 2e-7),
)
EVENTS = st.lists(st.one_of(st.just(0), st.just(-1), st.integers(2, 4096)), min_size=1, max_size=12)


@settings(deadline=None, max_examples=400)
@given(MACHINES, EVENTS, st.integers(0, 40))
def test_no_stream_pauses_for_long_whatever_comes_and_goes(
    machine: SimulatedMachine, events: list[int], decodes: int
) -> None:
    """Beside prompts that come alone and together, before and behind streams.

    A chunk is chosen by one that was read nearer to a prompt's beginning, and it may be the first
    that falls short of many rows.
    """
    room_ = Room(machine)
    room_.run(events, decodes)
    deeper = 1 + 4096 * machine.depth / (machine.row / machine.gain)
    longest = STALL_SECONDS * max(2, machine.gain) * deeper + machine.first + machine.row
    assert max(room_.pauses, default=0) <= longest
    assert sum(room_.sizes) >= sum(event - 1 for event in events if event > 1)


@given(st.integers(500, 4096), st.integers(500, 4096), st.integers(1, 3))
def test_beside_a_stream_a_prompt_has_the_chunks_whose_rows_take_least(
    first: int, second: int, streams: int
) -> None:
    """Where 64 rows take less than 40, and that was seen when a prompt was read alone."""
    machine = SimulatedMachine(first=0.03, row=0.005, many=64, gain=5)
    room_ = Room(machine)
    room_.run([first], 0)
    alone = len(room_.sizes)
    room_.run([0] * (streams - 1) + [second], 1)
    best = int(STALL_SECONDS / (machine.row / machine.gain))
    assert max(room_.pauses) <= STALL_SECONDS + machine.first
    assert len([size for size in room_.sizes[alone:] if size]) <= second / (0.7 * best) + 3
