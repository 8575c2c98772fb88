"""The prefix store of one process: copies in memory, files on disk, and the search in both.

Copies are found by the longest common prefix among texts of the same client. Those used longest ago
are dropped first, in memory and on disk. A thread writes to disk, in pauses if there are any.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from localspec.prefixes.files import Header, Listed, Part, PrefixFiles
from localspec.prefixes.tokens import WIDTH, shared

_log = logging.getLogger("localspec.prefixes")

_PAUSE_SECONDS = 0.05
"""A writer waits so long before each piece while requests are answered: 80 MB a second at most."""
_QUEUE_BYTES = 256 << 20
"""Bytes that may wait to be written, even if memory may hold fewer; one copy always may."""


@dataclass(slots=True, eq=False)
class Entry:
    """One text whose memory is kept. `parts` are None where it is on disk only.

    `lengths` are those at which it can be taken over; () where its memory can be cut to any length.
    """

    key: str
    role: str
    client: str
    text: bytes
    lengths: tuple[int, ...]
    size: int
    parts: tuple[Part, ...] | None = None
    path: Path | None = None
    from_disk: bool = False
    """Its parts were read from its file, and not used since."""

    def usable(self, length: int) -> int:
        """How many of the first `length` tokens it can give, all of which it holds."""
        if not self.lengths:
            return length
        return max((each for each in self.lengths if each <= length), default=0)


@dataclass(frozen=True, slots=True)
class Amount:
    """The size of a store: texts, and bytes in memory and on disk."""

    texts: int = 0
    memory_bytes: int = 0
    disk_bytes: int = 0


class PrefixStore:
    """Prefixes of several models and clients, for one process. Any thread.

    Args:
        memory_bytes: All copies in memory together.
        files: Where they are on disk; None for nowhere.
        model: The name under which files are listed for people.
    """

    def __init__(self, memory_bytes: int, files: PrefixFiles | None, model: str = "") -> None:
        self.memory_bytes = memory_bytes
        self.files = files
        self._model = model
        self._lock = threading.Lock()
        self._entries: OrderedDict[Entry, None] = OrderedDict()
        """The one used longest ago first."""
        self._scanned: set[str] = set()
        self._queue: list[tuple[Entry, tuple[Part, ...], float]] = []
        self._writing = False
        self._changed = threading.Condition(self._lock)
        self._resting = threading.Event()
        self._resting.set()
        self._until: float | None = None
        """When the writer stops, by `time.monotonic`."""
        self._thread: threading.Thread | None = None

    # --- finding ----------------------------------------------------------------------------------

    def find(self, key: str, role: str, client: str, text: bytes) -> tuple[Entry, int] | None:
        """The entry that gives most of this text's beginning, and how many tokens it gives."""
        self._scan(key)
        with self._lock:
            return self._find(key, role, client, text)

    def _find(self, key: str, role: str, client: str, text: bytes) -> tuple[Entry, int] | None:
        best: tuple[int, bool, Entry] | None = None
        for entry in self._entries:
            if (entry.key, entry.role, entry.client) != (key, role, client):
                continue
            length = entry.usable(shared(entry.text, text))
            here = entry.parts is not None
            if length and (best is None or (length, here) > best[:2]):
                best = length, here, entry
        return (best[2], best[0]) if best else None

    def _scan(self, key: str) -> None:
        """List a key's files, once: files that other processes write later are not looked for."""
        if self.files is None or key in self._scanned:
            return
        found = sorted(self.files.listed(key), key=lambda each: each.used_at)
        with self._lock:
            if key in self._scanned:
                return
            self._scanned.add(key)
            for listed in reversed(found):
                entry = _entry(listed)
                self._entries[entry] = None
                self._entries.move_to_end(entry, last=False)

    def parts(self, entry: Entry) -> tuple[Part, ...] | None:
        """The memory of a text, read from its file if need be; None where the file is gone."""
        with self._lock:
            if entry.parts is not None:
                self._entries.move_to_end(entry)
                return entry.parts
            path = entry.path
        read = self.files.read(path) if self.files and path else None
        with self._lock:
            if read is None or not _same(_entry(read[0]), entry):
                self._entries.pop(entry, None)
                return None
            parts = tuple(read[1])
            if entry in self._entries:
                entry.parts, entry.from_disk = parts, True
                self._entries.move_to_end(entry)
                self._shrink(entry)
        return parts

    def used(self, entry: Entry) -> None:
        """Note that a text was taken over by a slot."""
        with self._lock:
            entry.from_disk = False
            if entry in self._entries:
                self._entries.move_to_end(entry)
            path = entry.path
        if path and self.files:
            self.files.used(path)

    # --- keeping ----------------------------------------------------------------------------------

    def room(self, size: int) -> bool:
        """Whether a copy of `size` bytes may be made now."""
        with self._lock:
            queued = sum(entry.size for entry, _, _ in self._queue)
        if size <= self.memory_bytes and queued <= self.memory_bytes:
            return True
        waits = queued + size <= _QUEUE_BYTES or not queued
        written = self.files is not None and not self.files.refused
        return waits and written and size <= self._disk_bytes()

    def _disk_bytes(self) -> int:
        return self.files.most_bytes(self.amount(here=False).disk_bytes) if self.files else 0

    def keep(self, entry: Entry, parts: Sequence[Part], read_seconds: float = 0.0) -> None:
        """Keep a text: in memory at once, on disk soon. Texts that it replaces are dropped."""
        with self._lock:
            for old in [each for each in self._entries if _replaces(entry, each)]:
                if old.path is None:
                    self._drop(old)
                else:  # its file stays until there is the new one
                    old.parts = None
            entry.parts = tuple(parts)
            self._entries[entry] = None
            if self.files is not None:
                self._queue.append((entry, entry.parts, read_seconds))
                self._hurry()
            self._shrink()
            self._changed.notify_all()

    def _hurry(self) -> None:
        """Let the writer begin; copies that it is too slow for are not written."""
        most = max(self.memory_bytes, self._queue[-1][0].size, _QUEUE_BYTES)
        while len(self._queue) > 2 and sum(each[0].size for each in self._queue) > most:  # noqa: PLR2004
            del self._queue[1]  # the first may be half written
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="prefixes", daemon=True)
            self._thread.start()

    def _drop(self, entry: Entry) -> None:
        self._entries.pop(entry, None)
        self._queue = [each for each in self._queue if each[0] is not entry]

    def forget(self, entry: Entry) -> None:
        """Delete a text everywhere."""
        with self._lock:
            self._drop(entry)
        if entry.path and self.files:
            self.files.drop(entry.path, "it could not be taken over")

    def clear(self) -> None:
        """Forget everything in memory, and all files that this process knows."""
        with self._lock:
            entries = list(self._entries)
            self._entries.clear()
            self._queue.clear()
            self._until = time.monotonic() if self._writing else self._until
            while self._writing:
                self._changed.wait()
            self._until = None
        for entry in entries:
            if entry.path:
                entry.path.unlink(missing_ok=True)

    def _shrink(self, newest: Entry | None = None) -> None:
        """Drop copies in memory, those used longest ago first, until the rest is within bounds.

        `newest` is kept whatever its size, and so are copies that wait to be written.
        """
        held = [entry for entry in self._entries if entry.parts is not None]
        total = sum(entry.size for entry in held)
        for entry in held:
            if total <= self.memory_bytes:
                return
            if entry is newest or any(each[0] is entry for each in self._queue):
                continue
            entry.parts = None
            total -= entry.size
            if entry.path is None:
                self._entries.pop(entry, None)

    def amount(self, *, here: bool = True) -> Amount:
        """The size of the store; `here` counts only the files on disk that this process knows."""
        with self._lock:
            entries = list(self._entries)
        texts = {(entry.client, entry.text) for entry in entries if entry.role == "target"}
        memory = sum(entry.size for entry in entries if entry.parts is not None)
        if here or self.files is None:
            disk = sum(entry.size for entry in entries if entry.path is not None)
        else:
            disk = self.files.used_bytes()
        return Amount(len(texts), memory, disk)

    # --- writing ----------------------------------------------------------------------------------

    def rest(self, *, resting: bool) -> None:
        """Say whether there are no requests: then the writer writes as fast as it can."""
        if resting:
            self._resting.set()
        else:
            self._resting.clear()

    def _work(self) -> None:
        while True:
            with self._lock:
                self._changed.wait_for(lambda: self._queue)
                entry, parts, read_seconds = self._queue[0]
                self._writing = True
            path = self._written(entry, parts, read_seconds)
            with self._lock:
                self._wrote(entry, path)

    def _wrote(self, entry: Entry, path: Path | None) -> None:
        """Note the end of a write, and that there may be nothing more to do."""
        self._queue = [each for each in self._queue if each[0] is not entry]
        self._writing = False
        gone = path is not None and entry not in self._entries  # cleared meanwhile
        if path is not None and not gone:
            entry.path = path
            for old in [each for each in self._entries if _replaces(entry, each)]:
                self._entries.pop(old)
                if old.path and old.path != path:
                    old.path.unlink(missing_ok=True)
        elif path is not None:
            path.unlink(missing_ok=True)
        self._shrink()
        self._changed.notify_all()

    def _written(self, entry: Entry, parts: Sequence[Part], read_seconds: float) -> Path | None:
        assert self.files is not None  # noqa: S101 - nothing is queued without
        header = Header(
            entry.key,
            self._model,
            entry.role,
            entry.client,
            len(entry.text) // WIDTH,
            [(part.length, memoryview(part.data).nbytes) for part in parts],
            not entry.lengths,
            read_seconds,
        )
        try:
            return self.files.write(header, entry.text, parts, self._going)
        except Exception:  # noqa: BLE001 - a bug of ours costs the store, not the worker
            _log.exception("a prefix was not written")
            return None

    def _going(self) -> bool:
        """Whether to go on writing; waits a little while there are requests."""
        if not self._resting.is_set() and self._until is None:
            self._resting.wait(_PAUSE_SECONDS)
        return self._until is None or time.monotonic() < self._until

    def close(self, seconds: float) -> None:
        """Write what waits to be written, for so long at most."""
        until = time.monotonic() + seconds
        with self._lock:
            self._until = until
            self._changed.wait_for(lambda: not self._queue and not self._writing, seconds)
            self._queue.clear()


def _entry(listed: Listed) -> Entry:
    header = listed.header
    lengths = tuple(sorted({length for length, _ in header.parts}))
    return Entry(
        header.key,
        header.role,
        header.client,
        listed.tokens,
        () if header.trims else lengths,
        sum(count for _, count in header.parts),
        path=listed.path,
    )


def _same(one: Entry, other: Entry) -> bool:
    """Whether a file still is what it was when it was listed."""
    mine = (one.key, one.role, one.client, one.text, one.lengths)
    return mine == (other.key, other.role, other.client, other.text, other.lengths)


def _replaces(new: Entry, old: Entry) -> bool:
    """Whether the new entry gives all that the old one gives."""
    if new is old or (new.key, new.role, new.client) != (old.key, old.role, old.client):
        return False
    if not new.text.startswith(old.text):
        return False
    if not new.lengths:
        return True
    return bool(old.lengths) and set(old.lengths) <= set(new.lengths)
