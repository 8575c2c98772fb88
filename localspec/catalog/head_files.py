"""Draft heads that are published beside their model: which one is fetched, and where it is kept.

A model's repository may hold prediction layers in a file of their own (`mtp-*.gguf`) or an EAGLE-3
head. A fetched head is kept in heads/ in the models directory, under the model's name, and is
deleted again if it does not fit.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from localspec.catalog import draft_heads, filenames, header
from localspec.catalog.acquire import Found
from localspec.catalog.entries import Entry, HubFile
from localspec.catalog.memory import show_bytes
from localspec.catalog.pull import pull
from localspec.catalog.transfer import Report
from localspec.catalog.variants import File
from localspec.errors import BadGGUF, PullError, Unreadable

_KINDS = ("mtp", "eagle3")
"""Kinds of head files, the better one first: prediction layers were trained with their model."""
_MTP = re.compile(r"(?:^|[^a-z0-9])(?:mtp|nextn)(?:[^a-z0-9]|$)")
_NOT_RUN = re.compile(r"dflash|dspark|assistant|gemma")
"""Names of heads that LocalSpec does not run."""
_USUAL = "Q8_0"
"""The quantization preferred where none is the model's: heads are small, so 8 bits cost little."""


class Offer(NamedTuple):
    """A file of a repository that may be a head, and its kind according to its name."""

    repo: str
    file: File
    kind: str

    @property
    def sentence(self) -> str:
        """The file in words for people."""
        what = "prediction layers (MTP)" if self.kind == "mtp" else "an EAGLE-3 head"
        return f"{what}, {self.file.path} of {self.repo}, {show_bytes(self.file.size_bytes)}"


def places(directory: Path, model: str) -> list[Path]:
    """The paths where heads of a model are kept, whether they exist or not."""
    return [directory / "heads" / f"{kind}-{model}.gguf" for kind in _KINDS]


def choose(target: Path, found: Found) -> tuple[Offer | None, str]:
    """The head to fetch with a fetched model, or why none is fetched; "" where none is offered.

    A head in the model's own quantization comes before others. Raises BadGGUF.
    """
    offers = [offer for file in found.heads if (offer := _offer(found.origin.source, file))]
    if draft_heads.inside(header.read(target))[0] is not None:
        return None, "Its prediction layers (MTP), which draft for it, are inside of it."
    if not offers:
        return None, ""

    def worse(offer: Offer) -> tuple[int, bool, bool, int]:
        label = filenames.label(offer.file.path)
        other = label != found.choice.variant.label
        return _KINDS.index(offer.kind), other, label != _USUAL, offer.file.size_bytes

    return min(offers, key=worse), ""


def _offer(repo: str, file: File) -> Offer | None:
    """A file as an offer, if its name is that of a head which LocalSpec may run; otherwise None."""
    name, lower = filenames.read(file.path), file.path.lower()
    if name is None or name.parts > 1 or _NOT_RUN.search(lower):
        return None
    return Offer(repo, file, "mtp" if _MTP.search(lower) else "eagle3")


def fetch(offer: Offer, target: Path, report: Report) -> Path:
    """Fetch a head, check that it fits, and return its path.

    An interrupted fetch is resumed by the next call. Raises ChecksumMismatch, DiskFull, BadGGUF,
    and PullError, which includes a head that was made for another model.
    """
    place = places(target.parent, target.stem)[_KINDS.index(offer.kind)]
    entry = Entry(
        name=place.stem,
        family="",
        license="",
        role="draft",
        file=place.name,
        size_bytes=offer.file.size_bytes,
        sha256=offer.file.sha256,
        source=[HubFile(offer.repo, offer.file.path)],
    )
    pull(entry, place.parent, report)
    found, why = draft_heads.find(target, [place])
    if found is None or found.path != str(place):
        try:
            header.parse(place)
        except Unreadable:
            raise
        except BadGGUF:
            pass  # `why` says so
        place.unlink(missing_ok=True)
        raise PullError(why or f"{offer.file.path} is no draft head.")
    return place
