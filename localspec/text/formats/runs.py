"""Takes runs of calls: one after another, with or without a mark around all of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from localspec.text.formats.calls import SURPLUS, Calls, Found
from localspec.text.formats.marks import begin, closings, inner_mark, opening
from localspec.text.formats.offer import Offer
from localspec.text.formats.parts import Format, Hole, Way
from localspec.text.formats.tape import BLANK, FENCE, Reading, Tape, tokens


@dataclass(slots=True)
class Runs:
    """The calls of one answer. Request lifetime."""

    tape: Tape
    form: Format
    offer: Offer
    ways: Sequence[Way] = field(init=False)
    """The notations in which this answer may contain calls."""
    openings: Sequence[str] = field(init=False)
    """The marks with which calls begin anywhere."""
    calls: Calls = field(init=False)
    _made: int = 0
    """The number of calls emitted."""
    _fence: bool = False
    """A code fence was taken, with nothing but the next calls in it."""

    def __post_init__(self) -> None:
        self.calls = Calls(self.tape, self.offer)
        self.ways = self.form.ways if self.offer.functions else ()
        found = [opening(way) for way in self.ways if not way.first]
        found += [begin(str(way.call[0])) for way in self.ways if inner_mark(way)]
        self.openings = found

    def take(self, way: Way, at: int) -> Reading[bool]:
        """Take the calls from `at` on; False if there is none, and then nothing is taken."""
        found = yield from self._first(way, at)
        if found is None:
            return False
        if (quoted := (yield from self._quoted(way, at, found))) is not None:
            self.tape.give("content", quoted)
            return True
        if (yield from self._spoken(way, at, found)):
            return False
        if self._is_undecided(way, at, found):
            self.tape.give("markup", len(self.tape.text))
            return True
        while found is not None:
            self.hand_over(found)
            found = yield from self._next(way)
        yield from self._end(way)
        return True

    def fence(self) -> Reading[bool]:
        """Take the beginning of a code fence with nothing but calls in it; False without one."""
        tape = self.tape
        begin = yield from tape.blank(0)
        place = yield from tape.literal(begin, FENCE)
        if place is None:
            return False
        while (char := (yield from tape.peek(place))) and char.isalnum():
            place += 1
        place = yield from tape.blank(place)
        for mark in self.openings:
            if mark == "{" or (yield from tape.literal(place, mark)) is None:
                continue
            end = yield from self.end(mark, place)
            if end is None:
                continue
            for closing in ("", *(way.closing for way in self.ways)):
                behind = yield from tape.mark(end, closing)
                if behind is not None and (yield from tape.mark(behind, FENCE)) is not None:
                    tape.give("markup", place)
                    self._fence = True
                    return True
        if tape.ended and tape.cut and self._begins_call(tape.text[place:]):
            tape.give("markup", len(tape.text))  # the fence, and the call that was cut in it
        return False

    def _begins_call(self, text: str) -> bool:
        """Whether a text begins with a mark of calls, or is the beginning of one."""
        marks = [mark for mark in self.openings if mark != "{"]
        return any(text.startswith(mark) or mark.startswith(text) for mark in marks)

    def end(self, mark: str, at: int) -> Reading[int | None]:
        """The place after calls of offered functions that begin with `mark` at `at`; or None."""
        short = False
        for way in self.ways:
            if not way.first and mark in (opening(way), inner_mark(way)):
                self.tape.short = False
                found = yield from self._first(way, at)
                short = short or self.tape.short
                if found is not None and found.name in self.offer.names:
                    if (yield from self._quoted(way, at, found)) is not None:
                        return None
                    end = found.end
                    while (found := (yield from self._following(way, end))) is not None:
                        end = found.end
                    return end
        self.tape.short = short
        return None

    def _next(self, way: Way) -> Reading[Found | None]:
        """The call after a taken one. The rest of a call that was cut is dropped."""
        found = yield from self._following(way, 0)
        if found is None and self.tape.ended and self.tape.cut and self.tape.short:
            self.tape.give("markup", len(self.tape.text))
        return found

    def _following(self, way: Way, at: int) -> Reading[Found | None]:
        """The call after one that ends at `at`."""
        tape = self.tape
        begin = yield from tape.blank(at)
        tape.short = False
        found = yield from self.calls.one(way, begin)
        if found is None:
            place = yield from self._separated(way, begin)
            tape.short = tape.short and place is None
            found = None if place is None else (yield from self.calls.one(way, place))
        return found

    def _first(self, way: Way, at: int) -> Reading[Found | None]:
        """The first of calls that begin at `at`, even without the mark around all of them."""
        place = yield from self.tape.mark(at, way.opening) if way.opening else _there(at)
        if place is None and inner_mark(way):
            place = at
        return None if place is None else (yield from self.calls.one(way, place))

    def _separated(self, way: Way, at: int) -> Reading[int | None]:
        """The place after a separator between two calls; None if there is none."""
        for text in (way.between.strip(BLANK), ",", ";"):
            if text and (place := (yield from self.tape.mark(at, text))) is not None:
                return place
        if way.opening:  # repeated around the next call
            return (yield from self.tape.mark(at, way.opening))
        return None

    def hand_over(self, found: Found) -> None:
        """Emit a call: its name, then all of its arguments. A partial call is never emitted."""
        tape = self.tape
        plain = found.name.removeprefix("functions.")
        if plain in self.form.pretends or (self._made and not self.offer.parallel):
            tape.give("markup", found.end)
            return
        self._made += 1
        tape.give("call", 1, found.name)
        tape.give("arguments", found.end - 1, found.arguments)

    def _end(self, way: Way) -> Reading[None]:
        """Take the marks after the last call, including repeated ones."""
        marks = [text for text in (way.closing, *closings(way)) if text]
        marks += [FENCE] if self._fence else []
        self._fence = closed = False
        while True:
            for mark in marks:
                place = yield from self.calls.behind(mark, 0)
                if place is None and len(tokens(mark)) > 1:
                    place = yield from self.tape.mark(0, tokens(mark)[-1])
                if place is not None:
                    if closed and FENCE in mark and (yield from self.tape.peek(place)).isalnum():
                        continue  # the next call's fence
                    self.tape.give("markup", place)
                    closed = True
                    break
            else:
                break
        self.tape.give("markup", (yield from self.tape.blank(0)))
        if self.tape.ended and self._is_end(way, marks):
            self.tape.give("markup", len(self.tape.text))

    def _is_end(self, way: Way, marks: Sequence[str]) -> bool:
        """Whether the rest is only the beginning of what may follow a call."""
        rest = "".join(self.tape.text.split())
        surplus = len(rest) - len(rest.lstrip(SURPLUS))
        ends = [*marks, f"{''.join(marks[1:])}{marks[0] if marks else ''}", way.between, ""]
        ends += [opening(way), inner_mark(way)]  # of a call that did not come
        found = ["".join(end.split()) for end in ends]
        least = max(0, len(rest) - max(map(len, found)))  # a longer rest begins none of them
        rests = [rest[size:] for size in range(least, surplus + 1)]
        return any(end.startswith(one) for end in found for one in rests)

    def _quoted(self, way: Way, at: int, found: Found) -> Reading[int | None]:
        """The place after a call between backticks or in a code fence; None if it is not quoted."""
        tape = self.tape
        if tape.fenced:
            return found.end
        if (tape.text[at - 1] if at else tape.last) != "`":
            return None
        closed = yield from tape.mark(found.end, way.closing)
        end = found.end if closed is None else closed
        char = yield from tape.peek(end)
        return end if char == "`" or (tape.cut and not char) else None

    def _spoken(self, way: Way, at: int, found: Found) -> Reading[bool]:
        """Whether a call is only mentioned in text.

        Only one without a mark of its own, or of an unknown function, can be.
        """
        tape = self.tape
        before = tape.text[at - 1] if at else tape.last
        unmarked = opening(way) == "{"
        if not unmarked and found.name in self.offer.names:
            return False
        named = Hole.ELEMENTS in way.call and found.arguments == "{}"
        if named and before and before not in "\r\n":  # two marks around a word of a sentence
            return True
        place = found.end
        while (char := (yield from tape.peek(place))) and char in " \t":
            place += 1
        for mark in self.openings:
            if mark != "{" and (yield from tape.literal(place, mark)) is not None:
                return False  # another call
        words = bool(char) and char not in "\r\n;,{[<`"
        return words and (unmarked or bool(before.strip()) or place > found.end)

    def _is_undecided(self, way: Way, at: int, found: Found) -> bool:
        """Whether a limit cut a line in which an object may be a call or only be mentioned."""
        tape = self.tape
        before = (tape.text[:at].rstrip(" \t") or tape.last)[-1:]
        inside = opening(way) == "{" and before not in ("", "\n", "\r")
        return inside and tape.ended and tape.cut and not tape.text[found.end :].strip()


def _there(at: int) -> Reading[int]:
    yield from ()
    return at
