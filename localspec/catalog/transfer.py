"""A file being fetched: `<file>.partial`, its progress reports and its errors.

A partial file is always a prefix of the whole file, whichever source sent it, so any source can
continue where another stopped. Of a file whose SHA-256 is not known, `<file>.partial.json` says
which version its bytes are of; only that one is continued. The file is also its own lock: a process
that extends it holds an flock on it.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Literal, TypeAlias

import msgspec

from localspec import paths
from localspec.catalog.entries import Entry
from localspec.catalog.locks import locked
from localspec.catalog.memory import show_bytes
from localspec.errors import ChecksumMismatch, DiskFull, ModelError, PullError

CHUNK_BYTES = 1024 * 1024

Stage: TypeAlias = Literal[
    "connecting",
    "waiting",
    "downloading",
    "copying",
    "verifying",
    "quantizing",
    "measuring",
    "skipped",
    "done",
]


class Step(msgspec.Struct, frozen=True):
    """The progress of preparing one model. `detail` names the source, or the reason."""

    model: str
    stage: Stage
    done_bytes: int = 0
    total_bytes: int = 0
    detail: str = ""


Report: TypeAlias = Callable[[Step], None]


class NoAnswer(Exception):
    """A source could not deliver; the message says why, and the next source is tried."""


class Version(msgspec.Struct, frozen=True):
    """A URL, and the strong ETag or date by which its server knows the file; "" if it has none."""

    url: str = ""
    validator: str = ""


def remains(destination: Path) -> tuple[Path, Path]:
    """The files that an interrupted fetch of a file may leave: its bytes, and their version."""
    name = f"{destination.name}.partial"
    return destination.with_name(name), destination.with_name(f"{name}.json")


class Partial:
    """The prefix of `entry.file` that is here already. For one owner and one thread at a time."""

    def __init__(
        self,
        handle: int,
        path: Path,
        entry: Entry,
        report: Report,
        before_naming: Callable[[], None],
    ) -> None:
        self.entry = entry
        self.path = path
        self.num_bytes = 0
        self.source = ""
        self.version = Version()
        self._record = path.with_name(f"{path.name}.json")
        self._reported = 0
        self._file = os.fdopen(handle, "r+b")
        self._digest = hashlib.sha256()
        self._report = report
        self._before_naming = before_naming

    @property
    def missing_bytes(self) -> int:
        """Bytes that are still to be fetched."""
        return self.entry.size_bytes - self.num_bytes

    def resume(self) -> None:
        """Hash the bytes that an earlier pull left."""
        left = os.fstat(self._file.fileno()).st_size
        if self.entry.sha256:
            self._record.unlink(missing_ok=True)  # other sources may continue it now
        else:
            self.version = self._recorded()
        if left > self.entry.size_bytes or not (self.entry.sha256 or self.version.validator):
            self.restart()
        self._file.seek(0)
        while chunk := self._file.read(CHUNK_BYTES):
            self._digest.update(chunk)
            self.num_bytes += len(chunk)
            self._report_progress("verifying")

    def begin(self, version: Version) -> None:
        """Take note of the version that the first byte is of, for a file without SHA-256.

        Raises DiskFull, PullError.
        """
        if self.entry.sha256:
            return
        self.version = version
        if not version.validator:
            return  # only this process can continue it
        try:
            os.fsync(self._file.fileno())  # the bytes of another version are gone before
            paths.write_atomically(self._record, msgspec.json.encode(version))
        except OSError as error:
            raise disk_error(error, self.path, self.missing_bytes) from error

    def keep_only(self, url: str) -> None:
        """Discard the bytes of a file without SHA-256 if they came from another URL."""
        if self.num_bytes and not self.entry.sha256 and self.version.url != url:
            self.restart()

    def _recorded(self) -> Version:
        with contextlib.suppress(OSError, msgspec.DecodeError):
            return msgspec.json.decode(paths.read_regular(self._record), type=Version)
        return Version()

    def append(self, chunk: bytes) -> None:
        """Add the next bytes of the file. Raises NoAnswer when there are too many, DiskFull."""
        if len(chunk) > self.missing_bytes:
            raise NoAnswer(f"it sent more than {self.entry.size_bytes} bytes")
        try:
            self._file.write(chunk)
        except OSError as error:
            raise disk_error(error, self.path, self.missing_bytes) from error
        self._digest.update(chunk)
        self.num_bytes += len(chunk)
        self._report_progress("downloading")

    def announce(self, extra_bytes: int = 0) -> None:
        """Report progress; `extra_bytes` are downloaded but not yet in this file."""
        self._report_progress("downloading", min(extra_bytes, self.missing_bytes))

    def restart(self) -> None:
        """Discard all bytes, which are not those of the wanted file."""
        self._file.seek(0)
        self._file.truncate()
        self._record.unlink(missing_ok=True)
        self.version = Version()
        self._digest = hashlib.sha256()
        self.num_bytes = self._reported = 0

    def commit(self, destination: Path) -> None:
        """Rename the complete file to `destination`.

        A wrong checksum discards all bytes. Raises ChecksumMismatch, DiskFull, PullError.
        """
        found = self._digest.hexdigest()
        if self.entry.sha256 and found != self.entry.sha256:
            self.restart()
            raise ChecksumMismatch(
                f"{self.entry.file} from {self.source} has SHA-256 {found}, and "
                f"{self.entry.sha256} was announced. It was discarded.",
                fix="Run the same command again. If that does not help, what is there is not "
                "what is listed.",
            )
        try:
            self._file.flush()
            os.fsync(self._file.fileno())
        except OSError as error:
            raise disk_error(error, self.path, self.missing_bytes) from error
        self._before_naming()
        self.path.replace(destination)
        self._record.unlink(missing_ok=True)

    def close(self) -> None:
        """Keep the bytes for the next pull; an empty partial is removed."""
        with contextlib.suppress(OSError):  # bytes that were not written are fetched again
            self._file.flush()
        left = os.fstat(self._file.fileno())
        if left.st_nlink and not left.st_size:
            self._record.unlink(missing_ok=True)
            self.path.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            self._file.close()

    def _report_progress(self, stage: Stage, extra_bytes: int = 0) -> None:
        # Bytes of a wheel are reported while it grows, and not taken back while it is read.
        self._reported = max(self._reported, self.num_bytes + extra_bytes)
        step = Step(self.entry.name, stage, self._reported, self.entry.size_bytes, self.source)
        self._report(step)


@contextlib.contextmanager
def open_partial(
    entry: Entry,
    destination: Path,
    report: Report,
    before_naming: Callable[[], None] = lambda: None,
) -> Iterator[Partial]:
    """The partial file of `destination`, locked; waits while another process extends it."""
    path, _ = remains(destination)

    def wait() -> None:
        report(Step(entry.name, "waiting", detail="another pull of this file is running"))

    handle = locked(path, lambda: paths.create(path, paths.MODEL_MODE, os.O_RDWR), wait)
    partial = Partial(handle, path, entry, report, before_naming)
    try:
        yield partial
    finally:
        partial.close()


def copy(source: Path, destination: Path, on_bytes: Callable[[int], None]) -> None:
    """Copy a file to a new name, until the copy is on the disk. Raises OSError.

    `on_bytes` is called with the bytes written so far.
    """
    done = 0
    with (
        paths.open_regular(source) as reading,
        os.fdopen(paths.create(destination, paths.MODEL_MODE), "wb") as writing,
    ):
        while chunk := reading.read(CHUNK_BYTES):
            writing.write(chunk)
            done += len(chunk)
            on_bytes(done)
        writing.flush()
        os.fsync(writing.fileno())


def give_name(temporary: Path, destination: Path) -> None:
    """Give a model that is whole its name. Raises OSError, and ModelError if the name is taken."""
    try:
        destination.hardlink_to(temporary)  # unlike a rename it replaces nothing
    except OSError as error:
        if os.path.lexists(destination):
            raise ModelError(
                f'The name "{destination.stem}" has been taken meanwhile.',
                fix="Choose another one: --name NAME",
            ) from error
        temporary.rename(destination)  # a disk without hard links


def disk_error(error: OSError, path: Path, missing_bytes: int) -> PullError:
    """The PullError for an OSError while writing `path`."""
    if error.errno not in {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}:
        return PullError(f"{path} cannot be written: {error.strerror}.")
    return DiskFull(
        f"{path.parent} is full; {show_bytes(missing_bytes)} of {path.name} are missing.",
        fix="Make room and run the same command again: it goes on where it stopped.",
    )
