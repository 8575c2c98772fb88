"""Texts as bytes: four for each token, so that long ones are compared at the speed of memory."""

from __future__ import annotations

import array
from collections.abc import Sequence

WIDTH = 4
_KIND = next(kind for kind in "il" if array.array(kind).itemsize == WIDTH)


def packed(tokens: Sequence[int]) -> bytes:
    """The tokens of a text in this machine's order of bytes."""
    return array.array(_KIND, tokens).tobytes()


def unpacked(text: bytes) -> list[int]:
    """The tokens of a text that was `packed`."""
    return array.array(_KIND, text).tolist()


def shared(one: bytes, other: bytes) -> int:
    """The number of tokens with which two packed texts begin alike."""
    least, most = 0, min(len(one), len(other)) // WIDTH
    if one[: most * WIDTH] == other[: most * WIDTH]:
        return most
    while most - least > 1:  # the first `least` agree, the first `most` do not
        middle = (least + most) // 2
        part = slice(least * WIDTH, middle * WIDTH)
        if one[part] == other[part]:
            least = middle
        else:
            most = middle
    return least
