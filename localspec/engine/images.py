"""The places of images in a text: rows that carry a vector and no token. Pure.

In a list of tokens each row of an image has a stand-in below 0, made of a hash of the image. Texts
with the same image agree there and texts with another one part at its first rows; no word is ever
taken for a part of an image.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from localspec.types import Backend, Floats, Token

PIECE_ROWS = 64
"""Rows of an image in one forward: what others wait for. Always from the same rows on, so that
their bits do not depend on who else is there."""


@dataclass(frozen=True, slots=True, eq=False)
class ImageRows:
    """The rows of an image from place `start` of a text on: `vectors` float32 (rows, width).

    Rows of a `whole` one see each other, and one forward has to hold them all.
    """

    start: int
    vectors: Floats
    whole: bool = False

    @property
    def end(self) -> int:
        """The place behind its last row."""
        return self.start + len(self.vectors)

    def border(self, place: int) -> int:
        """The last place up to `place`, in the image or at its end, where a forward may begin."""
        if place >= self.end:
            return place
        inside = place - self.start
        return self.start if self.whole else place - inside % PIECE_ROWS

    def piece(self, place: int) -> Floats:
        """The vectors of the next forward from a border on."""
        inside = place - self.start
        return self.vectors[inside:] if self.whole else self.vectors[inside : inside + PIECE_ROWS]


@dataclass(frozen=True, slots=True, eq=False)
class EncodedImage:
    """The rows of an image, or of a piece of one, before they have a place in a text."""

    stand_ins: list[Token]
    vectors: Floats
    whole: bool = False


@runtime_checkable
class Seeing(Backend, Protocol):
    """A backend that reads rows of vectors."""

    def see(self, slot: int, place: int, vectors: Floats, *, whole: bool) -> None:
        """Read them in one forward, from `place` on; of a `whole` image each sees all.

        Raises NoRoom, and then nothing was changed.
        """


def stand_ins(key: bytes, rows: int) -> list[Token]:
    """The stand-ins of an image's rows, by what identifies it."""
    drawn = np.frombuffer(hashlib.shake_256(key).digest(4 * rows), "<u4") >> 1
    found: list[Token] = (-1 - drawn.astype(np.int64)).tolist()
    return found


def placed(text: Sequence[Token], images: Sequence[EncodedImage]) -> list[ImageRows]:
    """Where these images stand in a text. Raises ValueError: it has others."""
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
        found.append(ImageRows(place, image.vectors, image.whole))
        place = found[-1].end
    return found


def words(tokens: Sequence[Token]) -> list[Token]:
    """The tokens of a text without its images: for whoever does not see them."""
    return [token for token in tokens if token >= 0]


def sees(tokens: Sequence[Token]) -> bool:
    """Whether there is an image in the text."""
    return min(tokens, default=0) < 0


def border(images: Sequence[ImageRows], place: int) -> int:
    """How much of the first `place` tokens may be held: not a part of an image that differs.

    Texts of different images could agree in a few stand-ins by chance, in a whole piece never.
    """
    for image in images:
        if image.start < place:
            place = min(place, image.border(place))
    return place
