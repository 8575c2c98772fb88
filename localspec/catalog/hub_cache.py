"""Files of other programs of the Hugging Face Hub: the token of `hf auth login`, and their cache.

HF_HOME moves both, HF_HUB_CACHE the cache and HF_TOKEN_PATH the token (huggingface_hub's
documentation). In the cache a large file has its SHA-256 for a name, and another name until it is
whole.
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
    """Whether an environment variable of the Hub's says yes."""
    return os.environ.get(name, "").upper() in _YES


def token() -> str:
    """The token that identifies the user to the Hub: HF_TOKEN, or the stored one; "" if none.

    HF_HUB_DISABLE_IMPLICIT_TOKEN forbids the stored one.
    """
    said = os.environ.get("HF_TOKEN", "").strip()
    if not said and not is_set("HF_HUB_DISABLE_IMPLICIT_TOKEN"):
        with (
            contextlib.suppress(OSError),
            paths.open_regular(_place("HF_TOKEN_PATH", "token")) as file,
        ):
            said = file.read(_MOST_TOKEN_BYTES).decode("ascii", "replace").strip()
    return said if _TOKEN.fullmatch(said) else ""


def blob(repository: str, sha256: str, size_bytes: int) -> Path | None:
    """A file of a repository that another program fetched, by its SHA-256; None if there is none.

    Its bytes are not checked.
    """
    owner = "models--" + repository.replace("/", "--")
    found = _place("HF_HUB_CACHE", "hub") / owner / "blobs" / sha256
    try:
        return found if sha256 and found.stat().st_size == size_bytes else None
    except OSError:
        return None


def _place(moved: str, name: str) -> Path:
    """A file or directory in the home of the Hub's programs, unless a variable moves it."""
    cache = os.environ.get("XDG_CACHE_HOME") or "~/.cache"
    home = os.environ.get("HF_HOME") or f"{cache}/huggingface"
    return paths.expanded(os.environ.get(moved) or f"{home}/{name}")
