"""Chooses a file of a repository: its quantizations, and the best that fits. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from localspec.catalog import filenames
from localspec.catalog.filenames import Name
from localspec.catalog.memory import show_bytes
from localspec.errors import PullError

TARGET_ORDER = (
    *("Q4_K_M", "UD-Q4_K_XL", "MXFP4", "MXFP4_MOE", "Q4_K_XL", "Q4_K_S", "UD-Q4_K_S", "Q4_K_L"),
    *("Q4_0", "IQ4_XS", "UD-IQ4_XS", "IQ4_NL", "UD-IQ4_NL", "Q4_1", "Q4_K", "NVFP4"),
    *("Q5_K_M", "UD-Q5_K_XL", "Q5_K_S", "Q5_K_L", "Q5_K_XL", "Q5_0", "Q5_1", "Q5_K"),
    *("Q6_K", "UD-Q6_K_XL", "Q6_K_L", "Q6_K_XL", "Q8_0", "UD-Q8_K_XL", "Q8_K_XL"),
    *("UD-Q3_K_XL", "Q3_K_XL", "Q3_K_L", "Q3_K_M", "IQ3_M", "IQ3_S", "UD-IQ3_S", "Q3_K_S"),
    *("Q3_K", "IQ3_XS", "UD-IQ3_XXS", "IQ3_XXS"),
    *("UD-Q2_K_XL", "Q2_K_XL", "Q2_K_L", "Q2_K", "IQ2_M", "UD-IQ2_M", "Q2_K_S", "IQ2_S", "IQ2_XS"),
    *("UD-IQ2_XXS", "IQ2_XXS", "TQ2_0", "Q2_0", "BF16", "F16"),
    *("UD-IQ1_M", "IQ1_M", "UD-IQ1_S", "IQ1_S", "UD-TQ1_0", "TQ1_0", "Q1_0"),
)
"""Four bits first: they lose little, and decoding reads every bit for each token. Then better
quantizations, then smaller ones in case those do not fit."""
DRAFT_ORDER = ("Q4_0", "Q4_K_M", "Q4_K_S", "IQ4_XS", "Q5_K_M", "Q8_0")
"""A draft's worth is its speed, so INT4 comes before all others."""

_HEAD_SHARE = 0.5
"""A file that may be a draft head is one if it has less than this share of a model's bytes: heads
have a thirtieth, and a model with its head inside is larger than one without."""
MEMORY_FACTOR = 1.15
"""Free memory must be this multiple of the weights; the rest is for KV and scratch."""


class File(NamedTuple):
    """One file of a repository. `sha256` is the Hub's listed digest, "" if it lists none."""

    path: str
    size_bytes: int
    sha256: str = ""


_PROJECTORS = ("F16", "BF16", "Q8_0")
"""Quantizations of projectors, the best first."""


class Variant(NamedTuple):
    """One model of a repository: its quantization ("" if its name has none), and its parts.

    `plain` is False for a name that would also suit a draft head or an adapter.
    """

    label: str
    name: str
    files: tuple[File, ...]
    plain: bool = True

    @property
    def size_bytes(self) -> int:
        """Bytes of all parts."""
        return sum(file.size_bytes for file in self.files)


class Choice(NamedTuple):
    """A variant, and the reason for choosing it in a few words."""

    variant: Variant
    why: str


class Sorted(NamedTuple):
    """A repository's models, smallest first, and the other files with their kinds."""

    models: list[Variant]
    others: dict[str, str]


def variants(files: Iterable[File]) -> list[Variant]:
    """The models among the files, parts put together, smallest first.

    Projectors, draft heads, adapters and incomplete sets are left out.
    """
    return sort(files).models


def sort(files: Iterable[File]) -> Sorted:
    """Separate models from other files by names and, where a name may mean both, by sizes."""
    groups: dict[str, list[tuple[Name, File]]] = {}
    for file in files:
        if name := filenames.read(file.path):
            groups.setdefault(name.whole, []).append((name, file))
    whole = {path: group for path, group in groups.items() if _complete(group)}
    foldered = {path: filenames.folder(path) for path in whole}
    if all(foldered[path] for path, group in whole.items() if not group[0][0].other):
        # If every model is in such a folder, the folders tell nothing.
        foldered = dict.fromkeys(whole, "")
    others = {
        name.path: name.other or filenames.INCOMPLETE
        for path in groups.keys() - whole.keys()
        for name, _ in groups[path]
    }
    models: list[Variant] = []
    unsure: list[tuple[Variant, str]] = []
    for path, group in whole.items():
        name = group[0][0]
        found = Variant(
            name.label,
            path.rpartition("/")[2],
            tuple(file for _, file in sorted(group, key=lambda each: each[0].part)),
            plain=not name.maybe,
        )
        if what := name.other or foldered[path]:
            others |= dict.fromkeys((file.path for file in found.files), what)
        elif name.maybe:
            unsure.append((found, name.maybe))
        else:
            models.append(found)
    kept = [each for each, _ in unsure if not _too_small(each, models)]
    for each, what in unsure:
        if each not in kept:
            others |= dict.fromkeys((file.path for file in each.files), what)
    found_models = sorted([*models, *kept], key=lambda variant: (variant.size_bytes, variant.name))
    return Sorted(found_models, others)


def projector(files: Iterable[File]) -> File | None:
    """The projector to fetch from those of a repository: one of 16 bits if possible, then of 8.

    It is small beside its model, and its precision decides how well the model sees an image.
    """

    def rank(file: File) -> tuple[int, int]:
        label = filenames.label(file.path)
        order = _PROJECTORS.index(label) if label in _PROJECTORS else len(_PROJECTORS)
        return order, file.size_bytes

    return min(files, key=rank, default=None)


def _complete(group: Sequence[tuple[Name, File]]) -> bool:
    """Whether every part of a model is there exactly once."""
    parts = sorted(name.part for name, _ in group)
    count = max(name.parts for name, _ in group) or len(parts)
    return parts == [*range(1, count + 1)] and (len(parts) > 1 or not group[0][0].cut)


def _too_small(unsure: Variant, models: Sequence[Variant]) -> bool:
    """Whether a file is too small to be a model like the others, by bits and parameters."""
    own = filenames.bits(unsure.label), filenames.parameters(unsure.name)
    for model in sorted(models, key=lambda each: each.label != unsure.label):
        theirs = filenames.bits(model.label), filenames.parameters(model.name)
        expected = float(model.size_bytes)
        for mine, other in zip(own, theirs, strict=True):
            expected *= mine / other if mine and other else 1.0
        return unsure.size_bytes < _HEAD_SHARE * expected
    return False


def choose(
    found: Sequence[Variant], wanted: str, room_bytes: int, order: Sequence[str] = TARGET_ORDER
) -> Choice:
    """The variant that `wanted` names; if it is empty, the first of `order` that fits.

    Raises PullError if there is no such variant, or none fits into `room_bytes`.
    """
    if wanted:
        return Choice(_named(found, wanted), "as you asked for")
    if len(found) == 1:
        return Choice(found[0], "the only one there is")
    fitting = [each for each in found if each.size_bytes * MEMORY_FACTOR <= room_bytes]
    ranked = sorted(
        (each for each in fitting if each.label in order),
        key=lambda each: (order.index(each.label), not each.plain),
    )
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
    """The variant that matches a file name, a quantization or its beginning ("Q4"), in any case."""
    lower = wanted.lower()
    plain = sorted(found, key=lambda each: not each.plain)
    for fits in (_is_file, _is_label, _is_label_of_another):
        for each in plain:
            if fits(each, lower):
                return each
    begun = [each for each in plain if each.label.lower().removeprefix("ud-").startswith(lower)]
    if begun:
        order = {label: index for index, label in enumerate(TARGET_ORDER)}
        return min(begun, key=lambda each: order.get(each.label, len(order)))
    raise PullError(
        f'There is no "{wanted[:80]}" in this repository.',
        fix=f"Take one of these: {_labels(found) or 'it has no GGUF'}",
    )


def _is_file(variant: Variant, wanted: str) -> bool:
    """Whether `wanted` is the path or name of the variant, or of one of its parts."""
    paths = [file.path.lower() for file in variant.files]
    return wanted in {variant.name.lower(), *paths, *(path.rpartition("/")[2] for path in paths)}


def _is_label(variant: Variant, wanted: str) -> bool:
    same = f"f{wanted[2:]}" if wanted.startswith("fp") else wanted
    return bool(variant.label) and variant.label.lower() == same


def _is_label_of_another(variant: Variant, wanted: str) -> bool:
    """Whether they are equal without unsloth's prefix "UD-", which users often leave out."""
    return variant.label.lower().removeprefix("ud-") == wanted.removeprefix("ud-")


def _labels(found: Sequence[Variant]) -> str:
    return ", ".join(each.label or each.name for each in found[:40])
