"""Keeps the index of the user's folders: built while the worker is idle, again on changes."""

from __future__ import annotations

import logging
import threading
from collections.abc import Generator, Iterable, Sequence
from pathlib import Path
from typing import Protocol

from watchdog.events import (
    FileClosedEvent,
    FileCreatedEvent,
    FileDeletedEvent,
    FileModifiedEvent,
    FileMovedEvent,
    FileSystemEvent,
    FileSystemEventHandler,
)
from watchdog.observers import Observer
from watchdog.observers.api import BaseObserver

from localspec.corpus import building, contents, folders
from localspec.corpus.building import Built
from localspec.corpus.folders import Found
from localspec.corpus.index import Index
from localspec.types import Token

_log = logging.getLogger("localspec.worker")

SETTLE_SECONDS = 2.0
"""Wait after the latest event of a change: a checkout of another branch sends many."""
RESCAN_SECONDS = 60.0
"""Wait between two scans of folders that cannot be watched, and after a scan that failed."""
WATCHED_SECONDS = 600.0
"""Wait between two scans of watched folders: inotify's queue overflows, its thread can die."""
_MOST_WATCHED = 4096
"""The most directories that are watched: the kernel allows a user 8192 watches by default."""
_SAMPLED_PIECES = 4096
_SAMPLE = (
    "def naïve(x1, y2):\n    return f'{x1 + 1234}'  # 你好 -- \t\"_\"\n\n\nclass HTTPServer: ...\n"
)
_KINDS: list[type[FileSystemEvent]] = [
    FileClosedEvent, FileCreatedEvent, FileDeletedEvent, FileModifiedEvent, FileMovedEvent,
]  # fmt: skip


class Tokenizer(Protocol):
    """A model's vocabulary; `engine.llama.model.Model`."""

    n_vocab: int

    def plain_tokens(self, text: str) -> list[Token]:
        """The tokens of a text; special tokens in it are read as plain text."""

    def piece(self, token: Token) -> bytes:
        """The bytes that a token writes."""


class CorpusIndex:
    """The newest index of some folders, for the drafter; an idle task that keeps it up to date.

    Args:
        names: The folders, as the configuration names them.
        model: The target's vocabulary; models with the same vocabulary share an index.
        name: The target's name, for people.
        watch: Whether the folders are watched; otherwise they are only scanned now and then.
    """

    def __init__(
        self, names: Sequence[str], model: Tokenizer, name: str = "", *, watch: bool = True
    ) -> None:
        self.index: Index | None = None
        self._names = tuple(dict.fromkeys(names))
        self._model = model
        self._name = name
        pieces = range(0, model.n_vocab, max(1, model.n_vocab // _SAMPLED_PIECES))
        sample = model.plain_tokens(_SAMPLE)
        known = [model.n_vocab.to_bytes(4, "little"), *map(model.piece, pieces)]
        self.path = contents.file_of(contents.vocabulary_name(known, sample))
        self._watch = _Watch() if watch else None
        self._building: Generator[None, None, Built] | None = None
        self._due_at = 0.0
        self._looked = False
        self._why = ""
        self._told = ""
        self._warned: frozenset[str] = frozenset()
        self._take()

    @property
    def sentence(self) -> str:
        """The index's contents and what is wrong with them, for people."""
        if self._why:
            return self._why
        if self.index is None or not self._looked:
            return "being read while idle"
        return self.index.contents.sentence

    @property
    def over(self) -> bool:
        """Whether the folders were read and nothing is known to have changed."""
        return self._looked and self._building is None

    def advance(self, now: float) -> bool:
        """Do one piece of work at `now`, in seconds; False where there is nothing to do."""
        if self._building is None:
            changed = self._watch is not None and self._watch.settled(now)
            if not changed and now < self._due_at:
                return False
            self._building = building.build(
                self._names, self._model.plain_tokens, self.path, self.index, self._name
            )
        try:
            next(self._building)
        except StopIteration as end:
            self._building = None
            self._built(end.value, now)
        except OSError as error:
            self._building = None
            self._looked, self._due_at = True, now + RESCAN_SECONDS
            self._why = f"cannot be written: {error.strerror}"
            self._warn(f"corpus not written path={self.path} reason={error}")
        return True

    def close(self) -> None:
        """Stop watching."""
        if self._watch is not None:
            self._watch.close()

    def _take(self) -> None:
        """Map the index that is on disk, if it covers no folders but these."""
        try:
            found = Index.open(self.path)
        except FileNotFoundError:
            return
        except (OSError, ValueError) as error:
            _log.warning("corpus ignored path=%s reason=%s", self.path, error)
            return
        if {each.folder for each in found.contents.folders} <= set(self._names):
            self.index = found

    def _built(self, built: Built, now: float) -> None:
        self._why = ""
        if built.path is not None:
            self._take()
        self._looked = True
        watched = self._watch is not None and self._watch.follow(built.found)
        self._due_at = now + (WATCHED_SECONDS if watched else RESCAN_SECONDS)
        if built.changing:
            self._due_at = now + SETTLE_SECONDS
        self._warn(*(f"corpus folder: {each.why}" for each in built.found if each.why))
        if self.sentence != self._told:
            _log.info("corpus %s", self.sentence)
        self._told = self.sentence

    def _warn(self, *sentences: str) -> None:
        """Log what is wrong with the latest build; a problem that persists is logged once."""
        for sentence in sentences:
            if sentence not in self._warned:
                _log.warning("%s", sentence)
        self._warned = frozenset(sentences)


class _Watch(FileSystemEventHandler):
    """Notes that a file of the walked directories has changed. Events come on watchdog's thread."""

    def __init__(self) -> None:
        self._observer: BaseObserver | None = None
        self._closed = threading.Event()
        self._roots: frozenset[str] = frozenset()
        self._directories: frozenset[str] = frozenset()
        self._changes = self._seen = 0
        self._settling: float | None = None

    def settled(self, now: float) -> bool:
        """Whether something changed, and then nothing for `SETTLE_SECONDS`."""
        if self._changes != self._seen:
            self._seen, self._settling = self._changes, now + SETTLE_SECONDS
        if self._settling is None or now < self._settling:
            return False
        self._settling = None
        return True

    def follow(self, found: Iterable[Found]) -> bool:
        """Watch the folders that were walked; False where they cannot be."""
        usable = [each for each in found if not each.why]
        self._directories = frozenset().union(*(each.directories for each in usable))
        roots = frozenset(str(folders.place_of(each.folder).resolve()) for each in usable)
        if len(self._directories) > _MOST_WATCHED:
            roots = frozenset()
        if roots != self._roots or (self._observer and not self._observer.is_alive()):
            self.close()
            self._roots = roots
            self._observer = self._begin(roots) if roots else None
        return self._observer is not None

    def on_any_event(self, event: FileSystemEvent) -> None:
        """Called by watchdog. Counts changes in walked directories; ignored ones are not walked."""
        names = (event.src_path, getattr(event, "dest_path", ""))
        places = (
            str(Path(name if isinstance(name, str) else name.decode())) for name in names if name
        )
        if any(str(Path(each).parent) in self._directories for each in places):
            self._changes += 1

    def close(self) -> None:
        """End the watching."""
        if self._observer is not None:
            self._closed.set()
            if self._observer.is_alive():  # one still starting is stopped in `watch`
                self._observer.stop()
            self._observer = None

    def _begin(self, roots: Iterable[str]) -> BaseObserver:
        """An observer, started on a thread of its own: it walks through all directories first."""
        observer, closed = Observer(), threading.Event()
        self._closed = closed

        def watch() -> None:
            try:
                for root in roots:
                    observer.schedule(self, root, recursive=True, event_filter=_KINDS)
                observer.start()
            except OSError as error:  # no watches left: scans still find changes
                _log.warning("corpus not watched reason=%s", error)
            if closed.is_set() and observer.is_alive():
                observer.stop()

        threading.Thread(target=watch, name="corpus-watch", daemon=True).start()
        return observer
