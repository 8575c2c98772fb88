"""Chooses a draft for a model: one that is installed, or one to fetch."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

from localspec.catalog import entries, header, pairing
from localspec.catalog.entries import LEAST_DRAFT, MOST_DRAFT, Family
from localspec.catalog.filenames import active, parameters
from localspec.catalog.header import Header
from localspec.catalog.pairing import Pairing
from localspec.catalog.registry import Registry
from localspec.errors import BadGGUF

_BEST = 1 / 12
"""The assumed best share: smaller drafts are accepted less often, larger ones cost more."""

_AGREES = (0.6, 0.8)
"""Acceptance rates of a draft of the same family, in prose and in code."""
_A_ROW = (0.35, 0.08)
"""Cost of one more verified row, relative to a plain forward of one row: on a CPU and on a GPU."""
_DEEPEST = 8


class Partner(NamedTuple):
    """A draft, by its name here or its repository, and its size as a share of the target's."""

    name: str
    share: float


def here(target: Path, registry: Registry) -> Partner | None:
    """The best draft among the installed models, judged by their headers.

    A draft with another tokenizer is chosen only if none has the target's.
    """
    ours = header.read(target)
    found, others = list[Partner](), list[Partner]()
    for model in registry.models():
        if model.path is None or model.path == target:
            continue
        share = model.size_bytes / ours.file_bytes
        if not LEAST_DRAFT <= share <= MOST_DRAFT:
            continue
        if (verdict := _verdict(ours, model.path)) is not None and verdict.can_speculate:
            (others if verdict.by_text else found).append(Partner(model.name, share))
    return min(found or others, key=_badness, default=None)


def elsewhere(names: Iterable[str]) -> Partner | None:
    """A repository with a draft for a target, chosen from the catalog's families.

    `names` are the target's names: its repository, its file, and the name in its header. Its family
    is the first that matches one of them; other families may have other vocabularies.
    """
    for name in names:
        lower = name.lower()
        if size := active(lower):
            for family in entries.families():
                if family.has(lower):
                    return _smaller(family, size)
    return None


def expected_speedup(share: float) -> tuple[float, float]:
    """The expected speed-up of a pair, from the worst case to the best.

    Uses the formula of speculative sampling (Leviathan et al., 2023) at its best depth, for a draft
    that needs `share` of the target's time for a token.
    """
    low, high = (gain(share, *case) for case in zip(_AGREES, _A_ROW, strict=True))
    return low, high


def gain(share: float, agrees: float, row: float = _A_ROW[0]) -> float:
    """The speed-up at the best depth from 0 to `_DEEPEST`; 1 where not drafting is best."""
    depths = range(_DEEPEST + 1)
    return max(
        sum(agrees**node for node in range(depth + 1)) / (1 + depth * (share + row))
        for depth in depths
    )


def _smaller(family: Family, size: float) -> Partner | None:
    shares = (Partner(repo, parameters(repo) / size) for repo in family.drafts)
    return min(
        (each for each in shares if LEAST_DRAFT <= each.share <= MOST_DRAFT),
        key=_badness,
        default=None,
    )


def _verdict(ours: Header, path: Path) -> Pairing | None:
    try:
        return pairing.check(ours, header.read(path))
    except BadGGUF:
        return None


def _badness(partner: Partner) -> float:
    return abs(math.log(partner.share / _BEST))
