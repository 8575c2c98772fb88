"""Parses references to models elsewhere: `OWNER/REPO`, a page of the Hub, a URL. Pure."""

from __future__ import annotations

import re
import urllib.parse
from typing import NamedTuple

from localspec.errors import PullError

_HUBS = ("hf.co/", "www.hf.co/", "huggingface.co/", "www.huggingface.co/")
_PART = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,95}")
_FILE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._/ +()-]{0,250}\.gguf", re.IGNORECASE)
_LABEL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,40}")
_IN_REPO = ("resolve/", "blob/", "raw/")


class Reference(NamedTuple):
    """A repository of the Hub, and the wanted file or quantization; "" stands for the best one.

    If `url` is set, the reference is that one file and no repository.
    """

    repo: str
    wanted: str = ""
    url: str = ""

    def __str__(self) -> str:
        return self.url or (f"{self.repo}:{self.wanted}" if self.wanted else self.repo)


def parse(text: str) -> Reference | None:
    """The reference in `text`; None for a plain name.

    Raises PullError for text that looks like a reference but is none.
    """
    text = text.strip()
    scheme, colon, rest = text.partition("://")
    if colon and scheme.lower() not in {"http", "https", "hf"}:
        raise _unclear(text)
    bare = rest if colon else text
    hub = next((hub for hub in _HUBS if bare.lower().startswith(hub)), None)
    if hub is not None:
        return _in_hub(bare[len(hub) :].partition("?")[0].strip("/"), text)
    if colon and scheme.lower() != "hf":
        return _file(text)
    if "/" not in bare or bare.startswith((".", "/", "~")):
        return None
    return _in_hub(bare.strip("/"), text)


def _in_hub(path: str, text: str) -> Reference:
    """Parse `OWNER/REPO`, followed by `:QUANT`, `:FILE`, `/FILE` or a page of that file."""
    path, _, wanted = path.partition(":")
    owner, _, rest = path.partition("/")
    repo, _, inside = rest.partition("/")
    if inside and not wanted:
        for page in _IN_REPO:
            if inside.startswith(page):
                inside = inside.removeprefix(page).partition("/")[2]
        wanted = "" if inside.startswith("tree/") else urllib.parse.unquote(inside)
    wanted = "" if wanted.lower() == "latest" else wanted  # Ollama's word for the usual one
    known = _PART.fullmatch(owner) and _PART.fullmatch(repo)
    if not known or (wanted and not (_FILE.fullmatch(wanted) or _LABEL.fullmatch(wanted))):
        raise _unclear(text)
    return Reference(f"{owner}/{repo}", wanted)


def _file(url: str) -> Reference:
    name = urllib.parse.unquote(urllib.parse.urlsplit(url).path.rpartition("/")[2])
    if not _FILE.fullmatch(name):
        raise PullError(
            f"{url[:200]} does not end in the name of a GGUF file.",
            fix="Give the address of the file itself, or OWNER/REPO of the Hugging Face Hub.",
        )
    return Reference("", name, url)


def _unclear(text: str) -> PullError:
    return PullError(
        f'"{text[:200]}" is no model that could be fetched.',
        fix="Write OWNER/REPO, OWNER/REPO:Q4_K_M, OWNER/REPO:FILE.gguf or the URL of a GGUF file.",
    )
