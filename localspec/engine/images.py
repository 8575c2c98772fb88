"""The places of images in a text: rows that carry a vector and no token. Pure.

In a list of tokens each row of an image has a stand-in below 0, made of a hash of the image. Texts
with the same image have the same stand-ins, texts with different images part at the first rows of
these, and no stand-in equals a word. A stand-in also says whether its row advances the position:
where positions have two dimensions (M-RoPE), an image takes fewer positions than rows, and only as
many of its last rows advance.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from localspec.types import Backend, Floats, Token

Gap: TypeAlias = tuple[int, int]
"""The place where rows of an image end in a text, and how many more they are than positions."""
Grid: TypeAlias = NDArray[np.int32]
"""M-RoPE positions of rows, (rows, 4), relative to the position of the image."""

PIECE_ROWS = 64
"""Rows of an image in one forward, for which other sessions wait. Pieces always begin at the same
rows of an image, so that their bits do not depend on other sessions."""


@dataclass(frozen=True, slots=True, eq=False)
class ImageRows:
    """The rows of an image from place `start` of a text on: `vectors` float32 (rows, width).

    Rows of a `whole` image see each other, and one forward has to hold them all. With a `grid` the
    rows take `positions` positions of the text together; without, one each.
    """

    start: int
    vectors: Floats
    whole: bool = False
    grid: Grid | None = None
    positions: int = 0

    @property
    def end(self) -> int:
        """The place after its last row."""
        return self.start + len(self.vectors)

    def border(self, place: int) -> int:
        """The last place up to `place`, in the image or at its end, where a forward may begin."""
        if place >= self.end:
            return place
        inside = place - self.start
        parted = not self.whole and self.grid is None  # rows at one position leave together
        return place - inside % PIECE_ROWS if parted else self.start

    def piece(self, place: int) -> range:
        """The rows of the next forward, where the image has been read up to `place`."""
        inside, count = place - self.start, len(self.vectors)
        return range(inside, count if self.whole else min(inside + PIECE_ROWS, count))

    def gap(self, rows: range) -> int:
        """How many of these rows advance no position."""
        first = len(self.vectors) - self.positions if self.grid is not None else 0
        return max(0, min(rows.stop, first) - rows.start)


@dataclass(frozen=True, slots=True, eq=False)
class EncodedImage:
    """The rows of an image, or of a piece of one, before they have a place in a text."""

    stand_ins: list[Token]
    vectors: Floats
    whole: bool = False
    grid: Grid | None = None
    positions: int = 0


@runtime_checkable
class ImageBackend(Backend, Protocol):
    """A backend that reads rows of vectors."""

    def see(self, slot: int, image: ImageRows, rows: range) -> None:
        """Read these rows of an image in one forward; of a `whole` image each sees all.

        Raises NoRoom, and then nothing was changed.
        """


def stand_ins(key: bytes, rows: int, positions: int | None = None) -> list[Token]:
    """The stand-ins of an image's rows, by its key; the last `positions` advance, or all rows."""
    drawn = np.frombuffer(hashlib.shake_256(key).digest(4 * rows), "<u4") >> 2
    advances = np.arange(rows) >= rows - (rows if positions is None else positions)
    found: list[Token] = (-1 - (2 * drawn.astype(np.int64) + advances)).tolist()
    return found


def gaps(text: Sequence[Token]) -> tuple[Gap, ...]:
    """The gaps of a text, in order: one after each run of rows that advance no position."""
    found: list[Gap] = []
    still = [place for place, token in enumerate(text) if token < 0 and (-1 - token) % 2 == 0]
    for place in still:
        if found and found[-1][0] == place:
            found[-1] = (place + 1, found[-1][1] + 1)
        else:
            found.append((place + 1, 1))
    return tuple(found)


def placed(text: Sequence[Token], images: Sequence[EncodedImage]) -> list[ImageRows]:
    """The rows of these images at their places in a text. Raises ValueError if it has others."""
    known = {image.stand_ins[0]: image for image in images}
    found: list[ImageRows] = []
    place = 0
    while place < len(text):
        if text[place] >= 0:
            place += 1
            continue
        image = known.get(text[place])
        if image is None or [*text[place : place + len(image.stand_ins)]] != image.stand_ins:
            raise ValueError(f"there is another one at token {place}")
        found.append(ImageRows(place, image.vectors, image.whole, image.grid, image.positions))
        place = found[-1].end
    return found


def words(tokens: Sequence[Token]) -> list[Token]:
    """The tokens of a text without its images, for drafters that cannot see them."""
    return [token for token in tokens if token >= 0]


def sees(tokens: Sequence[Token]) -> bool:
    """Whether there is an image in the text."""
    return min(tokens, default=0) < 0


def border(images: Sequence[ImageRows], place: int) -> int:
    """How many of the first `place` tokens may be held, such that a forward may begin after them.

    That leaves out rows of a different image: two images may agree in a few stand-ins by chance,
    but never in a whole piece.
    """
    for image in images:
        if image.start < place:
            place = min(place, image.border(place))
    return place
