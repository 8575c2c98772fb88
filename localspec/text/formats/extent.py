"""Finds where a value ends in an incoming text, without building the value."""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import NamedTuple

from localspec.text.formats.marks import unfinished
from localspec.text.formats.tape import BLANK, Reading, Tape
from localspec.text.formats.values import APOSTROPHE, GEMMA

_CLOSING = {"{": "}", "[": "]", "(": ")"}
_BEFORE_STRING = "{[(,:="
"""Characters after which an apostrophe is a quote and not part of a word."""


class Extent(NamedTuple):
    """The end of a value; `whole` if its brackets were closed, and no mark ended it before."""

    end: int
    whole: bool


def bracketed(
    tape: Tape, at: int, stops: Sequence[str], *, gemma: bool = False, opened: bool = False
) -> Reading[Extent | None]:
    """The extent of the value whose first bracket is at `at`, or before it if `opened`.

    None where the answer ends inside of the value. One of `stops` outside of a string ends it too.
    """
    extent = yield from _bracketed(tape, at, stops, gemma=gemma, opened=opened)
    tape.see(at, len(tape.text) if extent is None else extent.end)
    return extent


def _bracketed(
    tape: Tape, at: int, stops: Sequence[str], *, gemma: bool, opened: bool
) -> Reading[Extent | None]:
    outside, begun = _outside(tuple(stops), gemma=gemma)
    reach = max(map(len, begun), default=0)
    place, depth = at, int(opened)
    while True:
        found = outside.search(tape.text, place)
        tail = tape.text[max(place, len(tape.text) - reach) :]
        held = len(tape.text) - unfinished(tail, begun)
        if found is None and tape.ended:
            tape.short = True
            return None
        if found is None or (held <= found.start() and not tape.ended):
            place = held  # with more text it may be a longer mark, such as three quotes for one
            yield
            continue
        what, place = found[0], found.end()
        if what in stops:
            return Extent(found.start(), whole=False)
        if what in _CLOSING:
            depth += 1
        elif what in "}])":
            depth -= 1
            if depth <= 0:
                return Extent(place, whole=True)
        elif what != "'" or _begins_string(tape.text, found.start()):
            end = yield from string(tape, place, what, escapes=not gemma)
            if end is None:
                return None
            place = end


def string(tape: Tape, at: int, quote: str, *, escapes: bool = True) -> Reading[int | None]:
    """The place after the quote that ends a string; None if the answer ends first."""
    pattern = _inside(quote, escapes=escapes)
    while True:
        found = pattern.search(tape.text, at)
        if found and found[0] == quote:
            behind = found.end()
            if quote != "'":
                return behind
            while len(tape.text) == behind and not tape.ended:
                yield
            if not APOSTROPHE.match(tape.text, behind - 2):
                return behind
            at = behind
            continue
        if found and found.end() > found.start() + 1:  # an escape sequence
            at = found.end()
            continue
        at = found.start() if found else max(at, len(tape.text) - len(quote) + 1)
        if tape.ended:
            tape.short = True
            return None
        yield


@lru_cache(maxsize=64)
def _outside(stops: tuple[str, ...], *, gemma: bool) -> tuple[re.Pattern[str], frozenset[str]]:
    """A pattern for stops, quotes and brackets, and all beginnings of stops and quotes."""
    quotes = GEMMA.quotes if gemma else ('"""', "'''", '"', "'")
    texts = [*sorted(stops, key=len, reverse=True), *quotes]
    begun = frozenset(text[:size] for text in texts for size in range(1, len(text)))
    return re.compile("|".join(map(re.escape, texts)) + r"|[{}\[\]()]"), begun


@lru_cache(maxsize=8)
def _inside(quote: str, *, escapes: bool) -> re.Pattern[str]:
    escape = r"\\(?s:.)?|" if escapes else ""
    return re.compile(escape + re.escape(quote))


def _begins_string(text: str, at: int) -> bool:
    while at and text[at - 1] in BLANK:
        at -= 1
    return at == 0 or text[at - 1] in _BEFORE_STRING
