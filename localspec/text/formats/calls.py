"""Parses one call at one place of an answer, part by part as its `Way` describes.

Nothing is consumed from the tape. A call that deviates from its template is repaired where its
meaning is clear; otherwise there is no call, and the text stays text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from localspec.text.formats import elements, typed, values
from localspec.text.formats.elements import Made
from localspec.text.formats.extent import bracketed, string
from localspec.text.formats.offer import Json, Offer
from localspec.text.formats.parts import Hole, Maybe, Part, Way
from localspec.text.formats.tape import BLANK, FENCE, Reading, Tape, tokens

NAME_KEYS = ("name", "tool_name", "function", "function_name", "tool")
ARGUMENT_KEYS = ("arguments", "parameters", "args", "params", "input")
OTHER_KEYS = frozenset({"id", "type", "tool_call_id", "index"})
_CALL_KEYS = frozenset({*NAME_KEYS, *ARGUMENT_KEYS, *OTHER_KEYS})
_NAME = re.compile(r"[\w.:/-]{1,128}")
_NUMBERED = re.compile(r":\d+$")
SURPLUS = "}],;`"
"""Characters that some models write once too often before a closing mark."""
_LONGEST_NAME = 128
"""Limit of a function name in characters; an object with a longer first key is no call."""


@dataclass(slots=True)
class Found:
    """A call: its function, its arguments as JSON, and the place after it."""

    name: str
    arguments: str
    end: int


@dataclass(slots=True)
class _State:
    """The known facts about a call while its parts are matched."""

    name: str = ""
    arguments: str | None = None
    closed: bool = True


@dataclass(slots=True)
class Calls:
    """Looks for calls of offered functions on a tape."""

    tape: Tape
    offer: Offer
    _names: frozenset[str] = field(init=False)
    _fence: bool = False
    """A code fence began around the call's object."""

    def __post_init__(self) -> None:
        self._names = self.offer.names

    def one(self, way: Way, at: int) -> Reading[Found | None]:
        """The call written in this way that begins at `at`; None if there is none."""
        if self.tape.tired:
            return None
        state = _State()
        self._fence = False
        for index, part in enumerate(way.call):
            rest = way.call[index + 1 :]
            if state.arguments is not None:  # only closing marks are left
                return (yield from self._closed(way, way.call[index:], state, at))
            behind = yield from self._part(way, part, rest, state, at)
            if behind is None:
                return None
            begin = at = behind
            while index == 0 and isinstance(part, str) and part.strip(BLANK):  # it may be repeated
                behind = yield from self.tape.mark(at, part)
                if behind is None:
                    break
                at = behind
            self.tape.see(begin, at)
        return (yield from self._closed(way, (), state, at))

    def _part(
        self, way: Way, part: Part, rest: tuple[Part, ...], state: _State, at: int
    ) -> Reading[int | None]:
        """The place after one part; None if the part does not match."""
        if isinstance(part, str):
            return (yield from self.tape.mark(at, part))
        if isinstance(part, Maybe):
            return (yield from self._maybe(part, at))
        if part is Hole.NAME:
            return (yield from self._named(way, rest, state, at))
        if part in (Hole.ID, Hole.INDEX):
            return (yield from self._run(at, r"[\w.:-]"))
        return (yield from self._arguments(way, part, rest, state, at))

    def _arguments(
        self, way: Way, part: Hole, rest: tuple[Part, ...], state: _State, at: int
    ) -> Reading[int | None]:
        """The place after the arguments, or after an object that holds arguments and name."""
        if part in (Hole.CALL, Hole.PAIR):
            return (yield from self._whole(way, part, rest, state, at))
        function = self.offer.function(state.name)
        begin = yield from self.tape.blank(at)
        if part is Hole.ELEMENTS and (yield from self.tape.peek(begin)) == "{":
            part = Hole.OBJECT  # JSON in place of elements
        if part is Hole.ELEMENTS:
            made = yield from elements.elements(self.tape, at, way, _marks(rest), function)
        elif part is Hole.TREE:
            made = yield from elements.tree(self.tape, at, way, _marks(rest), function)
        else:
            stops = (*_marks(rest), *tokens(way.closing)[-1:])
            made = yield from self._object(part, stops, function, at)
        if made is None:
            return None
        state.arguments, state.closed = made.text, made.closed
        return made.end

    def _maybe(self, part: Maybe, at: int) -> Reading[int]:
        place = at
        for inner in part.parts:
            if isinstance(inner, str):
                behind = yield from self.tape.mark(place, inner)
            else:
                behind = yield from self._run(place, r"[\w.-]")
            if behind is None:
                return at
            place = behind
        return place

    def _run(self, at: int, letters: str) -> Reading[int | None]:
        """The place after a run of characters that match `letters`; None if there are none."""
        begin = at = yield from self.tape.blank(at)
        while (char := (yield from self.tape.peek(at))) and re.match(letters, char):
            at += 1
        return at if at > begin else None

    def _named(
        self, way: Way, rest: tuple[Part, ...], state: _State, at: int
    ) -> Reading[int | None]:
        at = yield from self.tape.blank(at)
        quoted = (yield from self.tape.peek(at)) in ('"', "'")
        begin = at + quoted
        end = yield from self._run(begin, r"[\w.:/-]")
        if end is None or end - begin > _LONGEST_NAME:
            return None
        name = self.tape.text[begin:end]
        if rest and isinstance(rest[0], Maybe) and rest[0].parts[0] == ":":
            name = _NUMBERED.sub("", name)
        state.name = self._known(name)
        if end >= len(self.tape.text):  # a cut name must not be the beginning of another one
            self.tape.short = any(f"{one}.call".startswith(name) for one in self._names)
        if way.known and state.name not in self._names:
            return None
        return end + (quoted and self.tape.text[end : end + 1] in ('"', "'"))

    def _known(self, name: str) -> str:
        """The function's name without what some models write around it."""
        plain = name.strip().removesuffix("()").replace("\\", "")
        short = plain.removeprefix("functions.").removesuffix(".call")
        found = (one for one in (name, plain, short, plain.rpartition(".")[2]))
        return next((one for one in found if one in self._names), name)

    def _whole(
        self, way: Way, part: Hole, rest: tuple[Part, ...], state: _State, at: int
    ) -> Reading[int | None]:
        """The place after an object that holds name and arguments; None if there is none."""
        at = yield from self.tape.blank(at)
        if way.opening or way.call[0] is not part:
            at = yield from self._unfenced(at)
            if way.opening and (listed := (yield from self.tape.literal(at, "["))) is not None:
                at = yield from self.tape.blank(listed)
        if not (yield from self._begins_call(part, at)):
            return None
        stops = (*_marks(rest), *tokens(way.closing)[-1:])
        for end, text, whole in (yield from self._texts(at, stops)):
            called = self._called(text, part, way, unclosed=not whole)
            if called is not None:
                state.name, state.arguments = called
                state.closed = whole
                return end
        return None

    def _unfenced(self, at: int) -> Reading[int]:
        """The place after the beginning of a code fence, which some models put around an object."""
        place = yield from self.tape.literal(at, FENCE)
        if place is None:
            return at
        self._fence = True
        behind = yield from self.tape.literal(place, "json")
        return (yield from self.tape.blank(behind or place))

    def _begins_call(self, part: Hole, at: int) -> Reading[bool]:
        """Whether the object at `at` has the first key of a call."""
        if (yield from self.tape.peek(at)) != "{":
            return False
        if (yield from self.tape.peek(at + 1)) == "{":  # some templates show a call in two braces
            at += 1
        place = yield from self.tape.blank(at + 1)
        quote = yield from self.tape.peek(place)
        if quote not in ('"', "'"):
            return quote == "" and self.tape.short
        end = place + 1
        while (char := (yield from self.tape.peek(end))) != quote:
            if not char or end - place > _LONGEST_NAME:
                begun = self.tape.text[place + 1 : end]
                return not char and any(key.startswith(begun) for key in self._first_keys(part))
            end += 1
        return self.tape.text[place + 1 : end] in self._first_keys(part)

    def _first_keys(self, part: Hole) -> frozenset[str]:
        return self._names if part is Hole.PAIR else _CALL_KEYS

    def _texts(self, at: int, stops: Sequence[str]) -> Reading[Iterator[tuple[int, str, bool]]]:
        """Possible extents of an object at `at`: to its last bracket, or to a mark after it."""
        stops = [stop for stop in stops if stop and stop not in "}])"]
        extent = yield from bracketed(self.tape, at, stops)
        found: list[tuple[int, str, bool]] = []
        if extent is not None:
            found.append((extent.end, self.tape.text[at : extent.end], extent.whole))
            if self._sound(found[0][1]):
                return iter(found)
        if (
            extent is None and not self.tape.cut
        ):  # the answer is complete, only closing brackets are missing
            found.append((len(self.tape.text), self.tape.text[at:], False))
        for stop in stops:
            if (place := (yield from self.tape.find(at, stop))) >= 0:
                found.append((place, self.tape.text[at:place], False))  # noqa: PERF401 - it waits
        return iter(found)

    def _sound(self, text: str) -> bool:
        try:
            values.read(text)
        except ValueError:
            return text.startswith("{{")
        return True

    def _called(self, text: str, part: Hole, way: Way, *, unclosed: bool) -> tuple[str, str] | None:
        """Name and arguments of an object; None if it is no call."""
        if text.startswith("{{"):
            text = text[1:-1] if text.endswith("}}") else text[1:]
        try:
            found = values.read(text, unclosed=unclosed)
        except ValueError:
            return None
        if not isinstance(found, dict):
            return None
        if part is Hole.PAIR:
            if len(found) != 1:
                return None
            name, given = next(iter(found.items()))
        else:
            inner = found.get("function")
            found = inner if isinstance(inner, dict) else found
            key = next((key for key in NAME_KEYS if isinstance(found.get(key), str)), None)
            if key is None:
                return None
            name = found[key]
            given = self._given(found, self._known(name))
        name = self._known(name)
        if not _NAME.fullmatch(name) or (way.known and name not in self._names):
            return None
        arguments = meant(given)
        return None if arguments is None else (name, values.written(arguments))

    def _given(self, found: Json, name: str) -> Any:
        """The arguments of a call in one object, from any of the known keys."""
        for key in ARGUMENT_KEYS:
            if key in found:
                return found[key]
        others = {key: one for key, one in found.items() if key not in _CALL_KEYS}
        known = typed.table(typed.parameters(self.offer.function(name)), "properties")
        return others if others.keys() <= known.keys() else ...

    def body(self, name: str, at: int, stops: Sequence[str]) -> Reading[Found | None]:
        """A call whose name is known, with its arguments at `at`; None if there are none."""
        if self.tape.tired:
            return None
        self._fence = False
        made = yield from self._object(Hole.OBJECT, stops, self.offer.function(name), at)
        if made is None:
            return None
        fence = (yield from self.tape.mark(made.end, FENCE)) if self._fence else None
        if self._fence and self.tape.cut and (yield from self._broke_off(FENCE, made.end)):
            fence = len(self.tape.text)
        return Found(name, made.text, fence or made.end)

    def _object(
        self, part: Hole, stops: Sequence[str], function: Json, at: int
    ) -> Reading[Made | None]:
        """The arguments as one value, after which one of `stops` is expected."""
        at = yield from self.tape.blank(at)
        if part is Hole.KEYWORDS:
            return (yield from self._keywords(at, function))
        at = yield from self._unfenced(at)
        char = yield from self.tape.peek(at)
        if char != "{":
            return (yield from self._odd(stops, function, at, char))
        if part is Hole.NOTED:
            marks = [stop for stop in stops if stop not in "}])"]
            extent = yield from bracketed(self.tape, at, marks, gemma=True)
            candidates = [] if extent is None else [(extent.end, extent.whole)]
            notation = values.GEMMA
        else:
            candidates = [(end, whole) for end, _, whole in (yield from self._texts(at, stops))]
            notation = values.JSON
        for end, whole in candidates:
            text = self.tape.text[at:end]
            made = _strict(text) if part is Hole.OBJECT and whole else None
            if made is None:
                made = _mended(text, notation, unclosed=not whole)
            if made is not None:
                return Made(made, end, closed=whole)
        return None

    def _odd(
        self, stops: Sequence[str], function: Json, at: int, char: str
    ) -> Reading[Made | None]:
        """Arguments written in place of an object: nothing, null, "", [], or JSON in a string."""
        needed = typed.parameters(function).get("required")
        if not char and not self.tape.cut and function and not needed:
            return Made("{}", at)
        for stop in stops:
            if (yield from self.tape.mark(at, stop)) is not None:
                return Made("{}", at)
        if char == '"':
            end = yield from string(self.tape, at + 1, char)
            self.tape.see(at, len(self.tape.text) if end is None else end)
            text = None if end is None else _mended(self.tape.text[at:end], values.JSON)
            return None if end is None or text is None else Made(text, end)
        for word in ("null", "None", "[]"):
            if (end := (yield from self.tape.literal(at, word))) is not None:
                return Made("{}", end)
        return None

    def _keywords(self, at: int, function: Json) -> Reading[Made | None]:
        """The arguments between parentheses; the opening one is before `at`."""
        extent = yield from bracketed(self.tape, at, (), opened=True)
        if extent is None:
            return None
        names = list(typed.table(typed.parameters(function), "properties"))
        try:
            found = values.keywords(self.tape.text[at : extent.end - 1], names)
        except ValueError:
            return None
        return Made(values.written(found), extent.end - 1)

    def _closed(
        self, way: Way, rest: Sequence[Part], state: _State, at: int
    ) -> Reading[Found | None]:
        """The call whose arguments have been read, extended over the closing marks behind them.

        None if the answer was cut before the last of these marks, or nothing ends the arguments.
        """
        place, matched = at, False
        for part in rest:
            mark = part if isinstance(part, str) else ""
            if isinstance(part, Maybe):
                place = yield from self._maybe(part, place)
            elif mark:
                behind = yield from self.behind(mark, place)
                if behind is not None:
                    place, matched = behind, True
                elif self.tape.cut and (yield from self._broke_off(mark, place)):
                    return None
        if not (matched or state.closed or (self.tape.ended and not self.tape.cut)):
            end = (yield from self.behind(way.closing, place)) if way.closing else None
            if end is None:
                return None
        fence = (yield from self.tape.mark(place, FENCE)) if self._fence else None
        return Found(state.name, state.arguments or "{}", fence or place)

    def behind(self, mark: str, at: int) -> Reading[int | None]:
        """The place after a mark, and after surplus characters before it; None if there is none."""
        while (behind := (yield from self.tape.mark(at, mark))) is None:
            at = yield from self.tape.blank(at)
            if (char := (yield from self.tape.peek(at))) not in SURPLUS or not char:
                return None
            at += 1
        return behind

    def _broke_off(self, mark: str, at: int) -> Reading[bool]:
        """Whether the answer ends before or inside of a mark."""
        place = yield from self.tape.blank(at)
        rest = self.tape.text[place:].lstrip(SURPLUS + BLANK)
        return "".join(tokens(mark)).startswith(rest)


def meant(given: Any) -> Json | None:
    """The arguments object that `given` stands for; None if there is none."""
    if isinstance(given, str) and given.strip():
        try:
            given = values.read(given.strip())
        except ValueError:
            return None
    if isinstance(given, list) and len(given) == 1 and isinstance(given[0], dict):
        return given[0]
    if isinstance(given, dict):
        return given
    empty = given is None or given == [] or (isinstance(given, str) and not given.strip())
    return {} if empty else None


def _strict(text: str) -> str | None:
    """The text itself if it is an object in strict JSON; None otherwise."""
    try:
        found = values.strict(text)
    except ValueError:
        return None
    if not isinstance(found, dict):
        return None
    return values.written(found) if "\\ud" in text.lower() else text


def _mended(text: str, notation: values.Notation, *, unclosed: bool = False) -> str | None:
    """The object that `text` stands for, as JSON; None if there is none."""
    try:
        found = meant(values.read(text, notation, unclosed=unclosed))
    except ValueError:
        return None
    return None if found is None else values.written(found)


def _marks(parts: Sequence[Part]) -> list[str]:
    """The first mark among `parts`, which may follow a value."""
    return [tokens(part)[0] for part in parts if isinstance(part, str) and tokens(part)][:1]
