"""Parses any answer into text, thoughts and calls, by the description of its format."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from localspec.text.formats.marks import (
    begin,
    inner_mark,
    is_mark,
    opening,
    searched,
    unfinished,
)
from localspec.text.formats.offer import Offer
from localspec.text.formats.parts import Format, Pair
from localspec.text.formats.runs import Runs
from localspec.text.formats.tape import BLANK, Kind, Reading, Tape, words

_HEAD_CHARS = 300
"""Limit of a message's head in characters."""


def reading(tape: Tape, form: Format, offer: Offer) -> Reading[None]:
    """Turn the answer on `tape` into pieces."""
    yield from _Reading(tape, form, offer).answer()


def words_alone(tape: Tape, form: Format, offer: Offer) -> Reading[None]:
    """Turn an answer without calls into words, and the thoughts with which it may begin.

    Some models think although their template does not mention thoughts. Words stay unchanged.
    """
    begin = yield from tape.blank(0)
    for pair in form.thoughts:
        if (yield from tape.literal(begin, pair.opening.strip())) is not None:
            return (yield from reading(tape, form, replace(offer, thinks=True)))
    rest = tape.text[begin:]
    begun = any(pair.opening.startswith(rest) for pair in form.thoughts)
    if tape.ended and tape.cut and rest and begun:
        tape.give("markup", len(tape.text))
    return (yield from words(tape))


@dataclass(slots=True)
class _Reading:
    """The parser of one answer. Request lifetime."""

    tape: Tape
    form: Format
    offer: Offer
    _runs: Runs = field(init=False)
    _marks: re.Pattern[str] | None = field(init=False)
    _begun: frozenset[str] = field(init=False)
    """All beginnings of marks, which may become marks with more text."""
    _inside: Pair | None = None
    """The open marks around text."""
    _closing: dict[tuple[str, ...], int | None] = field(default_factory=dict)
    """Where in the answer the next of these closing marks of thoughts is; None if none comes."""

    def __post_init__(self) -> None:
        self._runs = Runs(self.tape, self.form, self.offer)
        self._marks, self._begun = searched([*self._runs.openings, *self._others()])

    def answer(self) -> Reading[None]:
        """Parse the whole answer."""
        if self.form.heads:
            return (yield from self._messages())
        if self.offer.thinking:
            for pair in self.form.thoughts:
                if (yield from self._take(pair.opening)):  # the model repeats the mark
                    break
            self._drop_begun()
            yield from self._thoughts([pair.closing for pair in self.form.thoughts])
        elif not self.offer.thinks:
            yield from self._unannounced()
        yield from self._beginning()
        while (mark := (yield from self._prose("content", self._marks, self._begun))) is not None:
            if (yield from self._at_mark(mark)):
                yield from self._beginning()
        return None

    def _unannounced(self) -> Reading[None]:
        """Take thoughts at the beginning, although the template does not mention thoughts."""
        for pair in self.form.thoughts:
            if (yield from self._take(pair.opening)):
                return (yield from self._thoughts([pair.closing]))
        return None

    def _others(self) -> list[str]:
        """Marks that count anywhere."""
        found = [*self.form.dropped]
        for pair in self.form.words:
            found += [begin(pair.opening)] if pair.own else []
            found += [pair.closing] if pair.own and pair.closing else []
        found += [begin(pair.opening) for pair in self.form.thoughts if pair.own]
        return found

    # -- what a part of the answer begins with

    def _beginning(self) -> Reading[None]:
        """Parse what may begin a part: thoughts, text marks, and calls limited to a beginning."""
        while (yield from self._begins()):
            pass
        self._drop_begun()

    def _drop_begun(self) -> None:
        """Drop the beginning of a mark at which an answer was cut."""
        tape, rest = self.tape, self.tape.text.strip(BLANK)
        marks = [*self.form.dropped, *self._runs.openings]
        marks += [pair.opening for pair in (*self.form.thoughts, *self.form.words)]
        marks += [pair.closing for pair in self.form.thoughts]
        if tape.ended and tape.cut and any(mark.startswith(rest) for mark in marks):
            tape.give("markup", len(tape.text))

    def _begins(self) -> Reading[bool]:
        for pair in self.form.thoughts if self._thinks else ():
            if (yield from self._take(pair.opening)):
                yield from self._thoughts([pair.closing])
                return True
            if (yield from self._take(pair.closing)):  # the end of thoughts without a beginning
                return True
        for pair in self.form.words:
            if (yield from self._take(pair.opening)):
                self._inside = pair
                return True
        for mark in self.form.dropped:
            if (yield from self._take(mark)):
                return True
        return (yield from self._runs.fence()) or (yield from self._first_calls())

    def _first_calls(self) -> Reading[bool]:
        """Parse calls that may only stand at a beginning."""
        tape = self.tape
        for way in self._runs.ways:
            if way.first:
                at = yield from tape.blank(0)
                tape.short = False
                if (yield from self._runs.take(way, at)):
                    return True
                if tape.cut and tape.short and tape.text.strip():
                    tape.give("markup", len(tape.text))
        return False

    @property
    def _thinks(self) -> bool:
        return self.offer.thinks or self.offer.thinking

    def _take(self, mark: str) -> Reading[bool]:
        """Take the mark that comes next, and the blanks around it; False if there is none."""
        if not mark:
            return False
        if mark[0].isalpha():  # a mark that is a word ends at the word's end
            begin = yield from self.tape.blank(0)
            behind = yield from self.tape.literal(begin, mark)
        else:
            behind = yield from self.tape.mark(0, mark)
        if behind is None:
            return False
        self.tape.give("markup", behind)
        yield from self._blanks()
        return True

    def _blanks(self) -> Reading[None]:
        self.tape.give("markup", (yield from self.tape.blank(0)))

    # -- words

    def _prose(
        self, kind: Kind, marks: re.Pattern[str] | None, begun: frozenset[str]
    ) -> Reading[str | None]:
        """Take text until a mark comes next; returns the mark, None at the end."""
        tape = self.tape
        closing = self._inside.closing if self._inside and kind == "content" else ""
        if closing:
            marks, begun = searched([*self._runs.openings, *self._others(), closing])
        blank = 0  # all before it is blank, and no mark begins there
        while True:
            found = marks.search(tape.text, blank) if marks else None
            held = unfinished(tape.text, begun)
            if found and (tape.ended or len(tape.text) - held > found.start()):
                tape.look()
                tape.give(kind, len(tape.text[: found.start()].rstrip(BLANK)))
                return found[0]  # a longer mark can no longer begin there
            if tape.ended:
                if tape.cut and held and is_mark(tape.text, held, tape.last):
                    tape.give(kind, len(tape.text[: len(tape.text) - held].rstrip(BLANK)))
                    tape.give("markup", len(tape.text))
                tape.give(kind, len(tape.text))
                return None
            safe = len(tape.text) - held
            if words := len(tape.text[blank:safe].rstrip(BLANK)):
                tape.give(kind, blank + words)
                safe -= blank + words
            blank = safe
            yield

    def _at_mark(self, mark: str) -> Reading[bool]:
        """Parse the part that the next mark begins; True if a new part may begin after it."""
        tape = self.tape
        at = tape.text.index(mark)
        for pair in self.form.thoughts:
            if pair.own and mark == begin(pair.opening) and (yield from self._take(pair.opening)):
                yield from self._thoughts([pair.closing])
                return True
        if mark in self._others() or (self._inside and mark == self._inside.closing):
            if self._inside and mark == self._inside.closing:
                self._inside = None
            tape.give("markup", at + len(mark))
            yield from self._blanks()
            return True
        short = False  # whether any of the ways might still find its call in a longer answer
        for way in self._runs.ways:
            tape.short = False
            begins = not way.first and mark in (opening(way), inner_mark(way))
            if begins and (yield from self._runs.take(way, at)):
                return True
            short = short or tape.short
        if tape.ended and tape.cut and short:
            tape.give("markup", len(tape.text))
            return False
        tape.give("content", at + len(mark))
        return False

    # -- thoughts

    def _thoughts(self, closings: Sequence[str]) -> Reading[None]:
        """Take thoughts to their closing mark, or to a complete call that no such mark follows."""
        tape = self.tape
        yield from self._blanks()
        called = [mark for mark in self._runs.openings if mark != "{"]
        marks, begun = searched([*closings, *called])
        while (mark := (yield from self._prose("reasoning", marks, begun))) is not None:
            at = tape.text.index(mark)
            if mark in closings:
                for pair in self.form.words:
                    self._inside = pair if pair.opening == mark else self._inside
                tape.give("markup", at + len(mark))
                return (yield from self._blanks())
            tape.short = False
            end = yield from self._runs.end(mark, at)
            if end is None:
                if tape.ended and tape.cut and tape.short:
                    tape.give("markup", len(tape.text))
                tape.give("reasoning", at + len(mark))
            elif not (yield from self._closed_later(tuple(closings), end, marks, begun)):
                return None
            else:
                tape.give("reasoning", end)
        return None

    def _closed_later(
        self,
        closings: tuple[str, ...],
        at: int,
        marks: re.Pattern[str] | None,
        begun: frozenset[str],
    ) -> Reading[bool]:
        """Whether thoughts that contain a call are closed later, outside of another call."""
        tape = self.tape
        known = self._closing.get(closings, -1)
        if known is None or known >= tape.taken + at:  # it was found behind an earlier call
            return known is not None
        while True:
            found = marks.search(tape.text, at) if marks else None
            held = unfinished(tape.text, begun)
            if found and (tape.ended or len(tape.text) - held > found.start()):
                if found[0] in closings:
                    self._closing[closings] = tape.taken + found.start()
                    return True
                end = yield from self._runs.end(found[0], found.start())
                at = found.end() if end is None else end
            elif tape.ended:
                self._closing[closings] = None
                return False
            else:
                at = max(at, len(tape.text) - held)
                yield

    # -- messages with heads

    def _messages(self) -> Reading[None]:
        """Parse messages, each with a head that gives its kind."""
        heads, tape = self.form.heads, self.tape
        if heads is None:
            return None
        begins: Sequence[str] = (*heads.begins, *heads.goes_on)
        while (yield from tape.peek(0)):
            head = yield from self._head(begins)
            begins = heads.begins
            if head is None:
                if tape.cut and self._is_head():
                    return tape.give("markup", len(tape.text))
                begun = (one for one in heads.begins if tape.text.startswith(one))
                tape.give("content", len(next(begun, "")))  # a mark that begins no head is words
                yield from self._body("content")
                continue
            text = tape.text[:head]
            to = re.search(heads.call, text) if heads.call else None
            thought = re.search(heads.thought, text)
            if to and (to[1] in self.offer.names or (self.offer.names and "." in to[0])):
                yield from self._message_calls(to[1], head)
            else:
                tape.give("markup", head)
                yield from self._body("reasoning" if thought else "content")
        return None

    def _is_head(self) -> bool:
        """Whether the rest may be the beginning of a head."""
        heads = self.form.heads
        begins = (*heads.begins, *heads.goes_on) if heads else ()
        rest = self.tape.text.lstrip(BLANK)
        return any(rest.startswith(one) or one.startswith(rest) for one in begins)

    def _head(self, begins: Sequence[str]) -> Reading[int | None]:
        """The place after the head that begins here; None if there is none."""
        heads, tape = self.form.heads, self.tape
        for one in begins:
            if (yield from tape.literal(0, one)) is not None:
                break
        else:
            return None
        while heads and (end := tape.text.find(heads.ends, 0, _HEAD_CHARS)) < 0:
            if tape.ended or len(tape.text) > _HEAD_CHARS:
                return None
            yield
        return end + len(heads.ends) if heads else None

    def _message_calls(self, name: str, head: int) -> Reading[None]:
        """Take a call of a message whose head ends at `head`, if its body is one."""
        tape, heads = self.tape, self.form.heads
        if heads is None:
            return None
        tape.short = False
        found = yield from self._runs.calls.body(name, head, (*heads.closings, *heads.begins))
        if found is not None:
            self._runs.hand_over(found)
        elif tape.cut and tape.short:
            return tape.give("markup", len(tape.text))
        else:
            tape.give("markup", head)
        return (yield from self._body("content"))

    def _body(self, kind: Kind) -> Reading[None]:
        """Take the body of a message."""
        heads, tape = self.form.heads, self.tape
        if heads is None:
            return None
        ends = [*heads.closings, *heads.begins]
        openings = self._runs.openings
        marks, begun = searched([*ends, *(openings if kind == "content" else ())])
        while (mark := (yield from self._prose(kind, marks, begun))) is not None:
            at = tape.text.index(mark)
            if mark in heads.closings:
                return tape.give("markup", at + len(mark))
            if mark in heads.begins:
                return tape.give("markup", at)
            yield from self._at_mark(mark)
        return None
