"""Watches the configuration and the models directory, and reloads after changes."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Self, TypeAlias

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

_log = logging.getLogger("localspec.reload")

RESCAN_SECONDS = 30.0
"""Rescans also find changes without an event: inotify's queue overflows, and its thread can die."""
SETTLE_SECONDS = 0.2
MAX_SETTLE_SECONDS = 2.0
"""Copying a model sends events for minutes; a change of the configuration does not wait so long."""
END_SECONDS = 2.0
"""The longest wait for watchdog's threads: one holds back events of moves for half a second."""

Places: TypeAlias = tuple[Path, Path]
"""The configuration file and the models directory."""


class Watcher(FileSystemEventHandler):
    """Calls `reload` after each event and rescan, with whether the files have changed.

    Use in `with`; `run` is a task on the event loop, events come from watchdog's thread.
    """

    def __init__(
        self,
        places: Callable[[], Places],
        reload: Callable[[bool], Awaitable[None]],
        rescan_seconds: float = RESCAN_SECONDS,
    ) -> None:
        self._places = places
        self._reload = reload
        self._rescan_seconds = rescan_seconds
        self._loop = asyncio.get_running_loop()
        self._hint = asyncio.Event()
        self._asked = 0
        self.answered = 0
        """How many calls of `force` the finished reloads have answered."""
        self._observer: BaseObserver | None = None
        self._watched: Places | None = None

    def __enter__(self) -> Self:
        self._seen = _snapshot(*self._places())
        self._watch()
        return self

    def __exit__(self, *_: object) -> None:
        self._unwatch()

    def force(self) -> None:
        """Reload even if no file has changed: SIGHUP."""
        self._asked += 1
        self._hint.set()

    async def run(self) -> None:
        """Watch for ever."""
        while True:
            await self._hint_or_rescan()
            asked = self._asked
            seen = await asyncio.to_thread(_snapshot, *self._places())
            changed = asked != self.answered or seen != self._seen
            self._seen = seen
            try:
                await self._reload(changed)
            except Exception:  # noqa: BLE001 - a failed reload must not end the watching
                _log.exception("reload_failed")
            self.answered = asked
            self._watch()

    def on_any_event(self, event: FileSystemEvent) -> None:  # noqa: ARG002 - watchdog's signature
        """Called by watchdog on its own thread."""
        with contextlib.suppress(RuntimeError):  # the loop has just closed
            self._loop.call_soon_threadsafe(self._hint.set)

    async def _hint_or_rescan(self) -> None:
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._hint.wait(), self._rescan_seconds)
            async with asyncio.timeout(MAX_SETTLE_SECONDS):
                while self._hint.is_set() and self._asked == self.answered:
                    self._hint.clear()
                    await asyncio.sleep(SETTLE_SECONDS)
        self._hint.clear()

    def _watch(self) -> None:
        """Keep a living observer on the directories that exist now."""
        places = self._places()
        if self._observer and self._observer.is_alive() and self._watched == places:
            return
        self._unwatch()
        config_path, models = places
        observer = Observer()
        kinds: list[type[FileSystemEvent]] = [
            FileClosedEvent, FileCreatedEvent, FileDeletedEvent, FileModifiedEvent, FileMovedEvent
        ]  # fmt: skip
        wanted = {config_path.parent, models}
        try:
            there = [directory for directory in wanted if directory.is_dir()]
            for directory in there:
                observer.schedule(self, str(directory), event_filter=kinds)
            observer.start()
        except OSError as error:  # no inotify instances left: the rescan remains
            _log.warning("not_watching reason=%s", error)
            return
        self._observer, self._watched = observer, places if len(there) == len(wanted) else None

    def _unwatch(self) -> None:
        """End the observer, and wait for its threads for a bounded time: they block nothing."""
        observer, self._observer = self._observer, None
        if observer:
            ending = threading.Thread(target=_end, args=(observer,), daemon=True)
            ending.start()
            ending.join(END_SECONDS)
            if ending.is_alive():
                _log.warning("watcher_still_ends")


def _end(observer: BaseObserver) -> None:
    observer.stop()  # joins the threads that read, without a limit
    observer.join()


def _snapshot(config_path: Path, models: Path) -> tuple[object, ...]:
    """Path, inode, size and time of each file. Runs in a thread: directories can be slow."""
    found: list[tuple[str, int, int, int]] = []
    files = [config_path]
    with contextlib.suppress(OSError):
        files += models.iterdir()
    for path in files:
        with contextlib.suppress(OSError):
            status = path.stat()
            found.append((str(path), status.st_ino, status.st_size, status.st_mtime_ns))
    return tuple(sorted(found))
