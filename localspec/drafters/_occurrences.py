"""An index of the places where the end of a text occurred before, which grows token by token.

Every block of 1, 2, 4, 8 and 16 tokens has a name, and equal blocks have the same one: a block's
name is looked up by the names of its two halves (Karp, Miller and Rosenberg, 1972), so names are
exact and nothing is hashed twice. A name leads to its latest occurrence and from there to earlier
ones.

A suffix automaton finds the same longest match. It finds neither the latest occurrence nor what
followed the others, unless each new token updates every state on its suffix path, and as objects in
Python it costs several times as much to build. Here a token costs five dictionary look-ups,
whatever the text; a search costs at most `MAX_CANDIDATES` comparisons.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from localspec.types import Token

LEVELS = 5
MAX_MATCH = 48
"""Longer matches are as good as certain; comparing further would only cost time."""
MAX_CANDIDATES = 24
"""The most occurrences looked at in a search: in periodic text nearly every position is one."""
REPEAT_TOKENS = 8
"""Equal tokens by which two places are taken to go on alike; the size of a block."""

_REPEAT_LEVEL = REPEAT_TOKENS.bit_length() - 1
_SHIFT = 32  # two names make one key; a text has far fewer than 2**32 blocks


class Match(NamedTuple):
    """An occurrence of the text's end: the text goes on at `position`; `length` tokens agree."""

    position: int
    length: int


@dataclass(slots=True)
class _Level:
    """Names of all blocks of one size, by start; `earlier` is where the equal one before starts."""

    ids: dict[int, int] = field(default_factory=dict)
    latest: list[int] = field(default_factory=list)
    names: list[int] = field(default_factory=list)
    earlier: list[int] = field(default_factory=list)

    def append(self, key: int) -> None:
        """Add the block that ends with the latest token."""
        name, start = self.ids.get(key), len(self.names)
        if name is None:
            self.ids[key] = name = len(self.latest)
            self.latest.append(start)
            self.earlier.append(-1)
        else:
            self.earlier.append(self.latest[name])
            self.latest[name] = start
        self.names.append(name)

    def extend(self, keys: Iterable[int]) -> None:
        ids, latest, names, earlier = self.ids, self.latest, self.names, self.earlier
        for start, key in enumerate(keys, len(names)):
            name = ids.get(key)
            if name is None:
                ids[key] = name = len(latest)
                latest.append(start)
                earlier.append(-1)
            else:
                earlier.append(latest[name])
                latest[name] = start
            names.append(name)

    def back(self, block: int) -> list[int]:
        """The starts of a block and of equal ones before it, latest first; none for -1."""
        starts: list[int] = []
        while block >= 0 and len(starts) < MAX_CANDIDATES:
            starts.append(block)
            block = self.earlier[block]
        return starts


class Occurrences:
    """A text and its index. Request lifetime; `text` grows by `extend` only."""

    def __init__(self, text: Sequence[Token] = ()) -> None:
        self.text: list[Token] = []
        self._levels = [_Level() for _ in range(LEVELS)]
        self.extend(text)

    def extend(self, tokens: Sequence[Token]) -> None:
        """Append tokens: O(1) each."""
        if len(tokens) == 1:  # as of most rounds
            self._append(tokens[0])
            return
        self.text += tokens
        self._levels[0].extend(tokens)
        for size, (halves, level) in enumerate(
            zip(self._levels, self._levels[1:], strict=False), start=1
        ):
            half = 1 << (size - 1)
            first = len(level.names)
            left, right = halves.names[first:], halves.names[first + half :]
            level.extend((a << _SHIFT) | b for a, b in zip(left, right, strict=False))

    def _append(self, token: Token) -> None:
        self.text.append(token)
        self._levels[0].append(token)
        halves = self._levels[0].names
        for size in range(1, LEVELS):
            half = 1 << (size - 1)
            if len(halves) <= half:
                return
            level = self._levels[size]
            level.append((halves[-1 - half] << _SHIFT) | halves[-1])
            halves = level.names

    def search(self, ahead: Sequence[Token] = ()) -> list[Match]:
        """Earlier occurrences of the end of text + `ahead`, the longest match first.

        All agree in the longest block, of up to 16 tokens, that occurs at all. The latest comes
        first among equal lengths, which are exact up to MAX_MATCH. When a block has more than
        MAX_CANDIDATES occurrences, the latest are looked at.
        """
        tail = self.text[-MAX_MATCH:]
        tail += ahead
        tail = tail[-MAX_MATCH:]
        for size in range(LEVELS - 1, -1, -1):
            ends = self._ends(tail, size, with_last=bool(ahead))
            if ends:
                found = [Match(end + 1, self._agreement(tail, end)) for end in ends]
                found.sort(key=_by_length, reverse=True)  # stable: recency breaks ties
                return found
        return []

    def near(self, place: int, window: int) -> Match | None:
        """The occurrence of the last token, from `place` on, that agrees best with the text's end.

        The first of several; None if there is none in the `window`.
        """
        text, last = self.text, self.text[-1]
        stop = min(place + window, len(text) - 1)
        best: Match | None = None
        while place < stop:
            try:
                place = text.index(last, place, stop)
            except ValueError:
                break
            place += 1
            length = self._agreement(text[-MAX_MATCH:], place - 1)
            if best is None or length > best.length:
                best = Match(place, length)
        return best

    def repeat(self, position: int, stop: int) -> int | None:
        """A place before `stop` where the text goes on as at `position`, for REPEAT_TOKENS.

        It is the one with the longest agreement before it; None if there is none, or if fewer
        tokens follow `position`.
        """
        level, text = self._levels[_REPEAT_LEVEL], self.text
        if position >= len(level.names):
            return None
        before = text[max(0, position - MAX_MATCH) : position]
        prefix_sharing = [block for block in level.back(level.earlier[position]) if block < stop]
        return max(prefix_sharing, key=lambda at: self._agreement(before, at - 1), default=None)

    def _ends(self, tail: Sequence[Token], size: int, *, with_last: bool) -> list[int]:
        """Ends of the latest blocks equal to the last 2**size tokens of `tail`, latest first."""
        width = 1 << size
        level = self._levels[size]
        if not with_last:  # the text's own last block, which has its name already
            block = level.earlier[-1] if level.earlier else -1
        else:
            name = self._name(tail, size)
            block = -1 if name is None else level.latest[name]
        return [start + width - 1 for start in level.back(block)]

    def _name(self, tail: Sequence[Token], size: int) -> int | None:
        """The name of the last 2**size tokens of `tail`; None when no such block exists."""
        if len(tail) < 1 << size:
            return None
        names: list[int] = []
        for token in tail[-(1 << size) :]:
            name = self._levels[0].ids.get(token)
            if name is None:
                return None
            names.append(name)
        for level in self._levels[1 : size + 1]:
            pairs = zip(names[::2], names[1::2], strict=True)
            found = [level.ids.get((a << _SHIFT) | b) for a, b in pairs]
            names = [name for name in found if name is not None]
            if len(names) < len(found):
                return None
        return names[0]

    def _agreement(self, tail: Sequence[Token], end: int) -> int:
        """How many tokens before and at `end` agree with the end of `tail`."""
        text = self.text
        most = min(len(tail), end + 1)
        length = 0
        while length < most and text[end - length] == tail[-1 - length]:
            length += 1
        return length


def _by_length(match: Match) -> int:
    return match.length
