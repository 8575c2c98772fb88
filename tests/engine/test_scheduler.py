"""Laws of sharing one decode."""

from __future__ import annotations

from hypothesis import given
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
    """Sharing again and again finishes all prefill, oldest first."""
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
    """Whatever a decode costs, and one more row of it, and however that varies, from the first on.

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
