"""The store finds the longest beginning of a client's own texts, and keeps to its bounds."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.prefixes.files import Part, PrefixFiles
from localspec.prefixes.store import Entry, PrefixStore
from localspec.prefixes.tokens import packed, shared

KEY = "0123456789abcdef"
SIZE = 100


def entry(
    tokens: Sequence[int], lengths: tuple[int, ...] = (), client: str = "c", key: str = KEY
) -> tuple[Entry, list[Part]]:
    """A text and its memory, of as many bytes for each part."""
    parts = [Part(length, bytes(SIZE)) for length in reversed(lengths or (len(tokens),))]
    return Entry(key, "target", client, packed(tokens), lengths, SIZE * len(parts)), parts


def found(store: PrefixStore, tokens: Sequence[int], client: str = "c", key: str = KEY) -> int:
    """How much of a text the store can give now."""
    best = store.find(key, "target", client, packed(tokens))
    return best[1] if best and store.parts(best[0]) else 0


texts = st.lists(st.integers(0, 2), min_size=1, max_size=12)


@given(
    st.lists(st.tuples(texts, st.sampled_from("ab"), st.booleans()), max_size=12),
    texts,
    st.sampled_from("ab"),
)
def test_the_longest_beginning_of_ones_own_texts(
    kept: list[tuple[list[int], str, bool]], wanted: list[int], client: str
) -> None:
    """Cut where memory can be cut, and otherwise at the lengths of which there are copies."""
    store, best = PrefixStore(1 << 20, None), 0
    for tokens, owner, trims in kept:
        lengths = () if trims else tuple(sorted({len(tokens), (len(tokens) + 1) // 2}))
        store.keep(*entry(tokens, lengths, owner))
        if owner == client:
            alike = shared(packed(tokens), packed(wanted))
            usable = [alike] if trims else [each for each in lengths if each <= alike]
            best = max(best, *usable, 0)
    assert found(store, wanted, client) == best
    assert found(store, wanted, client, "f" * 16) == 0
    assert found(store, wanted, "another") == 0


@given(st.lists(st.integers(0, 30), max_size=40), st.integers(0, 4))
def test_memory_keeps_what_was_used_last(uses: list[int], room: int) -> None:
    """As many copies as may be; a text that is used again stays."""
    store, latest = PrefixStore(room * SIZE, None), list[int]()
    for number in uses:
        if found(store, [number, 7]) == 0:
            store.keep(*entry([number, 7]))
        else:
            assert number in latest
        latest = [each for each in latest if each != number] + [number]
        latest = latest[len(latest) - min(room, len(latest)) :]
        assert store.amount().memory_bytes == SIZE * len(latest)
        for each in range(31):
            best = store.find(KEY, "target", "c", packed([each, 7]))
            assert (best is not None and best[1] == 2) == (each in latest)


def on_disk(root: Path, memory: int = 1 << 20, most: int = 1 << 30) -> PrefixStore:
    """A store of one process."""
    return PrefixStore(memory, PrefixFiles(root, b"s" * 32, lambda _used: most), "tiny")


@pytest.mark.parametrize("memory", [0, 1 << 20])
def test_another_process_finds_it(tmp_path: Path, memory: int) -> None:
    """All that was kept, and the latest of a conversation alone."""
    store = on_disk(tmp_path, memory)
    for length in (40, 50, 60):
        store.keep(*entry(range(length)))
    store.keep(*entry([1, 2, 3, 4], (2, 4)))
    store.close(60.0)
    assert len([*tmp_path.rglob("*.prefix")]) == 2
    other = on_disk(tmp_path, memory)
    assert found(other, range(100)) == 60
    assert found(other, [1, 2, 3, 9]) == 2
    assert found(other, range(100), "another") == 0
    (best,) = [one for one in [other.find(KEY, "target", "c", packed(range(60)))] if one]
    assert best[0].from_disk
    other.used(best[0])
    assert not best[0].from_disk


def test_a_file_that_vanished_is_forgotten(tmp_path: Path) -> None:
    """Another process may have made room, or the directory was cleared."""
    store = on_disk(tmp_path)
    store.keep(*entry(range(40)))
    store.close(60.0)
    other = on_disk(tmp_path)
    assert other.find(KEY, "target", "c", packed(range(40))) is not None
    for path in tmp_path.rglob("*.prefix"):
        path.unlink()
    assert found(other, range(40)) == 0
    assert other.find(KEY, "target", "c", packed(range(40))) is None


def test_cleared_is_gone_at_once(tmp_path: Path) -> None:
    """In memory and on disk, what is being written included; afterwards it goes on."""
    store = on_disk(tmp_path)
    for number in range(20):
        store.keep(*entry(range(number, number + 40)))
    store.clear()
    assert [*tmp_path.rglob("*.prefix")] == []
    assert store.amount().texts == 0
    store.keep(*entry(range(40)))
    store.close(60.0)
    assert found(on_disk(tmp_path), range(40)) == 40


def test_a_disk_that_takes_nothing_costs_nothing(tmp_path: Path) -> None:
    """Copies stay in memory as far as there is room; none is made only for the disk."""
    (tmp_path / "file").write_text("in the way")
    store = on_disk(tmp_path / "file", memory=3 * SIZE)
    for number in range(5):
        store.keep(*entry([number, *range(40)]))
    store.close(60.0)
    assert [found(store, [number, *range(40)]) for number in range(5)] == [0, 0, 41, 41, 41]
    assert store.room(SIZE)
    assert not store.room(4 * SIZE)


def test_any_thread_may_ask(tmp_path: Path) -> None:
    """While one keeps, others find and read."""
    store, wrong = on_disk(tmp_path, memory=4 * SIZE), list[str]()

    def ask() -> None:
        for number in range(200):
            if found(store, [number % 20, *range(40)]) not in {0, 41}:
                wrong.append(f"{number}")

    threads = [threading.Thread(target=ask) for _ in range(3)]
    for thread in threads:
        thread.start()
    for number in range(60):
        store.keep(*entry([number % 20, *range(40)]))
    for thread in threads:
        thread.join()
    store.close(60.0)
    assert wrong == []
