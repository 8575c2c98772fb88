"""Work in pieces of one forward each, so that a request can come between two of them."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, TypeAlias, TypeVar

_Found = TypeVar("_Found")

Pieces: TypeAlias = Generator[None, None, _Found]
"""Yields after each forward; returns what was found."""


def whole(pieces: Generator[Any, None, _Found]) -> _Found:
    """Do all of the work at once; returns what was found."""
    while True:
        try:
            next(pieces)
        except StopIteration as done:
            found: _Found = done.value
            return found
