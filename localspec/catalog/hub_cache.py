"""Files shared with other programs of the Hugging Face Hub: the token of `hf auth login`, a cache.

HF_HOME moves both, HF_HUB_CACHE the cache and HF_TOKEN_PATH the token (huggingface_hub's
documentation; older names work too). In the cache a large file is named by its SHA-256, and has
another name until it is whole.
"""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path

from localspec import paths

_YES = {"1", "ON", "YES", "TRUE"}
_MOST_TOKEN_BYTES = 4096
_TOKEN = re.compile(r"[!-~]+")
"""The characters that a header can hold."""


def is_set(name: str) -> bool:
    """Whether one of the Hub's environment variables says yes."""
    return os.environ.get(name, "").upper() in _YES


def token() -> str:
    """The token that identifies the user to the Hub: HF_TOKEN, or the stored one; "" if none.

    HF_HUB_DISABLE_IMPLICIT_TOKEN forbids the stored one.
    """
    said = (os.environ.get("HF_TOKEN") or os.environ.get("HUGGING_FACE_HUB_TOKEN", "")).strip()
    if not said and not is_set("HF_HUB_DISABLE_IMPLICIT_TOKEN"):
        with (
            contextlib.suppress(OSError),
            paths.open_regular(token_file()) as file,
        ):
            said = file.read(_MOST_TOKEN_BYTES).decode("ascii", "replace").strip()
    return said if _TOKEN.fullmatch(said) else ""


def blob(repository: str, sha256: str, size_bytes: int) -> Path | None:
    """A repository's file that another program fetched, found by its SHA-256; None if missing.

    The bytes are not checked. The cache may hold a link to a file that several repositories share;
    the result is the file that the link leads to.
    """
    found = directory() / f"models--{repository.replace('/', '--')}" / "blobs" / sha256
    try:
        return found.resolve() if sha256 and found.stat().st_size == size_bytes else None
    except (OSError, RuntimeError):  # links in a circle
        return None


def directory() -> Path:
    """The cache of the Hub's programs; it need not exist."""
    moved = os.environ.get("HF_HUB_CACHE") or os.environ.get("HUGGINGFACE_HUB_CACHE")
    return _place(moved, "hub")


def token_file() -> Path:
    """The file with the stored token; it need not exist."""
    return _place(os.environ.get("HF_TOKEN_PATH"), "token")


def _place(moved: str | None, name: str) -> Path:
    """A file or directory in the home of the Hub's programs, unless it was moved."""
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    home = os.environ.get("HF_HOME") or f"{cache}/huggingface"
    return paths.expanded(os.path.expandvars(moved or f"{home}/{name}"))
