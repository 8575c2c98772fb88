"""An index finds what a plain search finds, and is the same however it was made."""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from corpus.making import built, tokenize, write
from hypothesis import given, settings
from hypothesis import strategies as st

from localspec.corpus import building, contents, index
from localspec.corpus.index import AHEAD, BACK, MOST_TOKENS, SEPARATOR, SIZES, Index

texts = st.lists(st.lists(st.integers(0, 3), max_size=60), max_size=5)


def of(texts: Sequence[Sequence[int]]) -> Index:
    """An index of these texts in memory."""
    tokens = index.joined([np.asarray(text, np.uint32) for text in texts])
    tables = [part for part in index.keys(tokens) if len(part)]
    tables += [np.zeros(0, np.uint64)] * (len(SIZES) - len(tables))
    lengths = (len(tables[0]), len(tables[1]), len(tables[2]))
    held = contents.Contents("", len(tokens), lengths, (), ())
    return Index(held, tokens, dict(zip(SIZES, tables, strict=True)))


def agreement(tokens: Sequence[int], place: int, tail: Sequence[int]) -> int:
    """Tokens before a place that agree with the end of a text."""
    same = 0
    while same < min(BACK, len(tail)) and tokens[place - 1 - same] == tail[-1 - same]:
        same += 1
    return same


@settings(max_examples=300)
@given(texts, st.lists(st.integers(0, 3), max_size=40))
def test_places_are_those_after_the_longest_match(texts: list[list[int]], tail: list[int]) -> None:
    """No place agrees longer, each that is told agrees so long, and what follows is the file's."""
    made = of(texts)
    tokens = made.tokens.tolist()
    places = made.search(tail)
    inside = [place for place in range(BACK, len(tokens) - AHEAD) if tokens[place] != SEPARATOR]
    longest = max((agreement(tokens, place, tail) for place in inside), default=0)
    if places is None:
        assert longest < SIZES[0] or _hidden(tokens, tail)
        return
    assert SIZES[0] <= places.length <= longest
    assert places.length == longest or _hidden(tokens, tail)
    for position, ahead in zip(places.positions, places.ahead, strict=True):
        assert agreement(tokens, position, tail) == places.length
        stop = tokens.index(SEPARATOR, position)
        assert list(ahead) == tokens[position : min(stop, position + AHEAD)]
        assert ahead


def _hidden(tokens: Sequence[int], tail: Sequence[int]) -> bool:
    """Whether more places have this end than are looked at: the best may be another."""
    ends = [
        place
        for place in range(BACK, len(tokens) - AHEAD)
        if agreement(tokens, place, tail) >= SIZES[0]
    ]
    return len(ends) > 8


@given(texts)
def test_every_place_of_a_text_is_found_again(texts: list[list[int]]) -> None:
    """By the tokens before it, where there are enough of them; never across two files."""
    made = of(texts)
    for text in texts:
        for place in range(SIZES[0], len(text)):
            places = made.search(text[:place])
            assert places is not None or _hidden(made.tokens.tolist(), text[:place])
            if places is not None and place <= BACK:
                assert places.length >= min(place, SIZES[-1]) or len(places.positions) > 0


def test_a_table_of_many_runs_is_sorted_and_whole() -> None:
    """Larger than what is sorted at once: each place is there once, by its size."""
    random = np.random.default_rng(3)
    length = 3 * (1 << 17) + 17
    tokens = index.joined([random.integers(0, 1000, length).astype(np.uint32)])
    tables = [part for part in index.keys(tokens) if len(part)]
    for size, table in zip(SIZES, tables, strict=True):
        assert len(table) == length - size + 1
        assert bool((table[1:] > table[:-1]).all())
        places = np.sort(table & np.uint64((1 << index.PLACE_BITS) - 1))
        assert places[0] == BACK + size
        assert bool((np.diff(places) == 1).all())


def test_a_file_that_has_not_changed_is_not_read_again(tmp_path: Path) -> None:
    """The index is the same as one that is made anew."""
    write(tmp_path / "src", a="alpha beta gamma delta " * 9, b="one two three", c="gone")
    path = tmp_path / "kept.index"
    first = built(path, [str(tmp_path / "src")])
    (tmp_path / "src" / "c").unlink()
    write(tmp_path / "src", b="one two four", d="new")
    read: list[str] = []
    again = built(path, [str(tmp_path / "src")], first, read=read)
    fresh = built(tmp_path / "fresh.index", [str(tmp_path / "src")])
    assert sorted(read) == ["new", "one two four"]
    assert again.contents == fresh.contents
    assert again.tokens.tolist() == fresh.tokens.tolist()


def test_nothing_is_written_where_nothing_has_changed(tmp_path: Path) -> None:
    """Binary files and secrets are not read each time either."""
    write(tmp_path / "src", a="alpha beta", b="bin\0ary", c="-----BEGIN PRIVATE KEY-----")
    path = tmp_path / "an.index"
    first = built(path, [str(tmp_path / "src")])
    before = path.stat()
    read: list[str] = []
    built(path, [str(tmp_path / "src")], first, read=read)
    assert (read, path.stat().st_ino) == ([], before.st_ino)
    (folder,) = first.contents.folders
    assert (folder.files, folder.left_out) == (1, {"binary": 1, "secret": 1})


def test_a_file_that_found_no_room_is_not_read_each_time(tmp_path: Path) -> None:
    """It is read again when it has changed, and has a place where there is room."""
    folder, path, read = tmp_path / "src", tmp_path / "an.index", list[str]()
    write(folder, a="alpha beta", b="long")

    def tokens(text: str) -> list[int]:
        read.append(text)
        return [1] * MOST_TOKENS if text == "long" else tokenize(text)

    def build_again(old: Index | None) -> Index:
        for _ in building.build([str(folder)], tokens, path, old):
            pass
        return Index.open(path)

    first = build_again(None)
    assert first.contents.crowded_out == 1
    assert [Path(each.path).name for each in first.contents.files] == ["a"]
    before = path.stat().st_ino
    read.clear()
    again = build_again(first)
    assert (read, path.stat().st_ino) == ([], before)
    write(folder, b="short")
    shorter = build_again(again)
    assert (read, shorter.contents.crowded_out, shorter.contents.too_long) == (["short"], 0, ())
    assert [Path(each.path).name for each in shorter.contents.files] == ["a", "b"]


def test_each_file_is_a_piece_whatever_it_holds(tmp_path: Path) -> None:
    """One that is left out too: a request that comes meanwhile waits for one file, not for all."""
    files = {f"{number:02}": "bin\0ary" for number in range(40)}
    write(tmp_path / "src", **files, text="alpha beta")
    pieces = building.build([str(tmp_path / "src")], tokenize, tmp_path / "an.index", None)
    assert len([*pieces]) > 40
    (folder,) = Index.open(tmp_path / "an.index").contents.folders
    assert (folder.files, folder.left_out) == (1, {"binary": 40})


def test_names_of_other_bytes_leave_an_index_whole(tmp_path: Path) -> None:
    """The rest of the folder is in it."""
    write(tmp_path / "src", a="alpha beta")
    (tmp_path / "src" / os.fsdecode(b"caf\xe9.py")).write_text("gamma")
    put = built(tmp_path / "an.index", [str(tmp_path / "src")])
    (folder,) = put.contents.folders
    assert (folder.files, folder.left_out) == (1, {"name not UTF-8": 1})


def test_an_index_is_the_owners_alone(tmp_path: Path) -> None:
    """Under any umask: 0600 in a directory of 0700; nothing is left beside it."""
    old = os.umask(0)
    try:
        path = tmp_path / "cache" / "corpus" / "an.index"
        write(tmp_path / "src", a="alpha beta")
        built(path, [str(tmp_path / "src")])
    finally:
        os.umask(old)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert [each.name for each in path.parent.iterdir()] == [path.name]


def test_secrets_and_binaries_are_nowhere_in_the_file(tmp_path: Path) -> None:
    """Not as tokens: those are letters here."""
    secret = "sk-" + "aB3dE5" * 5
    write(tmp_path / "src", a="alpha", b=f"key = {secret}", c=f"\0{secret}")
    put = built(tmp_path / "an.index", [str(tmp_path / "src")])
    said = bytes(token for token in put.tokens.tolist() if token < 256)
    assert said == b"alpha"


@pytest.mark.parametrize("damage", ["empty", "cut", "longer", "magic", "head", "text", "counts"])
def test_a_damaged_file_is_refused(tmp_path: Path, damage: str) -> None:
    """With a ValueError, whatever is wrong with it; then it is made anew."""
    path = tmp_path / "an.index"
    write(tmp_path / "src", a="alpha beta " * 20)
    built(path, [str(tmp_path / "src")])
    data = path.read_bytes()
    harmed = {
        "empty": b"", "cut": data[:-8], "longer": data + b"x", "magic": b"X" + data[1:],
        "head": data[:12] + b"\xff\xff\xff\xff" + data[16:], "text": data[:16] + b"{" + data[17:60],
        "counts": data.replace(b'"tokens":', b'"tokens":-', 1),
    }[damage]  # fmt: skip
    path.write_bytes(harmed)
    with pytest.raises(ValueError, match=r"index|head"):
        Index.open(path)


@given(st.data())
def test_a_file_whose_tables_are_wrong_finds_what_is_there(data: st.DataObject) -> None:
    """Places beyond its end, of tokens that differ: nothing is told that does not stand there."""
    made = of([[1, 2, 3, 4, 5, 6, 7, 8] * 4])
    tokens = made.tokens
    wrong = {}
    for size in SIZES:
        values = data.draw(st.lists(st.integers(0, (1 << 64) - 1), max_size=9))
        wrong[size] = np.asarray(sorted(values), np.uint64)
    harmed = Index(made.contents, tokens, wrong)
    places = harmed.search([1, 2, 3, 4, 5, 6, 7, 8])
    if places is not None:
        assert all(tokens[place - 1] == 8 for place in places.positions)


def test_a_full_disk_keeps_the_old_index(tmp_path: Path) -> None:
    """The new one is given up with the system's error."""
    path = tmp_path / "no" / "an.index"
    (tmp_path / "no").write_text("a file in the way")
    write(tmp_path / "src", a="alpha beta")
    with pytest.raises(OSError, match="exists"):
        built(path, [str(tmp_path / "src")])


def test_texts_longer_than_one_piece_have_all_their_tokens(tmp_path: Path) -> None:
    """Lines of any length."""
    text = "".join(f"line {number}\n" for number in range(3000)) + "x" * 20000 + "\nend"
    write(tmp_path / "src", a=text)
    made = built(tmp_path / "an.index", [str(tmp_path / "src")])
    (held,) = made.contents.files
    assert made.tokens[held.start : held.start + held.tokens].tolist() == tokenize(text)
