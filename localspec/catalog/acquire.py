"""Turns a reference into an installed model: choose, fetch, join parts, record the origin."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from pathlib import Path

import msgspec

from localspec.catalog import filenames, header, hub, origins, projectors, repository, variants
from localspec.catalog.entries import Address, Entry, HubFile, Source
from localspec.catalog.joining import join
from localspec.catalog.locks import building
from localspec.catalog.memory import show_bytes
from localspec.catalog.origins import Origin
from localspec.catalog.pull import pull
from localspec.catalog.reference import Reference
from localspec.catalog.transfer import NoAnswer, Report, Step, remains
from localspec.catalog.variants import TARGET_ORDER, Choice, File, Variant
from localspec.errors import BadGGUF, ModelError, PullError, Unreadable

_NAME = re.compile(r"[^a-z0-9._-]+")
_ANY = re.compile(r"(?:ggml[-_.])?model(?:[-_.](?:i?q\d\w*|ud-\w+|b?f\d+|mxfp4\w*))?")
"""File names that do not identify a model: "model.gguf", "ggml-model-q4_k_m.gguf"."""


class Found(msgspec.Struct, frozen=True):
    """The files that a reference leads to, before anything is fetched."""

    choice: Choice
    origin: Origin
    gated: bool = False
    projector: File | None = None
    heads: list[File] = []

    @property
    def name(self) -> str:
        """The model's name here: the file's, or the repository's where the file's says nothing."""
        stem = self.choice.variant.name.lower().removesuffix(".gguf")
        if _ANY.fullmatch(stem) and "://" not in self.origin.source:
            repo = self.origin.source.lower().rpartition("/")[2].removesuffix("-gguf")
            stem = f"{repo}-{self.choice.variant.label.lower()}"
        return _NAME.sub("-", stem).strip("-._")[:120] or "model"

    def sentence(self) -> str:
        """The choice and its reason as a sentence for people."""
        chosen = self.choice.variant
        licence = f", licence {self.origin.license}" if self.origin.license else ""
        what = chosen.label or chosen.name
        size = show_bytes(chosen.size_bytes)
        told = f"{self.origin.source}{licence}: {what}, {size} ({self.choice.why})"
        if self.projector is None:
            return told
        file, more = self.projector.path, show_bytes(self.projector.size_bytes)
        return f"{told}; for images {file.rpartition('/')[2]}, {more}"


def look(reference: Reference, room_bytes: int, order: Sequence[str] = TARGET_ORDER) -> Found:
    """Ask the Hub or the server for the files and choose one. Raises PullError."""
    if reference.url:
        return _file(reference)
    found = repository.look(reference.repo)
    for path, what in found.others.items():
        if reference.wanted.lower() in {path.lower(), path.lower().rpartition("/")[2]}:
            raise _no_model(path, what)
    choice = variants.choose(found.variants, reference.wanted, room_bytes, order)
    origin = Origin(found.name, choice.variant.label, found.license)
    seen_by = variants.projector(found.projectors)
    return Found(choice, origin, found.gated, seen_by, found.heads)


def _file(reference: Reference) -> Found:
    try:
        size = hub.length(reference.url)
    except (NoAnswer, hub.Refused) as error:
        raise PullError(
            f"{reference.url} cannot be fetched: {error}.", fix="Correct the address."
        ) from error
    found, others = variants.sort([File(reference.wanted, size)])
    for path, what in others.items():
        if what != filenames.INCOMPLETE:
            raise _no_model(path, what)
    if not found:
        raise PullError(
            f"{reference.wanted} is no model, or one part of several.",
            fix="Fetch all parts yourself and give the first to: localspec models import FILE",
        )
    return Found(Choice(found[0], "as you asked for"), Origin(reference.url, found[0].label))


def _no_model(path: str, what: str) -> PullError:
    return PullError(
        f"{path[:200]} is {what}, and no model by itself.",
        fix="Leave the file out: OWNER/REPO takes a model of that repository.",
    )


def fetch(found: Found, directory: Path, report: Report, name: str | None = None) -> Path:
    """Fetch the model into `directory` with its projector of images, and return the model's path.

    Both headers are checked. An interrupted fetch is resumed by the next call, until `finish`
    records that everything is here. Raises PullError, ChecksumMismatch, DiskFull, BadGGUF,
    ModelError.
    """
    name = (name or found.name).lower()
    filenames.check_model_name(name)
    path = directory / f"{name}.gguf"
    known = origins.read(directory).get(path.name)
    begun = msgspec.structs.replace(found.origin, unfinished=True)
    if path.exists():
        _refuse_other(path, begun)
    if not path.exists() or known == begun:
        try:
            _fetch(found.choice.variant, begun, path, report)
            header.read(path)
        except Unreadable:
            raise
        except BadGGUF:  # a refused file is deleted, and its name stays free
            discard(path)
            raise
    if found.projector is not None:
        _fetch_projector(found.projector, found.origin, path, report)
    return path


def _refuse_other(path: Path, begun: Origin) -> None:
    """Raise ModelError if the model that is here is from elsewhere."""
    known = origins.read(path.parent).get(path.name)
    if known is None or msgspec.structs.replace(known, unfinished=True) != begun:
        raise ModelError(
            f"{path.name} is already here, and from somewhere else.",
            fix="Give this one another name: --name NAME",
        )


def finish(found: Found, path: Path) -> None:
    """Record that the model at `path` and its companions are here: its other names work now."""
    origins.remember(path.parent, path.name, found.origin)


def _fetch_projector(listed: File, origin: Origin, model: Path, report: Report) -> None:
    path = projectors.beside(model)
    pull(_entry(path.stem, path.name, listed, origin), path.parent, report)
    try:
        header.parse(path)
    except Unreadable:
        raise
    except BadGGUF:
        path.unlink(missing_ok=True)
        raise


def discard(path: Path) -> None:
    """Delete the file fetched to `path`, its projector, its partial file, parts and origin."""
    for each in (path, projectors.beside(path)):
        for file in (each, *remains(each)):
            file.unlink(missing_ok=True)
    shutil.rmtree(_workplace(path), ignore_errors=True)
    origins.remember(path.parent, path.name, None)


def _workplace(path: Path) -> Path:
    """The directory that holds the parts of a model until they are joined."""
    return path.with_name(f".{path.stem}")


def _fetch(variant: Variant, origin: Origin, path: Path, report: Report) -> None:
    """Fetch the model and join its parts to one file; record the origin before that is named."""

    def record() -> None:
        origins.remember(path.parent, path.name, origin)

    if len(variant.files) == 1:
        pull(_entry(path.stem, path.name, variant.files[0], origin), path.parent, report, record)
        return
    workplace = _workplace(path)
    with building(workplace, lambda: report(Step(path.stem, "waiting"))):
        if path.exists():  # another pull has finished while this one waited
            _refuse_other(path, origin)
        else:
            parts = [
                pull(_entry(path.stem, Path(file.path).name, file, origin), workplace, report)
                for file in variant.files
            ]
            record()
            join(
                parts,
                path,
                lambda done: report(
                    Step(path.stem, "copying", done, variant.size_bytes, "joining")
                ),
            )
        shutil.rmtree(workplace, ignore_errors=True)


def _entry(name: str, file: str, listed: File, origin: Origin) -> Entry:
    """A catalog entry for one listed file, as `pull` needs it."""
    hosted = "://" not in origin.source
    source: Source = HubFile(origin.source, listed.path) if hosted else Address(origin.source)
    return Entry(
        name=name,
        family="",
        license=origin.license,
        role="target",
        file=file,
        size_bytes=listed.size_bytes,
        sha256=listed.sha256,
        source=[source],
    )
