"""The incoming text of an answer, and the pieces that a reader makes of it.

A reader is a generator: it reads as if the whole answer were there, and yields where it has to
wait for more. So its result cannot depend on the parts in which the text came. Every character of
the answer becomes part of exactly one piece, in order.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Sequence
from functools import lru_cache
from typing import Literal, NamedTuple, TypeAlias, TypeVar

Kind: TypeAlias = Literal["content", "reasoning", "call", "arguments", "markup"]
"""The kind of a piece: words for the user, thoughts, the name of a function that is called, its
arguments in JSON, or marks around these."""

Result = TypeVar("Result")
Reading: TypeAlias = Generator[None, None, Result]

BLANK = " \t\r\n"

_LINES = re.compile(r"[ \t]*\n[ \t\n]*")
_LEADING = re.compile(r"^(\])(?=<[/|])")
_TRAILING = re.compile(r"(?<=[>\]])(\[)$")


_TICKS = re.compile("`+|[^`]+")
FENCE = "```"
"""The mark of a code fence, which may have more backticks."""
_MOST_LOOKS = 64
"""The most looks at one place without taking anything. A mark is tried in only a few ways: a
reading that looks more often would never end."""
_MOST_SEEN = 32
"""How often the characters seen so far may be looked at, on average, in search of calls. Each mark
of a call without an end makes a reading look through all of the rest."""


class Piece(NamedTuple):
    """A part of an answer: `text` is its content, `raw` the characters that it was read from."""

    kind: Kind
    text: str
    raw: str


class Tape:
    """The unread text of an answer. Request lifetime.

    `peek`, `blank`, `literal`, `mark` and `find` look ahead and take nothing; `give` takes.
    """

    def __init__(self) -> None:
        self.text = ""
        self.ended = False
        self.cut = False
        """The answer was ended by a limit: its last part may have no end."""
        self.short = False
        """Something that was looked for might have come, had the answer gone on."""
        self.taken = 0
        """The number of characters taken so far."""
        self.last = ""
        """The character that was taken last."""
        self.fenced = False
        """The words taken so far have opened a code fence and not closed it."""
        self.pieces: list[Piece] = []
        self._ticks = 0
        self._said = self._apart = False
        self._looked = self._looks = 0
        self._seen = self._reach = 0

    def look(self) -> None:
        """Count one more look of a reading at this place.

        Raises:
            ValueError: the reading looks again and again and takes nothing: it would never end.
        """
        self._looks = self._looks + 1 if self._looked == self.taken else 0
        self._looked = self.taken
        if self._looks > _MOST_LOOKS:
            raise ValueError("a reading that takes nothing")

    def see(self, begin: int, end: int) -> None:
        """Count the characters from `begin` to `end` as looked at in search of a call."""
        self._seen += end - begin
        self._reach = max(self._reach, self.taken + end)

    @property
    def tired(self) -> bool:
        """Whether calls were looked for so long that the next marks are words."""
        return self._seen > _MOST_SEEN * self._reach

    def give(self, kind: Kind, count: int, text: str | None = None) -> None:
        """Make a piece of the next `count` characters; its text is `text`, else the characters."""
        raw, self.text = self.text[:count], self.text[count:]
        if raw:
            self.taken += len(raw)
            self.last = raw[-1]
            if kind == "content":
                text = self._words(raw) if text is None else text
            elif kind == "call":
                self._apart = self._said
            self.pieces.append(Piece(kind, raw if text is None else text, raw))

    def _words(self, raw: str) -> str:
        """The words `raw`, on a line of their own if calls stood between them and earlier words."""
        if "`" in raw or self._ticks:
            for run in _TICKS.findall(raw):
                before, self._ticks = self._ticks, self._ticks + len(run) if run[0] == "`" else 0
                if before < len(FENCE) <= self._ticks:
                    self.fenced = not self.fenced
        said, apart = bool(raw.strip()), self._apart
        self._said = self._said or said
        self._apart = apart and not said
        return "\n" + raw.lstrip(BLANK) if apart and said else raw

    def peek(self, at: int) -> Reading[str]:
        """The character at that place; "" after the end of the answer."""
        while at >= len(self.text):
            if self.ended:
                self.short = True
                return ""
            yield
        return self.text[at]

    def blank(self, at: int) -> Reading[int]:
        """The first place from `at` on that is not blank."""
        while True:
            text, size = self.text, len(self.text)
            while at < size and text[at] in BLANK:
                at += 1
            if at < size or self.ended:
                return at
            yield

    def literal(self, at: int, text: str) -> Reading[int | None]:
        """The place after `text`; None if it does not come next."""
        end = at + len(text)
        while len(self.text) < end:
            if self.text[at:] != text[: max(0, len(self.text) - at)]:
                return None
            if self.ended:
                self.short = True
                return None
            yield
        return end if self.text.startswith(text, at) else None

    def mark(self, at: int, text: str) -> Reading[int | None]:
        """The place after a mark, with any blanks before it and at its line breaks, or None.

        Where the mark has double quotes, some models write single ones or none.
        """
        place: int | None = at
        for part in tokens(text):
            begin = yield from self.blank(at)
            for quote in ('"', "'", ""):
                place = yield from self.literal(begin, part.replace('"', quote))
                if place is not None or '"' not in part:
                    break
            if place is None:
                return None
            at = place
        return place

    def find(self, at: int, text: str) -> Reading[int]:
        """Where `text` begins, from `at` on; -1 where the answer ends without it."""
        begin = at
        while (found := self.text.find(text, at)) < 0:
            if self.ended:
                self.short = True
                self.see(begin, len(self.text))
                return -1
            at = max(at, len(self.text) - len(text) + 1)
            yield
        self.see(begin, found)
        return found


@lru_cache(maxsize=512)
def tokens(mark: str) -> Sequence[str]:
    """The parts of a mark that may have blanks before them: lines, and outer brackets."""
    found: list[str] = []
    for line in _LINES.split(mark):
        for pattern in (_LEADING, _TRAILING):
            line = pattern.sub("\n\\1\n", line)  # noqa: PLW2901 - the same line, parted
        found += [part for part in line.split("\n") if part]
    return tuple(found)


class Reader:
    """Runs a format's reader over an answer that comes in parts. Request lifetime."""

    def __init__(self, reading: Callable[[Tape], Reading[None]]) -> None:
        self._tape = Tape()
        self._reading: Reading[None] | None = reading(self._tape)

    def push(self, text: str) -> list[Piece]:
        """The pieces that `text` completes."""
        self._tape.text += text
        return self._advance()

    def finish(self, *, cut: bool = False) -> list[Piece]:
        """The remaining pieces at the end of the answer. `cut`: it was ended by a limit."""
        self._tape.ended = True
        self._tape.cut = cut
        return self._advance()

    def _advance(self) -> list[Piece]:
        tape = self._tape
        try:
            if self._reading is not None:
                next(self._reading)
        except (StopIteration, RecursionError, ValueError):  # an unreadable answer is text
            self._reading = None
        if self._reading is None:  # the rest after a reader's end is text
            tape.give("content", len(tape.text))
        pieces, tape.pieces = tape.pieces, []
        return pieces


def words(tape: Tape) -> Reading[None]:
    """Take the rest as text."""
    while not tape.ended:
        tape.give("content", len(tape.text))
        yield
    tape.give("content", len(tape.text))
