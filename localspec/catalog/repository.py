"""Requests to the Hugging Face Hub: the files of a repository, and searches."""

from __future__ import annotations

import urllib.parse
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, TypeVar

import msgspec

from localspec.catalog import hub
from localspec.catalog.filenames import HEAD, PROJECTOR
from localspec.catalog.rules import NOT_ARCHITECTURES
from localspec.catalog.transfer import NoAnswer
from localspec.catalog.variants import File, Variant, sort
from localspec.errors import PullError

SEARCHED = 20
"""The most repositories in a search result."""

_T = TypeVar("_T")


class _Lfs(msgspec.Struct):
    sha256: str = ""


class _Sibling(msgspec.Struct):
    rfilename: str
    size: int | None = None
    lfs: _Lfs | None = None


class _Gguf(msgspec.Struct):
    """The header of one of the files, as read by the Hub."""

    architecture: str = ""


class _Listed(msgspec.Struct):
    siblings: list[_Sibling] = []
    gguf: _Gguf | None = None
    gated: bool | str = False
    tags: list[str] = []


class Repository(msgspec.Struct, frozen=True):
    """A repository: its models, smallest first, its licence, and whether access is restricted.

    `others` maps its GGUF files that are no models to their kinds. `projectors` and `heads` (draft
    heads) list some of these files.
    """

    name: str
    variants: list[Variant]
    license: str
    gated: bool
    others: dict[str, str] = {}
    projectors: list[File] = []
    heads: list[File] = []


class Hit(msgspec.Struct, frozen=True):
    """A repository in a search result."""

    name: str
    downloads: int
    likes: int
    license: str


class _Hit(msgspec.Struct):
    id: str
    downloads: int = 0
    likes: int = 0
    tags: list[str] = []


def look(name: str) -> Repository:
    """The contents of the repository `OWNER/REPO`. Raises PullError with a remedy."""
    path = f"api/models/{urllib.parse.quote(name)}?blobs=true"
    listed = _request(path, _Listed, lambda refused: _refused(name, refused))
    files = [
        File(each.rfilename, max(0, each.size or 0), each.lfs.sha256 if each.lfs else "")
        for each in listed.siblings
    ]
    models, others = sort(files)
    if models and not any(model.plain for model in models):
        # Their names would suit draft heads too, but the Hub has read the header of one of them.
        what = NOT_ARCHITECTURES.get(listed.gguf.architecture if listed.gguf else "")
        if what:
            others |= {file.path: what for model in models for file in model.files}
            models = []
    if not models:
        raise _without_model(name, others)
    projectors, heads = (
        [file for file in files if others.get(file.path) == kind] for kind in (PROJECTOR, HEAD)
    )
    license_ = _license(listed.tags)
    return Repository(name, models, license_, bool(listed.gated), others, projectors, heads)


def _without_model(name: str, others: dict[str, str]) -> PullError:
    fix = f"Look for one that has: localspec models search {name.partition('/')[2][:40]}"
    if not others:
        return PullError(f"{name} has no GGUF file.", fix=fix)
    path, what = next(iter(others.items()))
    return PullError(f"{name} has no model: {path[:200]} is {what}.", fix=fix)


def search(word: str) -> list[Hit]:
    """Repositories with GGUF files whose names match `word`, most downloaded first.

    Raises PullError.
    """
    query: dict[str, Any] = {"search": word, "filter": "gguf", "sort": "downloads", "direction": -1}
    encoded = urllib.parse.urlencode({**query, "limit": SEARCHED})
    hits = _request(
        f"api/models?{encoded}", list[_Hit], lambda refused: PullError(f"The Hub: {refused}.")
    )
    return [Hit(each.id, each.downloads, each.likes, _license(each.tags)) for each in hits]


def _request(path: str, kind: type[_T], refused: Callable[[hub.Refused], PullError]) -> _T:
    try:
        return msgspec.json.decode(hub.request(path), type=kind)
    except hub.Refused as error:
        raise refused(error) from error
    except NoAnswer as error:
        raise PullError(
            f"The Hugging Face Hub cannot be asked: {error}.",
            fix="Without it there is the catalog, whose models also come from the Python package "
            "index: localspec models list. A file that you have: localspec models import FILE",
        ) from error
    except msgspec.DecodeError as error:
        raise PullError(
            "What answers is not the Hugging Face Hub: a proxy, or a page to sign in.",
            fix="Open it in a browser, or correct HF_ENDPOINT.",
        ) from error


def gated(name: str) -> PullError:
    """The error for a repository whose files need an agreement to its terms."""
    return PullError(
        f"{name} is gated: its owner wants an agreement first.",
        fix=f"Agree on {hub.DEFAULT_ENDPOINT}/{name} and set HF_TOKEN to a token of yours, "
        "or run `hf auth login`.",
    )


def _refused(name: str, refused: hub.Refused) -> PullError:
    """The error for a refused request.

    The Hub answers 401 for missing repositories too, to hide private names.
    """
    if refused.status == HTTPStatus.FORBIDDEN:
        return gated(name)
    if refused.status in {HTTPStatus.UNAUTHORIZED, HTTPStatus.NOT_FOUND}:
        return PullError(
            f"There is no repository {name}, or it is private.",
            fix=f"Look for it: localspec models search {name.partition('/')[2][:40]}. "
            "For a private one set HF_TOKEN.",
        )
    return PullError(f"The Hub does not tell about {name}: {refused}.", fix="Try again later.")


def _license(tags: list[str]) -> str:
    prefix = "license:"
    return next((tag.removeprefix(prefix) for tag in tags if tag.startswith(prefix)), "")
