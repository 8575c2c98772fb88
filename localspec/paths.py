"""Where LocalSpec keeps things: XDG places on Linux, the platform's own elsewhere.

| what | where | moved by |
| --- | --- | --- |
| configuration | ~/.config/localspec/config.toml | LOCALSPEC_CONFIG |
| models | ~/.local/share/localspec/models | LOCALSPEC_MODELS |
| state: log, history, tokens | ~/.local/state/localspec | XDG_STATE_HOME |
| cache: cost profiles, probes | ~/.cache/localspec | XDG_CACHE_HOME |
| socket | $XDG_RUNTIME_DIR/localspec/localspec.sock, else in the state directory | LOCALSPEC_HOST |
"""

from __future__ import annotations

import grp
import os
import pwd
import stat
import sysconfig
import threading
from pathlib import Path
from typing import Literal

import platformdirs

APP = "localspec"


def config_file() -> Path:
    """The user's configuration file; it need not exist."""
    moved = os.environ.get("LOCALSPEC_CONFIG")
    return Path(moved) if moved else Path(platformdirs.user_config_dir(APP)) / "config.toml"


def models_dir() -> Path:
    """The default models directory; it need not exist."""
    moved = os.environ.get("LOCALSPEC_MODELS")
    return Path(moved) if moved else Path(platformdirs.user_data_dir(APP)) / "models"


def state_dir() -> Path:
    """Log, history, saved chats, API token."""
    return Path(platformdirs.user_state_dir(APP))


def cache_dir() -> Path:
    """What can be measured again: cost profiles, acceptance priors, exactness probes."""
    return Path(platformdirs.user_cache_dir(APP))


def socket_path() -> Path:
    """The private socket: in the runtime directory, or where there is none in the state's."""
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    base = Path(runtime) / APP if runtime and Path(runtime).is_dir() else state_dir()
    return base / "localspec.sock"


def shipped(name: str) -> Path:
    """What of the repository travels with the package, such as `models/catalog.toml`.

    In a checkout it is the thing itself; in an installed wheel it lies under share/localspec.
    """
    checkout = Path(__file__).resolve().parent.parent / name
    if checkout.exists():
        return checkout
    return Path(sysconfig.get_path("data")) / "share" / APP / name


def strangers(found: os.stat_result) -> Literal["", "owner", "writers"]:
    """Who besides this user and root can change a file: its owner, others who may write, nobody.

    The group that holds this user alone, which many systems make for each, is nobody else. Devices
    such as /dev/null are nobody's to change.
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

    Raises OSError, also when it exists and belongs to somebody else.
    """
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    directory.chmod(0o700)
    return directory


def write_atomically(path: Path, data: bytes, mode: int = 0o600) -> None:
    """Replace `path` by `data`: the old file or the new one, never neither, also after power loss.

    Threads and processes may write the same path at once; one of them is last. Raises OSError; the
    old file is then untouched.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}.tmp")
    try:
        handle = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, mode)
        with os.fdopen(handle, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
    except OSError as error:
        error.filename = error.filename or str(path)  # a full disk does not say for which file
        raise
    finally:
        temporary.unlink(missing_ok=True)
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
