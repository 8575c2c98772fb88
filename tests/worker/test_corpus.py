"""A worker drafts from the user's folders, and keeps their index new. Real workers, tiny models."""

from __future__ import annotations

import string
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from worker_peer import Files, Worker, load

from localspec.config import Draft
from localspec.corpus import contents
from localspec.corpus.contents import Contents
from localspec.types import SpeculationParams
from localspec.wire.messages import Event, Heartbeat, Load
from localspec.worker.corpus import RESCAN_SECONDS, WATCHED_SECONDS, CorpusIndex

ALWAYS = SpeculationParams(mode="always", drafters=["corpus"])
LETTERS = tuple((letter, 8.0) for letter in string.ascii_lowercase)


class Letters:
    """A vocabulary of bytes."""

    n_vocab = 256

    def plain_tokens(self, text: str) -> list[int]:
        """A token for each byte."""
        return list(text.encode())

    def piece(self, token: int) -> bytes:
        """Its byte."""
        return bytes([token])


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home with a cache of its own."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "src").mkdir()
    return tmp_path


def finished(index: CorpusIndex, now: float) -> int:
    """Advance until nothing is to be done at that time; in how many pieces."""
    pieces = 0
    while index.advance(now):
        pieces += 1
    return pieces


def with_corpus(command: Load, *folders: str) -> Load:
    """The command with these folders."""
    config = msgspec.structs.replace(command.config, draft=Draft(corpus=folders))
    return msgspec.structs.replace(command, config=config)


@pytest.fixture
def worker(files: Files, home: Path) -> Iterator[Worker]:
    """A worker with the folder ~/src, and one that is not there."""
    worker = Worker(home)
    worker.send(with_corpus(load(files), "~/src", "~/gone"))
    worker.until_ready()
    yield worker
    worker.close()


def _beat(worker: Worker, wanted: Callable[[Heartbeat], bool]) -> Heartbeat:
    def stop(event: Event) -> bool:
        return isinstance(event, Heartbeat) and not event.indexing and wanted(event)

    found = worker.until(stop)[-1]
    assert isinstance(found, Heartbeat)
    return found


def _one() -> tuple[Path, Contents]:
    (found,) = contents.every()
    return found


def test_an_answer_is_drafted_from_a_file_that_was_written_meanwhile(
    worker: Worker, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The watched folder is read again, the tokens are plain's, and the source is named."""
    assert "corpus" in worker.ready.drafters
    beat = _beat(worker, lambda _: True)
    assert "0 files" in beat.corpus
    assert "~/gone is not there" in beat.corpus
    asked = {"max_tokens": 60, "biased_texts": LETTERS}
    plain = worker.one("say it", speculation=SpeculationParams(mode="off"), **asked)
    assert plain.text.isascii()
    (home / "src" / "answer.txt").write_text(f"Someone said: {plain.text}")
    beat = _beat(worker, lambda beat: "1 files" in beat.corpus)
    again = worker.one("say it", speculation=ALWAYS, **asked)
    assert again.tokens == plain.tokens
    source = again.finished.speculation.sources["corpus"]
    assert source.accepted > 0
    beat = worker.idle()
    assert beat.accepted_total["corpus"] == source.accepted
    monkeypatch.setenv("XDG_CACHE_HOME", str(home))  # as the worker has it
    path, held = _one()
    assert path.is_relative_to(home)
    assert [Path(each.path).name for each in held.files] == ["answer.txt"]


def test_a_worker_without_folders_has_no_such_source(files: Files, home: Path) -> None:
    """Nothing is read or written."""
    worker = Worker(home)
    worker.send(load(files))
    worker.until_ready()
    assert "corpus" not in worker.ready.drafters
    assert worker.idle().corpus == ""
    worker.close()
    assert not contents.every()


def test_an_index_is_made_in_pieces_and_kept_for_the_next_load(home: Path) -> None:
    """The next one has it at once, without reading a file that has not changed."""
    for number in range(9):
        (home / "src" / f"{number}.txt").write_text(f"words of file {number} " * 2000)
    first = CorpusIndex(["~/src"], Letters(), watch=False)
    assert first.index is None
    assert not first.over
    assert finished(first, 0.0) > 50
    assert first.over
    assert first.index is not None
    again = CorpusIndex(["~/src"], Letters(), watch=False)
    assert again.index is not None
    assert again.index.contents == first.index.contents
    assert finished(again, 0.0) < 10


def test_folders_that_are_no_longer_named_are_no_longer_used(home: Path) -> None:
    """Not for one request: their index is not opened."""
    (home / "src" / "a.txt").write_text("alpha beta gamma")
    (home / "other").mkdir()
    finished(CorpusIndex(["~/src", "~/other"], Letters(), watch=False), 0.0)
    left = CorpusIndex(["~/other"], Letters(), watch=False)
    assert left.index is None
    finished(left, 0.0)
    assert left.index is not None
    assert not left.index.contents.files


def test_a_folder_that_comes_later_is_found(home: Path) -> None:
    """At the next look; one that goes leaves nothing of it behind."""
    index = CorpusIndex(["~/late"], Letters(), watch=False)
    finished(index, 0.0)
    assert "~/late is not there" in index.sentence
    (home / "late").mkdir()
    (home / "late" / "a.txt").write_text("alpha")
    assert not index.advance(RESCAN_SECONDS / 2)
    finished(index, RESCAN_SECONDS)
    assert "1 files" in index.sentence
    (home / "late" / "a.txt").unlink()
    (home / "late").rmdir()
    finished(index, 2 * RESCAN_SECONDS)
    assert "~/late is not there" in index.sentence
    assert index.index is not None
    assert not index.index.contents.files


def test_an_index_that_cannot_be_written_is_told_and_tried_again(home: Path) -> None:
    """Nothing else fails."""
    (home / "cache").write_text("a file in the way")
    (home / "src" / "a.txt").write_text("alpha")
    index = CorpusIndex(["~/src"], Letters(), watch=False)
    finished(index, 0.0)
    assert "cannot be written" in index.sentence
    assert index.index is None
    (home / "cache").unlink()
    finished(index, RESCAN_SECONDS)
    assert "1 files" in index.sentence


def test_what_is_wrong_with_a_folder_is_written_down_once(
    home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Until it is right, and then wrong again: folders are looked at every minute."""
    caplog.set_level("INFO", "localspec.worker")
    folder = home / "gone"
    index = CorpusIndex(["~/gone", "~/src"], Letters(), watch=False)
    now = 0.0

    def looked(times: int) -> int:
        nonlocal now
        for _ in range(times):
            finished(index, now)
            now += RESCAN_SECONDS
        return len(caplog.records)

    assert looked(3) == 2  # the warning, and what the index has
    folder.mkdir()
    assert looked(3) == 3
    folder.rmdir()
    assert looked(3) == 5


@pytest.mark.parametrize("damage", [b"", b"LSCORPUS", b"x" * 5000])
def test_a_damaged_index_is_made_anew(home: Path, damage: bytes) -> None:
    """As if there were none."""
    (home / "src" / "a.txt").write_text("alpha")
    first = CorpusIndex(["~/src"], Letters(), watch=False)
    finished(first, 0.0)
    first.path.write_bytes(damage)
    again = CorpusIndex(["~/src"], Letters(), watch=False)
    assert again.index is None
    finished(again, 0.0)
    assert again.index is not None
    assert len(again.index.contents.files) == 1


def test_models_of_another_vocabulary_have_an_index_of_their_own(home: Path) -> None:
    """Tokens of one mean nothing to the other."""

    class Shifted(Letters):
        def plain_tokens(self, text: str) -> list[int]:
            return [(byte + 1) % 256 for byte in text.encode()]

    (home / "src" / "a.txt").write_text("alpha")
    for vocabulary in (Letters(), Shifted(), Letters()):
        finished(CorpusIndex(["~/src"], vocabulary, watch=False), 0.0)
    assert len(contents.every()) == 2


def test_a_watched_folder_is_looked_at_now_and_then_all_the_same(home: Path) -> None:
    """Events can be lost."""
    index = CorpusIndex(["~/src"], Letters())
    finished(index, 0.0)
    assert not index.advance(RESCAN_SECONDS)
    (home / "src" / "a.txt").write_text("alpha")
    finished(index, WATCHED_SECONDS)
    assert "1 files" in index.sentence
    index.close()


def test_a_watch_may_be_closed_while_it_begins(home: Path) -> None:
    """No thread of it fails, as pytest would tell, and none stays."""
    source, before = home / "src", set(threading.enumerate())
    for name in map(str, range(30)):
        (source / name).mkdir()
    for _ in range(60):
        index = CorpusIndex(["~/src"], Letters())
        while index.advance(0.0):
            pass
        index.close()
    for thread in set(threading.enumerate()) - before:
        thread.join(10)
        assert not thread.is_alive()
