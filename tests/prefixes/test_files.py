"""Files of prefixes: whole or not at all, this user's alone, and never more than they may be."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest
from full_disk import full_disk
from hypothesis import given, settings
from hypothesis import strategies as st

from localspec.prefixes import budget, files, identity
from localspec.prefixes.files import Header, Part, PrefixFiles, glance
from localspec.prefixes.tokens import packed, shared, unpacked
from localspec.wire.values import PrefixFigures

KEY = "0123456789abcdef"
SECRET = b"s" * 32
TEXT = packed(range(40))
PARTS = [Part(40, b"all that a slot held" * 50), Part(16, b"a state"), Part(32, b"another state")]


def header(tokens: bytes = TEXT, key: str = KEY, parts: list[Part] = PARTS) -> Header:
    """The header of these parts."""
    sizes = [(part.length, len(part.data)) for part in parts]
    return Header(key, "tiny", "target", "uid:1", len(tokens) // 4, sizes, trims=False)


def there(root: Path, most: int = 1 << 30, secret: bytes = SECRET) -> PrefixFiles:
    """The files below a directory."""
    return PrefixFiles(root, secret, lambda _used: most)


def written(store: PrefixFiles, tokens: bytes = TEXT) -> Path:
    """A file that must be written."""
    path = store.write(header(tokens), tokens, PARTS)
    assert path is not None
    return path


def whole(store: PrefixFiles, path: Path) -> bool:
    """Whether a file gives back what was written."""
    found = store.read(path)
    if found is None:
        return False
    listed, parts = found
    assert (listed.header, listed.tokens) == (header(), TEXT)
    assert [(part.length, bytes(part.data)) for part in parts] == PARTS
    return True


@given(st.lists(st.integers(0, 2**31 - 1), max_size=60), st.lists(st.integers(0, 3), max_size=60))
def test_texts_as_bytes(tokens: list[int], other: list[int]) -> None:
    """They come back, and begin alike as far as they do."""
    assert unpacked(packed(tokens)) == tokens
    for one, two in ((tokens, other), (other, tokens), (other, [*other, 1]), (other, other[::-1])):
        alike = next(
            (at for at, pair in enumerate(zip(one, two, strict=False)) if pair[0] != pair[1]),
            min(len(one), len(two)),
        )
        assert shared(packed(one), packed(two)) == alike


def test_what_is_written_is_read(tmp_path: Path) -> None:
    """By this user alone, found by its key, and nothing else is left in the directory."""
    store = there(tmp_path / "prefixes")
    path = written(store)
    assert whole(store, path)
    (listed,) = store.listed(KEY)
    assert (listed.path, listed.header, listed.tokens) == (path, header(), TEXT)
    assert store.listed("f" * 16) == []
    assert path.stat().st_mode & 0o777 == 0o600
    assert {each.stat().st_mode & 0o777 for each in (path.parent, store.root)} == {0o700}
    assert [*store.root.rglob("*")] == [path.parent, path]
    assert written(store) == path


@settings(max_examples=300)
@given(data=st.data())
def test_any_damage_is_found(data: st.DataObject, tmp_path_factory: pytest.TempPathFactory) -> None:
    """A flipped bit, a cut, something added or zeros instead: as if it were not there."""
    store = there(tmp_path_factory.mktemp("prefixes"))
    path = written(store)
    bits = bytearray(path.read_bytes())
    place = data.draw(st.integers(0, len(bits) - 1))
    match data.draw(st.sampled_from(["flip", "cut", "grow", "zeros"])):
        case "flip":
            bits[place] ^= 1 << data.draw(st.integers(0, 7))
        case "cut":
            del bits[place:]
        case "grow":
            bits[place:place] = b"x"
        case "zeros":
            before = bytes(bits)
            bits[place : place + 64] = bytes(len(bits[place : place + 64]))
            if bits == before:
                return
    path.write_bytes(bits)
    if data.draw(st.booleans()):
        store.listed(KEY)  # may find it first
    assert store.read(path) is None
    assert not path.exists()


def test_a_file_of_another_user_is_none(tmp_path: Path) -> None:
    """Who does not know the key cannot make one; nor is one found under another model's key."""
    made = there(tmp_path / "theirs", secret=b"t" * 32)
    path = written(made)
    mine = there(tmp_path / "mine")
    place = mine.root / KEY / path.name
    place.parent.mkdir(parents=True)
    place.write_bytes(path.read_bytes())
    assert mine.read(place) is None
    moved = mine.root / ("f" * 16) / path.name
    moved.parent.mkdir()
    moved.write_bytes(path.read_bytes())
    assert mine.listed("f" * 16) == []
    assert not moved.exists()


def test_links_and_others_files_are_not_followed(tmp_path: Path) -> None:
    """A link into the directory, a file that others may write, a directory, a fifo."""
    store = there(tmp_path / "prefixes")
    path = written(store)
    link = path.with_name(f"link{files.SUFFIX}")
    link.symlink_to(path)
    os.mkfifo(path.with_name(f"fifo{files.SUFFIX}"))
    (path.parent / f"folder{files.SUFFIX}").mkdir()
    loose = path.with_name(f"loose{files.SUFFIX}")
    loose.write_bytes(path.read_bytes())
    loose.chmod(0o666)
    assert [each.path for each in store.listed(KEY)] == [path]
    assert store.read(loose) is None
    assert whole(store, path)


def test_a_full_disk_is_told_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Nothing is left of what did not fit, and what was there stays; later it goes on."""
    store = there(tmp_path / "prefixes")
    path = written(store)
    with full_disk():
        for text in (packed(range(50)), packed(range(60))):
            assert store.write(header(text), text, PARTS) is None
        assert whole(store, path)
    assert [*path.parent.iterdir()] == [path]
    assert os.strerror(errno.EFBIG) in store.refused
    told = [record for record in caplog.records if record.name == "localspec.prefixes"]
    assert len(told) == 1
    assert whole(store, written(store))
    assert not store.refused


@pytest.mark.skipif(os.getuid() == 0, reason="root writes everywhere")
def test_a_directory_that_cannot_be_written(tmp_path: Path) -> None:
    """Nothing is kept there."""
    tmp_path.chmod(0o500)
    store = there(tmp_path / "prefixes")
    assert store.write(header(), TEXT, PARTS) is None
    assert store.refused
    tmp_path.chmod(0o700)


def test_a_file_in_the_way_of_the_directory(tmp_path: Path) -> None:
    """Nothing is kept, listed or deleted."""
    (tmp_path / "prefixes").write_text("mine")
    store = there(tmp_path / "prefixes")
    assert store.write(header(), TEXT, PARTS) is None
    assert store.listed(KEY) == []
    assert store.refused
    assert (tmp_path / "prefixes").read_text() == "mine"


def test_a_writer_that_is_stopped_leaves_nothing(tmp_path: Path) -> None:
    """Between two pieces, as when a worker has to leave; nor does one that was killed."""
    store = there(tmp_path / "prefixes")
    assert store.write(header(), TEXT, PARTS, going=lambda: False) is None
    assert [path for path in store.root.rglob("*") if path.is_file()] == []
    dead = next(pid for pid in range(2**22 - 1, 1, -1) if not Path(f"/proc/{pid}").exists())
    torn = store.root / KEY / f".torn{files.SUFFIX}.{dead}.1.tmp"
    torn.write_bytes(b"half of it")
    mine = torn.with_name(f".mine{files.SUFFIX}.{os.getpid()}.1.tmp")
    mine.write_bytes(b"in the making")
    written(store)
    assert (torn.exists(), mine.exists()) == (False, True)


def test_the_oldest_go_first(tmp_path: Path) -> None:
    """There are never more bytes than may be; used ones stay, other models' files count."""
    texts = [packed(range(40, 60 + number)) for number in range(5)]
    store = there(tmp_path / "prefixes")
    paths = [written(store, text) for text in texts[:3]]
    size = max(path.stat().st_size for path in paths)
    foreign = store.write(header(TEXT, "e" * 16), TEXT, PARTS)
    assert foreign is not None
    for age, path in enumerate([paths[1], foreign, paths[2], paths[0]]):
        os.utime(path, (1000 + age, 1000 + age))
    store.used(paths[1])
    tight = there(store.root, most=4 * size + 400)
    paths.append(written(tight, texts[3]))
    assert [path.exists() for path in (*paths, foreign)] == [True, True, True, True, False]
    paths.append(written(tight, texts[4]))
    assert [path.exists() for path in paths] == [True, True, False, True, True]
    assert tight.used_bytes() <= 4 * size + 400
    assert there(store.root, most=100).write(header(), TEXT, PARTS) is None
    assert [path.exists() for path in paths] == [True, True, False, True, True]


def test_all_of_it_is_cleared(tmp_path: Path) -> None:
    """Files of every model, torn ones as well, and nothing else."""
    store = there(tmp_path / "prefixes")
    path = written(store)
    budget.add_saved(store.root, PrefixFigures(hits=1, tokens=5, seconds=2.0))
    budget.add_saved(store.root, PrefixFigures(hits=2, tokens=6, seconds=1.0))
    assert budget.saved(store.root) == PrefixFigures(hits=3, tokens=11, seconds=3.0)
    other = store.root / "notes.txt"
    other.write_text("mine")
    size = path.stat().st_size
    assert files.clear(store.root) == (1, size)
    assert other.exists()
    assert not path.exists()
    assert files.clear(tmp_path / "nowhere") == (0, 0)


def test_the_secret_is_this_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Made once; where it cannot be kept there is one for each process."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    made = files.secret()
    assert (len(made), files.secret()) == (32, made)
    (path,) = tmp_path.rglob("prefixes.key")
    assert path.stat().st_mode & 0o777 == 0o600
    path.write_bytes(b"short")
    again = files.secret()
    assert len(again) == 32
    assert again != made
    path.unlink()
    with full_disk():
        assert files.secret() != files.secret()


def test_a_model_is_what_it_holds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same content under another name is the same; a changed file is read anew."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    one, other = tmp_path / "one.gguf", tmp_path / "other.gguf"
    for path in (one, other):
        path.write_bytes(b"weights" * 100)
    assert identity.known([one]) is None
    first = identity.learn([one])
    assert first is not None
    assert (identity.known([one]), identity.learn([other])) == (first, first)
    before = one.stat()
    one.write_bytes(b"Weights" * 100)
    os.utime(one, ns=(before.st_atime_ns, before.st_mtime_ns))  # as rsync would
    assert identity.known([one]) is None
    second = identity.learn([one])
    assert second not in {None, first}
    assert identity.learn([one, other]) not in {first, second, identity.learn([other, one])}
    assert identity.learn([tmp_path / "missing.gguf"]) is None


def test_headers_of_a_file_are_bounded(tmp_path: Path) -> None:
    """A header that promises more than there is, or nothing, is damage."""
    store = there(tmp_path / "prefixes")
    for bad in (
        header(parts=[Part(40, b"")]),
        header(parts=[]),
        header(parts=[Part(0, b"x")]),
        header(parts=[Part(1, b"x")] * 100),
        header(tokens=b""),
    ):
        path = tmp_path / "bad.prefix"
        path.write_bytes(files._beginning(bad, TEXT) + bytes(32))  # noqa: SLF001 - what no writer makes
        path.chmod(0o600)
        with pytest.raises(files.Damaged):
            glance(path)
    assert store.listed(KEY) == []
