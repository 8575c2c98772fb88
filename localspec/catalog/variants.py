"""Which of a repository's files to take: the quantizations it has, and the one for here. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from localspec.catalog.memory import show_bytes
from localspec.errors import PullError

TARGET_ORDER = (
    *("Q4_K_M", "UD-Q4_K_XL", "MXFP4", "MXFP4_MOE", "Q4_K_S", "Q4_0", "IQ4_XS", "IQ4_NL", "Q4_K_L"),
    *("Q5_K_M", "Q5_K_S", "Q5_0", "Q6_K", "Q8_0"),
    *("UD-Q3_K_XL", "Q3_K_L", "Q3_K_M", "IQ3_M", "Q3_K_S", "IQ3_XS", "IQ3_XXS"),
    *("UD-Q2_K_XL", "Q2_K", "IQ2_M", "IQ2_S", "IQ2_XS", "IQ2_XXS", "BF16", "F16"),
)
"""Four bits first: they lose next to nothing, and decoding reads every one of them for each token.
Then better ones, then what still fits where those do not."""
DRAFT_ORDER = ("Q4_0", "Q4_K_M", "Q4_K_S", "IQ4_XS", "Q5_K_M", "Q8_0")
"""A draft is worth what it is quick: INT4 before all others."""

_LABEL = re.compile(
    r"(?:^|[-._/])((?:UD-)?(?:I?Q\d(?:_[0-9A-Z]+)*|TQ\d_\d|MXFP4(?:_MOE)?|BF16|FP?16|FP?32))(?=[-./]|$)",
    re.IGNORECASE,
)
_SPLIT = re.compile(r"(.+)-(\d{5})-of-(\d{5})\.gguf", re.IGNORECASE)
_NO_MODEL = re.compile(r"(?:^|[-._/])(?:mmproj|imatrix|lora|adapter|vocab)", re.IGNORECASE)
_ROOM = 1.15
"""Weights take this share of free memory at most; the rest is for KV and for computing."""


class File(NamedTuple):
    """One file of a repository, and the SHA-256 that the Hub lists for it; "" if it lists none."""

    path: str
    size_bytes: int
    sha256: str = ""


class Variant(NamedTuple):
    """One model of a repository: its quantization, "" where the name tells none, and its parts."""

    label: str
    name: str
    files: tuple[File, ...]

    @property
    def size_bytes(self) -> int:
        """Bytes of all parts."""
        return sum(file.size_bytes for file in self.files)


class Choice(NamedTuple):
    """A variant, and in a few words why it."""

    variant: Variant
    why: str


def variants(files: Iterable[File]) -> list[Variant]:
    """The models among the files, those in parts put together, smallest first.

    What is no model (projectors, adapters) or not all there is left out.
    """
    parts: dict[str, list[File]] = {}
    for file in files:
        if file.path.lower().endswith(".gguf") and not _NO_MODEL.search(file.path):
            split = _SPLIT.fullmatch(file.path)
            parts.setdefault(f"{split[1]}.gguf" if split else file.path, []).append(file)
    found = [
        Variant(label(name), name.rpartition("/")[2], tuple(sorted(group)))
        for name, group in parts.items()
        if len(group) == _count(group)
    ]
    return sorted(found, key=lambda variant: (variant.size_bytes, variant.name))


def choose(
    found: Sequence[Variant], wanted: str, room_bytes: int, order: Sequence[str] = TARGET_ORDER
) -> Choice:
    """What is `wanted`, a quantization or a file; without a wish the first of `order` that fits.

    Raises PullError: there is no such thing, or nothing that fits into `room_bytes`.
    """
    if wanted:
        return Choice(_named(found, wanted), "as you asked for")
    if len(found) == 1:
        return Choice(found[0], "the only one there is")
    fitting = [each for each in found if each.size_bytes * _ROOM <= room_bytes]
    ranked = [each for label in order for each in fitting if each.label == label]
    if not ranked and not (ranked := fitting[::-1]):
        least = f"The smallest needs {show_bytes(found[0].size_bytes)}" if found else "It has none"
        raise PullError(
            f"No quantization of it fits here: {least}, and {show_bytes(room_bytes)} are free.",
            fix="Choose a smaller model, or name one of these with OWNER/REPO:QUANT to fetch it "
            f"nevertheless: {_labels(found)}",
        )
    chosen = ranked[0]
    better = order[: order.index(chosen.label)] if chosen.label in order else order
    passed = [each.label for each in found if each.label in better and each not in fitting]
    free = f"{show_bytes(room_bytes)} of memory"
    why = f"{passed[0]} would not fit into {free}" if passed else f"it fits into {free}"
    return Choice(chosen, why)


def _named(found: Sequence[Variant], wanted: str) -> Variant:
    """By file or by quantization, whatever the case."""
    lower = wanted.lower()
    for each in found:
        if lower in {each.label.lower(), each.name.lower(), *(f.path.lower() for f in each.files)}:
            return each
    raise PullError(
        f'There is no "{wanted[:80]}" in this repository.',
        fix=f"Take one of these: {_labels(found) or 'it has no GGUF'}",
    )


def _labels(found: Sequence[Variant]) -> str:
    return ", ".join(each.label or each.name for each in found[:40])


def label(name: str) -> str:
    """The quantization that a file's name tells; "" where it tells none."""
    labels: list[str] = _LABEL.findall(name.removesuffix(".gguf"))
    return labels[-1].upper().replace("FP", "F") if labels else ""


def _count(group: Sequence[File]) -> int:
    """How many files this model should have."""
    split = _SPLIT.fullmatch(group[0].path)
    return int(split[3]) if split else 1
