"""From a reference to a model that is here: looked at, chosen, fetched, joined, and remembered."""

from __future__ import annotations

import re
import shutil
from collections.abc import Sequence
from pathlib import Path

import msgspec

from localspec.catalog import header, hub, origins, repository, variants
from localspec.catalog.entries import Address, Entry, HubFile, Source
from localspec.catalog.joining import join
from localspec.catalog.memory import show_bytes
from localspec.catalog.origins import Origin
from localspec.catalog.pull import pull
from localspec.catalog.reference import Reference
from localspec.catalog.transfer import NoAnswer, Report, Step, building
from localspec.catalog.variants import TARGET_ORDER, Choice, File, Variant
from localspec.errors import ModelError, PullError

_NAME = re.compile(r"[^a-z0-9._-]+")


class Found(msgspec.Struct, frozen=True):
    """What a reference leads to, before anything is fetched."""

    choice: Choice
    origin: Origin
    gated: bool = False

    @property
    def name(self) -> str:
        """What the model will be called here."""
        stem = self.choice.variant.name.lower().removesuffix(".gguf")
        return _NAME.sub("-", stem).strip("-._")[:120] or "model"

    def sentence(self) -> str:
        """What is taken, and why, for people."""
        chosen = self.choice.variant
        licence = f", licence {self.origin.license}" if self.origin.license else ""
        what = chosen.label or chosen.name
        size = show_bytes(chosen.size_bytes)
        return f"{self.origin.source}{licence}: {what}, {size} ({self.choice.why})"


def look(reference: Reference, room_bytes: int, order: Sequence[str] = TARGET_ORDER) -> Found:
    """Ask what there is and choose. Raises PullError."""
    if reference.url:
        return _file(reference)
    found = repository.look(reference.repo)
    choice = variants.choose(found.variants, reference.wanted, room_bytes, order)
    origin = Origin(found.name, choice.variant.label, found.license)
    return Found(choice, origin, found.gated)


def _file(reference: Reference) -> Found:
    try:
        size = hub.length(reference.url)
    except (NoAnswer, hub.Refused) as error:
        raise PullError(
            f"{reference.url} cannot be fetched: {error}.", fix="Correct the address."
        ) from error
    found = variants.variants([File(reference.wanted, size)])
    if not found:
        raise PullError(
            f"{reference.wanted} is no model, or one part of several.",
            fix="Fetch all parts yourself and give the first to: localspec models import FILE",
        )
    return Found(Choice(found[0], "as you asked for"), Origin(reference.url, found[0].label))


def fetch(found: Found, directory: Path, report: Report, name: str | None = None) -> Path:
    """The model's file in `directory`, checked. May be interrupted: the next call goes on.

    Raises PullError, ChecksumMismatch, DiskFull, BadGGUF, ModelError.
    """
    name = name or found.name
    path = directory / f"{name}.gguf"
    known = origins.read(directory).get(path.name)
    if path.exists() and known != found.origin:
        raise ModelError(
            f"{path.name} is already here, and from somewhere else.",
            fix="Give this one another name: --name NAME",
        )
    if not (path.exists() and known):
        _fetch(found.choice.variant, found.origin, path, report)
        header.read(path)
        origins.remember(directory, path.name, found.origin)
    return path


def _fetch(variant: Variant, origin: Origin, path: Path, report: Report) -> None:
    if len(variant.files) == 1:
        pull(_entry(path.stem, path.name, variant.files[0], origin), path.parent, report)
        return
    workplace = path.with_name(f".{path.stem}")
    workplace.mkdir(parents=True, exist_ok=True)
    with building(workplace, lambda: report(Step(path.stem, "waiting"))):
        parts = [
            pull(_entry(path.stem, Path(file.path).name, file, origin), workplace, report)
            for file in variant.files
        ]
        join(
            parts,
            path,
            lambda done: report(Step(path.stem, "copying", done, variant.size_bytes, "joining")),
        )
    shutil.rmtree(workplace, ignore_errors=True)


def _entry(name: str, file: str, listed: File, origin: Origin) -> Entry:
    """What `pull` fetches."""
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
