"""The text of an answer as it comes in, and the pieces that a format's reader makes of it.

A reader is a generator: it reads as if the whole answer were there, and yields where it has to wait
for more. So what it says cannot depend on how the text was cut. Every character of the answer
becomes part of exactly one piece, in order.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import Literal, NamedTuple, TypeAlias, TypeVar

Kind: TypeAlias = Literal["content", "reasoning", "call", "arguments", "markup"]
"""What a piece is: words for the user, thoughts, the name of a function that is called, its
arguments in JSON, or what only marks where these begin and end."""

Result = TypeVar("Result")
Reading: TypeAlias = Generator[None, None, Result]

BLANK = " \t\r\n"


class Piece(NamedTuple):
    """A part of an answer: `text` is what it says, `raw` the characters that it was read from."""

    kind: Kind
    text: str
    raw: str


class Tape:
    """What of an answer has come and is not read yet. Request lifetime.

    `peek`, `blank`, `literal` and `string` look ahead and take nothing; `give` takes.
    """

    def __init__(self) -> None:
        self.text = ""
        self.ended = False
        self.pieces: list[Piece] = []

    def give(self, kind: Kind, count: int, text: str | None = None) -> None:
        """The next `count` characters are a piece, which says them or `text`."""
        raw, self.text = self.text[:count], self.text[count:]
        if raw:
            self.pieces.append(Piece(kind, raw if text is None else text, raw))

    def peek(self, at: int) -> Reading[str]:
        """The character at that place, "" behind the end of the answer."""
        while at >= len(self.text) and not self.ended:
            yield
        return self.text[at : at + 1]

    def blank(self, at: int) -> Reading[int]:
        """The first place from `at` on that is not blank."""
        while (char := (yield from self.peek(at))) and char in BLANK:
            at += 1
        return at

    def literal(self, at: int, text: str) -> Reading[int | None]:
        """The place behind `text`; None where something else stands."""
        for place, char in enumerate(text, at):
            if (yield from self.peek(place)) != char:
                return None
        return at + len(text)

    def closing(self, marker: str) -> Reading[None]:
        """Take `marker` and the blanks around it, where it comes next.

        Of an answer that ends in the middle of it nothing is left.
        """
        place = yield from self.blank(0)
        closed = yield from self.literal(place, marker)
        if closed is None:
            cut_short = marker.startswith(self.text[place:])
            closed = len(self.text) if cut_short else place
        self.give("markup", closed)
        self.give("markup", (yield from self.blank(0)))

    def string(self, at: int) -> Reading[int | None]:
        """The place behind a JSON string; None where there is none."""
        if (yield from self.peek(at)) != '"':
            return None
        at += 1
        while (char := (yield from self.peek(at))) != '"':
            if not char or char < " ":
                return None
            at += 2 if char == "\\" else 1
        return at + 1

    def prose(self, kind: Kind, markers: Sequence[str]) -> Reading[str | None]:
        """Take words until one of `markers` comes next, behind blanks perhaps; which, or None.

        No marker may be inside of another one.
        """
        while True:
            found = min(
                ((at, marker) for marker in markers if (at := self.text.find(marker)) >= 0),
                default=None,
            )
            if found:
                self.give(kind, len(self.text[: found[0]].rstrip(BLANK)))
                return found[1]
            if self.ended:
                self.give(kind, len(self.text))
                return None
            safe = self.text[: len(self.text) - _begun(self.text, markers)]
            self.give(kind, len(safe.rstrip(BLANK)))
            yield

    def markup(self, marker: str) -> None:
        """Take the marker that comes next and the blanks before it."""
        self.give("markup", self.text.index(marker) + len(marker))


class Reader:
    """Runs a format's reading over an answer that comes in parts. Request lifetime."""

    def __init__(self, reading: Callable[[Tape], Reading[None]]) -> None:
        self._tape = Tape()
        self._reading: Reading[None] | None = reading(self._tape)

    def push(self, text: str) -> list[Piece]:
        """What has become clear with `text`."""
        self._tape.text += text
        return self._advance()

    def finish(self) -> list[Piece]:
        """The answer is over: what was waiting for more."""
        self._tape.ended = True
        return self._advance()

    def _advance(self) -> list[Piece]:
        tape = self._tape
        try:
            if self._reading is not None:
                next(self._reading)
        except StopIteration:
            self._reading = None
        if self._reading is None:  # whatever a reading leaves is words
            tape.give("content", len(tape.text))
        pieces, tape.pieces = tape.pieces, []
        return pieces


def thoughts(tape: Tape, opening: str, closing: str, *, begun: bool) -> Reading[None]:
    """Take what the model thinks, where the answer begins with that.

    `begun`: the prompt ended with `opening` already.
    """
    if not begun:
        at = yield from tape.blank(0)
        end = yield from tape.literal(at, opening)
        if end is None:
            return
        tape.give("markup", end)
    tape.give("markup", (yield from tape.blank(0)))
    if (yield from tape.prose("reasoning", [closing])):
        tape.markup(closing)
        tape.give("markup", (yield from tape.blank(0)))


def words(tape: Tape) -> Reading[None]:
    """Take all the rest as words."""
    while not tape.ended:
        tape.give("content", len(tape.text))
        yield
    tape.give("content", len(tape.text))


def _begun(text: str, markers: Sequence[str]) -> int:
    """Length of the longest end of `text` with which one of `markers` may begin."""
    return max(
        (
            size
            for marker in markers
            for size in range(1, min(len(marker), len(text) + 1))
            if text.endswith(marker[:size])
        ),
        default=0,
    )
