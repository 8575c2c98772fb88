"""Where LocalSpec keeps things: XDG places on Linux, the platform's own elsewhere.

| what | where | moved by |
| --- | --- | --- |
| configuration | ~/.config/localspec/config.toml | LOCALSPEC_CONFIG |
| models | ~/.local/share/localspec/models | LOCALSPEC_MODELS |
| state: log, history, tokens | ~/.local/state/localspec | XDG_STATE_HOME |
| cache: cost profiles, probes, prefixes | ~/.cache/localspec | XDG_CACHE_HOME |
| socket | $XDG_RUNTIME_DIR/localspec/localspec.sock, else in the state directory | LOCALSPEC_HOST |
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import grp
import os
import pwd
import re
import stat
import sysconfig
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Literal

import platformdirs

if TYPE_CHECKING:
    from localspec.errors import ConfigError

APP = "localspec"
MODELS_MODE, MODEL_MODE = 0o755, 0o644
"""Models are no secret: other users' programs may read them, but only the owner may write."""
_PIECE_BYTES = 1 << 20
_TEMPORARY = re.compile(r"\..+\.([0-9]{1,10})\.[0-9]+\.tmp")
"""A name that `beside` makes; its group is the id of the process."""


def _of_home(find: Callable[[str], str]) -> Path:
    """One of the user's directories. Raises ConfigError where the system knows no home."""
    try:
        return Path(find(APP))
    except RuntimeError as error:
        raise homeless() from error


def home() -> Path:
    """The user's home directory. Raises ConfigError where the system knows none."""
    try:
        return Path.home()
    except RuntimeError as error:
        raise homeless() from error


def homeless() -> ConfigError:
    """The error for a user without a home, as in a container and under some service managers."""
    from localspec.errors import ConfigError  # noqa: PLC0415 - only a user without a home needs it

    return ConfigError(
        f"HOME is not set, and the system knows no home of user {os.getuid()}.",
        fix="Set HOME to a directory that can be written.",
        param="HOME",
    )


def expanded(path: str) -> Path:
    """A path as a user wrote it, with ~ or ~name replaced by that home directory.

    A ~name that the system does not know stays as it is, and names no file.
    """
    return Path(os.path.expanduser(path))  # noqa: PTH111 - Path's raises for an unknown user


def config_file() -> Path:
    """The user's configuration file; it need not exist."""
    moved = os.environ.get("LOCALSPEC_CONFIG")
    return Path(moved) if moved else _of_home(platformdirs.user_config_dir) / "config.toml"


def is_configured() -> bool:
    """Whether there is a configuration file; True also if its directory cannot be read."""
    try:
        return config_file().exists()
    except PermissionError:
        return True


def models_dir() -> Path:
    """The default models directory; it need not exist."""
    moved = os.environ.get("LOCALSPEC_MODELS")
    return Path(moved) if moved else _of_home(platformdirs.user_data_dir) / "models"


def state_dir() -> Path:
    """The directory of log, history, saved chats and API token."""
    return _of_home(platformdirs.user_state_dir)


def cache_dir() -> Path:
    """The directory of results that can be measured again: costs, acceptance, exactness probes."""
    return _of_home(platformdirs.user_cache_dir)


def socket_path() -> Path:
    """The private socket: in the runtime directory, or else in the state directory."""
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    base = Path(runtime) / APP if runtime and Path(runtime).is_dir() else state_dir()
    return base / "localspec.sock"


def shipped(name: str) -> Path:
    """The path of a file that travels with the package, such as `models/catalog.toml`.

    In a checkout it is the source file; an installed wheel has it below share/localspec.
    """
    checkout = Path(__file__).resolve().parent.parent / name
    if checkout.exists():
        return checkout
    return Path(sysconfig.get_path("data")) / "share" / APP / name


def other_writers(found: os.stat_result) -> Literal["", "owner", "writers"]:
    """Who besides this user and root can change a file: "owner", "writers", or "" for none.

    A group that contains only this user, which many systems create, does not count. Devices such
    as /dev/null do not count either.
    """
    if not stat.S_ISREG(found.st_mode):
        return ""
    if found.st_uid not in {os.getuid(), 0}:
        return "owner"
    by_group = found.st_mode & stat.S_IWGRP and not _only_ours(found.st_gid)
    return "writers" if by_group or found.st_mode & stat.S_IWOTH else ""


def _only_ours(gid: int) -> bool:
    try:
        group, user = grp.getgrgid(gid), pwd.getpwuid(os.getuid())
    except KeyError:
        return False
    return group.gr_name == user.pw_name and not set(group.gr_mem) - {user.pw_name}


def make_private(directory: Path) -> Path:
    """Create `directory` (and parents), make it the user's alone (mode 0700) and return it.

    Raises OSError, also when it exists and belongs to another user.
    """
    make_directory(directory)
    directory.chmod(0o700)
    return directory


def make_directory(directory: Path, mode: int = 0o700) -> Path:
    """Create `directory` and missing parents, each with this mode, and return it.

    The process's umask has no effect. Existing directories keep their mode. Raises OSError.
    """
    missing = [place for place in (directory, *directory.parents) if not place.exists()]
    for place in reversed(missing):
        place.mkdir(exist_ok=True, mode=mode)  # another process may create it at the same time
        with contextlib.suppress(PermissionError):  # a disk without modes
            place.chmod(mode)
    directory.mkdir(exist_ok=True)  # raises OSError if a file is in the way
    return directory


def create(path: Path, mode: int = 0o600, flags: int = os.O_WRONLY | os.O_TRUNC) -> int:
    """A descriptor of the file, created with this mode whatever the umask. Raises OSError.

    An existing file is opened and gets the mode; a link is not followed.
    """
    handle = os.open(path, flags | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, mode)
    if stat.S_IMODE(os.fstat(handle).st_mode) != mode:
        with contextlib.suppress(PermissionError):  # a disk without modes
            os.fchmod(handle, mode)
    return handle


def read_own(path: Path) -> bytes:
    """The bytes of a file that decides something, such as exactness. Raises OSError.

    A file that others could have written, or whose directory lets them replace it, is refused.
    """
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(handle, "rb") as file:
        place = path.parent.stat()
        loose = place.st_mode & stat.S_IWOTH and not place.st_mode & stat.S_ISVTX
        if other_writers(os.fstat(handle)) or place.st_uid not in {os.getuid(), 0} or loose:
            raise PermissionError(errno.EACCES, "others may have written it", str(path))
        return file.read()


def open_regular(path: Path) -> BinaryIO:
    """A file of the user's choice, opened for reading. Raises OSError.

    OSError is also for all but regular files and /dev/null: opening a FIFO waits for a writer that
    may never come, and other devices have no end.
    """
    handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    found = os.fstat(handle)
    empty = stat.S_ISCHR(found.st_mode) and found.st_rdev == Path(os.devnull).stat().st_rdev
    if not stat.S_ISREG(found.st_mode) and not empty:
        os.close(handle)
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    return os.fdopen(handle, "rb")


def read_named(path: Path, most: int) -> bytes:
    """Up to `most` bytes of a file that the user named; also of a pipe. Raises OSError.

    A shell's <(...) is a pipe, too. A pipe that no process writes to is refused: a writer may never
    come, and the user would not be told what is waited for.
    """
    with open(path, "rb", buffering=0, opener=_open_at_once) as file:
        found = bytearray()
        if stat.S_ISFIFO(os.fstat(file.fileno()).st_mode):
            first = file.read(min(most, _PIECE_BYTES))  # None if it was not written to yet
            if first == b"":
                raise OSError(errno.ENXIO, "it is a pipe that nobody writes to", str(path))
            found += first or b""
        os.set_blocking(file.fileno(), True)
        while more := file.read(min(most - len(found), _PIECE_BYTES)):
            found += more
        return bytes(found)


def _open_at_once(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK)


def read_regular(path: Path) -> bytes:
    """The bytes of a regular file. Raises OSError, also for a FIFO, whose writer may never come."""
    with open_regular(path) as file:
        return file.read()


def _own() -> tuple[Path, ...]:
    return cache_dir(), state_dir(), _of_home(platformdirs.user_data_dir)


def close_to_others() -> list[Path]:
    """Remove other users' write permission from the default directories and files.

    An earlier release made directories with the umask that it was started with. Returns the
    changed paths.
    """
    opened = []
    for place in _own():
        for path in (place, *(place.rglob("*") if place.is_dir() else ())):
            with contextlib.suppress(OSError):  # another user's, gone, or on a disk without modes
                found = path.lstat()
                writable = found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)
                if writable and found.st_uid == os.getuid() and not stat.S_ISLNK(found.st_mode):
                    path.chmod(stat.S_IMODE(found.st_mode) & ~writable)
                    opened.append(path)
    return opened


@contextlib.contextmanager
def beside(path: Path) -> Iterator[Path]:
    """The path of a temporary file, to be renamed to `path` once it is whole; deleted afterwards.

    If the process is killed meanwhile, `sweep` deletes the file later.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}.tmp")
    try:
        yield temporary
    finally:
        temporary.unlink(missing_ok=True)


def sweep(*places: Path) -> None:
    """Delete the temporary files that killed processes left in these directories."""
    for place in places:
        with contextlib.suppress(OSError), os.scandir(place) as entries:
            for name in [entry.name for entry in entries]:
                found = _TEMPORARY.fullmatch(name)
                if found and not _runs(int(found[1])):
                    with contextlib.suppress(OSError):
                        (place / name).unlink()


def sweep_all(*more: Path) -> None:
    """Do as `sweep` in the default directories, in all directories below them, and in `more`."""
    for place in _own():
        sweep(place, *(path for path in place.rglob("*") if path.is_dir()))
    sweep(*more)


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except PermissionError:  # another user's
        return True
    return True


def write_atomically(path: Path, data: bytes, mode: int = 0o600) -> None:
    """Replace `path` by `data`; the old or the new file survives even a power loss.

    Threads and processes may write the same path at once; the file of one of them remains. The file
    has the mode, and directories made for it are private, whatever the umask. Raises OSError; the
    old file is then untouched.
    """
    make_directory(path.parent)
    try:
        with beside(path) as temporary:
            with os.fdopen(create(temporary, mode), "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
    except OSError as error:
        error.filename = error.filename or str(path)  # a full disk's error has no file name
        raise
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)


def write_named(path: Path, data: bytes) -> None:
    """Replace a file that the user named as `write_atomically` does. Raises OSError.

    A link stays one, and a file keeps its mode. Pipes and devices, such as /dev/stdout, are written
    to.
    """
    found = path.stat() if path.exists() else None
    # What /dev/stdout stands for may be a file: what was written to it before stays.
    place = path.parent.resolve()
    is_device = place in {Path("/dev"), Path("/dev/fd")} or place.parts[1:2] == ("proc",)
    if not is_device and (found is None or stat.S_ISREG(found.st_mode)):
        mode = stat.S_IMODE(found.st_mode) if found else 0o600
        write_atomically(path.resolve(), data, mode)
        return
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CLOEXEC), "wb") as file:
        file.write(data)


@contextlib.contextmanager
def alone(directory: Path) -> Iterator[None]:
    """Keep other processes and threads that do the same in this directory out of the block.

    It has no effect where the file system has no locks. Raises OSError.
    """
    handle = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    try:
        with contextlib.suppress(OSError):
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def identity(path: str | Path) -> tuple[int, int, int, int]:
    """Device, inode, size and modification time of a file, which change with its bytes.

    Zeros where there is none.
    """
    try:
        found = os.stat(path)  # noqa: PTH116 - a path as text, too
    except OSError:
        return 0, 0, 0, 0
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns
