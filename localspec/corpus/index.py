"""The index of a corpus: its tokens, and where every 4, 8 and 16 of them in a row stand.

A table has one 64-bit key for each place in the corpus, in ascending order: the upper bits are a
hash of the tokens before the place, the lower bits are the place. A binary search finds all places
behind some tokens. The tokens themselves are compared afterwards, so that equal hashes of other
tokens do no harm. The file is mapped, not read: what is not asked for takes no memory. It has 28
bytes for each token.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from localspec.corpus.contents import MAGIC, VERSION, Contents, decoded, layout
from localspec.types import Token

if TYPE_CHECKING:
    from numpy.typing import NDArray

Keys: TypeAlias = "NDArray[np.uint64]"
Tokens: TypeAlias = "NDArray[np.uint32]"

SIZES = (4, 8, 16)
"""The lengths of indexed runs of tokens. Shorter ones are everywhere; longer ones add nothing."""
SEPARATOR = 0xFFFFFFFF
"""Stands before, between and behind files: no token, so that nothing is found across it."""
BACK = 32
"""Tokens before a place that are compared: more tell nothing more."""
AHEAD = 64
"""Most tokens that are read behind a place. The corpus is padded by so many at its end, and by
`BACK` at its beginning."""
PLACE_BITS = 26
MOST_TOKENS = 1 << 22
"""4 million tokens are about 16 MB of source, more than a person reads; their index has 117 MB."""
_CANDIDATES = 8
_LOOKED_AT = 64
"""The most places that are compared, spread over the first 64 found: more would tell no more."""

_MASK = (1 << 64) - 1
_PLACES = (1 << PLACE_BITS) - 1
_ODD = 0x9E3779B97F4A7C15  # 2**64 by the golden ratio
_MIX = 0xBF58476D1CE4E5B9  # of splitmix64 (Steele, Lea and Flood, 2014)


@dataclass(frozen=True, slots=True)
class CorpusPlaces:
    """Where a text's end stands in the corpus, all of them after the same number of tokens.

    `length` tokens agree (at most `BACK`). `ahead` are the tokens that follow, one row for each
    place, from `positions`.
    """

    length: int
    positions: tuple[int, ...]
    ahead: tuple[tuple[Token, ...], ...]


class Index:
    """A file of an index, mapped. Any thread may search; `contents` says what is in it."""

    def __init__(self, contents: Contents, tokens: Tokens, tables: dict[int, Keys]) -> None:
        self.contents = contents
        self.tokens = tokens
        self._tables = tables

    @classmethod
    def open(cls, path: Path) -> Index:
        """Map a file. Raises OSError if it cannot be read, ValueError if it is no whole index."""
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(handle, "rb") as file:
            contents, start = decoded(file)
            sections = layout(start, contents.tokens, contents.keys)
            if os.fstat(handle).st_size != sections.end:
                raise ValueError("the index is cut off")
            mapped = mmap.mmap(handle, 0, prot=mmap.PROT_READ)
        tokens = np.frombuffer(mapped, np.uint32, contents.tokens, sections.tokens)
        tables = {
            size: np.frombuffer(mapped, np.uint64, count, place)
            for size, count, place in zip(SIZES, contents.keys, sections.keys, strict=True)
        }
        return cls(contents, tokens, tables)

    def __len__(self) -> int:
        return len(self.tokens)

    def search(self, tail: Sequence[Token]) -> CorpusPlaces | None:
        """The places after the longest part of the end of `tail` that the corpus has.

        Fewer tokens are looked for first: where not even these are in it, as is usual, one hash and
        one search tell so.
        """
        there: list[tuple[int, Keys]] = []
        blocks: list[int] = []
        for size in SIZES:
            if len(tail) < size:
                break
            blocks += [_block(tail, end) for end in range(len(blocks), size // SIZES[0])]
            key = _folded(blocks) & ~_PLACES & _MASK
            table = self._tables[size]
            low = int(table.searchsorted(np.uint64(key)))
            if low == len(table) or table.item(low) > key | _PLACES:
                break
            near = table[low : low + _LOOKED_AT]
            there.append((size, near[: near.searchsorted(np.uint64(key | _PLACES), "right")]))
        compared = (self._compared(places, tail, size) for size, places in reversed(there))
        return next(filter(None, compared), None)

    def ahead(self, position: int) -> list[Token]:
        """The tokens from a place on, as far as its file goes, at most AHEAD."""
        found: list[Token] = self.tokens[position : position + AHEAD].tolist()
        return found[: found.index(SEPARATOR)] if SEPARATOR in found else found

    def _compared(self, keys: Keys, tail: Sequence[Token], size: int) -> CorpusPlaces | None:
        """The places behind the longest match with `tail`; None for less than `size` tokens."""
        chosen = (keys[:: -(-len(keys) // _CANDIDATES)] & np.uint64(_PLACES)).astype(np.int64)
        chosen = chosen[self.tokens.take(chosen, mode="clip") != SEPARATOR]
        if not len(chosen):
            return None  # ends of files
        recent = np.array(tail[: -BACK - 1 : -1], np.uint32)
        before = self.tokens.take(chosen[:, None] - _BEFORE[: len(recent)], mode="clip")
        equal = np.logical_and.accumulate(before == recent, axis=1).sum(axis=1)
        length = int(equal.max())
        if length < size:
            return None  # hashes that agree where tokens do not
        best = chosen[equal == length].tolist()
        return CorpusPlaces(length, tuple(best), tuple(tuple(self.ahead(place)) for place in best))


_BEFORE = np.arange(1, BACK + 1)


def joined(texts: Sequence[Tokens]) -> Tokens:
    """The tokens of a corpus: every text between separators, enough of them at both ends."""
    parts = [np.full(BACK, SEPARATOR, np.uint32)]
    for text in texts:
        parts += [text, np.full(1, SEPARATOR, np.uint32)]
    return np.concatenate([*parts, np.full(AHEAD, SEPARATOR, np.uint32)])


def keys(tokens: Tokens) -> Iterator[Keys]:
    """The table for each of SIZES, sorted.

    They are made in pieces of some milliseconds; after each piece an empty table is yielded.
    """
    runs: dict[int, list[Keys]] = {size: [] for size in SIZES}
    for start in range(0, len(tokens), _RUN):
        part = tokens[start : start + _RUN + SIZES[-1] - 1]
        for size, made in _unsorted(part):
            own = made[(made & np.uint64(_PLACES)) < _RUN + size] + np.uint64(start)
            runs[size].append(np.sort(own))
            yield _NOTHING
    for size in SIZES:
        merged = []
        borders = np.arange(1, _PARTS, dtype=np.uint64) << np.uint64(64 - _PART_BITS)
        split = [np.split(run, run.searchsorted(borders)) for run in runs.pop(size)]
        yield _NOTHING
        for same in zip(*split, strict=True):
            merged.append(np.sort(np.concatenate(same), kind="stable"))
            yield _NOTHING
        yield np.concatenate(merged)


_NOTHING: Keys = np.zeros(0, np.uint64)
_RUN = 1 << 17
"""Tokens whose keys are made and sorted at once."""
_PART_BITS = 5
_PARTS = 1 << _PART_BITS
"""A table of four million keys is merged in so many parts."""


def _unsorted(part: Tokens) -> Iterator[tuple[int, Keys]]:
    """The keys of each size for some tokens in a row; places count from their beginning."""
    blocks = _quads(part.astype(np.uint64))
    holes = np.concatenate([[0], np.cumsum(part == SEPARATOR)])
    for size in SIZES:
        if size > SIZES[0]:
            blocks = _pairs(blocks[: -size // 2], blocks[size // 2 :])
        ends = np.arange(size, len(part) + 1)
        places = ends[holes[ends] == holes[ends - size]].astype(np.uint64)
        yield size, (blocks[places - np.uint64(size)] & np.uint64(_MASK ^ _PLACES)) | places


def _quads(wide: Keys) -> Keys:
    """A hash of each four tokens in a row, by where they begin."""
    mixed = wide[:-3].copy()
    for place in range(1, 4):
        mixed = mixed * np.uint64(_ODD) + wide[place : len(wide) - 3 + place]
    return _mixed(mixed)


def _pairs(left: Keys, right: Keys) -> Keys:
    return _mixed(left * np.uint64(_ODD) + right)


def _mixed(values: Keys) -> Keys:
    values = (values ^ (values >> np.uint64(30))) * np.uint64(_MIX)
    return values ^ (values >> np.uint64(29))


def _block(tail: Sequence[Token], end: int) -> int:
    """The hash of the four tokens in a row behind which `end` more such blocks follow in `tail`.

    The same sums as in `_quads`, with Python's own numbers: it takes a microsecond.
    """
    last = len(tail) - 4 * end
    first, second, third, fourth = tail[last - 4 : last]
    mixed = (first * _ODD + second) & _MASK
    mixed = ((mixed * _ODD + third) & _MASK) * _ODD + fourth & _MASK
    mixed = ((mixed ^ (mixed >> 30)) * _MIX) & _MASK
    return mixed ^ (mixed >> 29)


def _folded(blocks: Sequence[int]) -> int:
    """The hash of one, two or four blocks, the last of the text first."""
    while len(blocks) > 1:
        pairs = zip(blocks[1::2], blocks[::2], strict=True)
        blocks = [_paired(left, right) for left, right in pairs]
    return blocks[0]


def _paired(left: int, right: int) -> int:
    mixed = (left * _ODD + right) & _MASK
    mixed = ((mixed ^ (mixed >> 30)) * _MIX) & _MASK
    return mixed ^ (mixed >> 29)


def header(contents: Contents) -> bytes:
    """The beginning of a file with these contents."""
    return contents.encoded(MAGIC, VERSION)
