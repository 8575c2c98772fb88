"""Keeps the hashes of admitted browsers on disk, so that tabs survive a restart."""

from __future__ import annotations

import contextlib
import logging
import time
from pathlib import Path

import msgspec

from localspec import paths
from localspec_daemon.page.passes import Kept

_log = logging.getLogger("localspec.page")

KEPT_SECONDS = 7 * 86_400.0
"""After a week in which no browser was let in, a restart forgets all of them."""


class _File(msgspec.Struct):
    kept: Kept
    at: float


def load(file: Path) -> Kept:
    """The hashes in a file; none if it is old, damaged, or of another user."""
    with contextlib.suppress(OSError, ValueError, msgspec.MsgspecError):
        found = msgspec.json.decode(paths.read_own(file), type=_File)
        values = (*found.kept.cookies, *found.kept.keys)
        if time.time() - found.at < KEPT_SECONDS and all(map(bytes.fromhex, values)):
            return found.kept
    return Kept()


def keep(file: Path, kept: Kept) -> None:
    """Write the hashes, for this user alone. Errors are only logged: the page works without."""
    data = msgspec.json.encode(_File(kept, time.time()))
    try:
        paths.make_private(file.parent)
        paths.write_atomically(file, data)
    except OSError as error:
        _log.warning("page_not_kept reason=%s", error)
