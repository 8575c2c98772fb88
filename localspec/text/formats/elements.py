"""Parses arguments written as one element each; the schema decides their types."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NamedTuple

from localspec.text.formats import typed, values
from localspec.text.formats.offer import Json
from localspec.text.formats.parts import Element, Hole, Way
from localspec.text.formats.tape import Reading, Tape, tokens

_OPENED, _CLOSED = "<![CDATA[", "]]>"
_SECTION = re.compile(r"<!\[CDATA\[(.*?)\]\]>", re.DOTALL)
_SECTIONS = re.compile(rf"(?:{_SECTION.pattern})+", re.DOTALL)
_LONGEST_KEY = 256
"""Limit of an argument's name in characters."""


class Made(NamedTuple):
    """Arguments as a JSON object, the place after them, and whether they are closed."""

    text: str
    end: int
    closed: bool = True


def elements(
    tape: Tape, at: int, way: Way, stops: Sequence[str], function: Json
) -> Reading[Made | None]:
    """The elements from `at` on, with one of `stops` after the last; there may be none.

    None where an element has no end.
    """
    element = way.element
    if element is None:
        raise ValueError("this way has no elements")
    found: Json = {}
    while (begun := (yield from tape.mark(at, str(element.parts[0])))) is not None:
        one = yield from _one(tape, begun, element, [*stops, *_last(way)], function)
        if one is None:
            return None
        key, value, at = one
        found[key] = value
    return Made(values.written(found), at, closed=False)


def tree(
    tape: Tape, at: int, way: Way, stops: Sequence[str], function: Json
) -> Reading[Made | None]:
    """Nested elements, up to the mark after the last; None if they do not parse."""
    element = way.element
    if element is None:
        raise ValueError("this way has no elements")
    end = yield from tape.find(at, stops[0])
    if end < 0:
        return None
    branch = _Tree(tape.text[at:end], str(element.parts[0])[:-1])
    whole = typed.parameters(function)
    try:
        found = branch.members("", whole or {"type": "object"}, whole)
    except (ValueError, RecursionError):
        return None
    return Made(values.written(found if isinstance(found, dict) else {}), end, closed=False)


def _one(
    tape: Tape, at: int, element: Element, stops: Sequence[str], function: Json
) -> Reading[tuple[str, Any, int] | None]:
    """The argument whose element began before `at`, and the place after it."""
    key, kind, text = "", "", ""
    place: int = at
    for index, part in enumerate(element.parts[1:], 1):
        behind = element.parts[index + 1 :]
        closing = tokens(str(behind[0]))[0] if behind and isinstance(behind[0], str) else ""
        if part is Hole.VALUE:
            span = yield from _value(tape, place, element, closing, stops)
            if span is None:
                return None
            span = _unended(tape.text, place, span, element, function)
            text, place = tape.text[place : span[0]], span[1]
        elif isinstance(part, Hole):
            end = yield from _until(tape, place, closing)
            if end is None:
                return None
            key, kind = (
                (tape.text[place:end], kind) if part is Hole.KEY else (key, tape.text[place:end])
            )
            place = end
        elif index == len(element.parts) - 1:
            pass  # `_value` has already found this mark
        elif (next_place := (yield from tape.mark(place, part))) is None:
            return None
        else:
            place = next_place
    if element.cdata and _SECTIONS.fullmatch(text.strip()):
        text = "".join(_SECTION.findall(text))
    if element.line:
        text = text.removeprefix("\n").removesuffix("\n")
    return (
        key.strip().strip('"'),
        _typed(key.strip().strip('"'), kind, text, element, function),
        place,
    )


def _typed(key: str, kind: str, text: str, element: Element, function: Json) -> Any:
    """A value typed by its element, or else by the schema."""
    if element.text_type and kind.strip() == element.text_type.strip():
        return text
    whole = typed.parameters(function)
    wanted = typed.property_of(key, whole)
    if element.text_type and kind.strip():  # no string, whatever else the schema allows
        allowed = typed.types(wanted, whole) - {"string"}
        wanted = {"type": sorted(allowed)} if allowed else {}
    return typed.value(text, wanted, whole)


def _until(tape: Tape, at: int, text: str) -> Reading[int | None]:
    """The end of a short run before `text`, or before `text` with other quotes or none."""
    end = at
    last = ('"', "'", *text[1:2]) if text[0] == '"' else (text[0],)
    while (char := (yield from tape.peek(end))) and char not in last:
        if char == "\n" or end - at > _LONGEST_KEY:
            return None
        end += 1
    return end if char else None


def _value(
    tape: Tape, at: int, element: Element, closing: str, stops: Sequence[str]
) -> Reading[tuple[int, int] | None]:
    """The end of a value, and the place after its element.

    A value may contain the closing mark of its element. The value ends at the closing mark that is
    followed by another element, or by a mark that ends the call.
    """
    following = [tokens(str(element.parts[0]))[0], *(stop for stop in stops if stop)]
    first: tuple[int, int] | None = None
    place = at
    while element.cdata and (yield from tape.literal(place, _OPENED)) is not None:
        end = yield from tape.find(place, _CLOSED)
        if end < 0:
            return None
        place = end + len(_CLOSED)
    while (found := (yield from tape.find(place, closing))) >= 0:
        behind = found + len(closing)
        first = first or (found, behind)
        after = yield from tape.blank(behind)
        if after >= len(tape.text):
            return found, behind
        for text in following:  # `mark` also accepts other quotes
            if (yield from tape.mark(after, text)) is not None:
                return found, behind
        if tape.ended and any(text.startswith(tape.text[after:]) for text in following):
            return found, behind
        place = behind
    if tape.cut:
        return None
    return first or _unclosed(tape, at, following)


def _unclosed(tape: Tape, at: int, following: Sequence[str]) -> tuple[int, int] | None:
    """A value without a closing mark extends to the next element, or to the call's end."""
    places = [place for text in following if (place := tape.text.find(text, at)) >= 0]
    return (min(places), min(places)) if places else None


def _unended(
    text: str, at: int, span: tuple[int, int], element: Element, function: Json
) -> tuple[int, int]:
    """The span of a value, shorter where its closing mark was forgotten before the next argument.

    The next argument is known by its name, and must begin a line if no mark closes its name.
    """
    names = typed.table(typed.parameters(function), "properties")
    begin, behind = tokens(str(element.parts[0]))[-1], tokens(str(element.parts[2]))[0]
    closing = tokens(str(element.parts[-1]))[0]
    if begin not in text[at : span[0]] or closing in text[at : span[0]]:
        return span
    line = "" if behind.startswith("</") else r"\n[^\S\n]*"
    known = "|".join(map(re.escape, names))
    pattern = rf"{line}{re.escape(begin)}\s*[\"']?(?:{known})[\"']?\s*{re.escape(behind)}"
    found = re.compile(pattern).search(text, at, span[0]) if known else None
    if not found:
        return span
    end = found.start()
    if line:  # blank lines before it are no part of the value
        end = text.index("\n", at + len(text[at:end].rstrip()))
    return end, end


def _last(way: Way) -> Sequence[str]:
    return [tokens(way.closing)[0]] if way.closing else []


class _Tree:
    """A parser of MiniMax M3's nested elements: a mark before each bracket makes it unambiguous."""

    def __init__(self, text: str, mark: str) -> None:
        self._pieces = text.split(mark)
        self._at = 0

    def members(self, closing: str, wanted: Any, whole: Json) -> Any:
        """The content up to `closing`, by the schema: text, or nested elements."""
        text = self._rest()
        found: list[tuple[str, Any]] = []
        allowed = typed.types(wanted, whole)
        while self._at + 1 < len(self._pieces):
            piece = self._pieces[self._at + 1]
            name, bracket, _ = piece.removeprefix("<").partition(">")
            if not (piece.startswith("<") and bracket):
                raise ValueError(piece[:20])
            if name.startswith("/"):
                if name != f"/{closing}":
                    raise ValueError(name)
                break
            self._at += 1
            found.append((name, self.members(name, self._inner(name, wanted, whole), whole)))
            self._at += 1
        if not found:
            return self._scalar(text, wanted, allowed, whole)
        if "array" in allowed or (
            "object" not in allowed and {name for name, _ in found} == {"item"}
        ):
            return [value for _, value in found]
        return dict(found)

    def _rest(self) -> str:
        """The text after the open bracket."""
        piece = self._pieces[self._at]
        return piece.partition(">")[2] if self._at else piece

    def _scalar(self, text: str, wanted: Any, allowed: frozenset[str], whole: Json) -> Any:
        if not text.strip() and allowed and "string" not in allowed:
            for kind, nothing in (("object", {}), ("array", []), ("null", None)):
                if kind in allowed:
                    return nothing
        return typed.value(text, {} if wanted is None else wanted, whole)

    def _inner(self, name: str, wanted: Any, whole: Json) -> Any:
        for _ in range(4):
            if isinstance(wanted, dict) and isinstance(reference := wanted.get("$ref"), str):
                wanted = typed.referred(reference, whole)
        if not isinstance(wanted, dict):
            return None
        several = (wanted.get(key) for key in ("anyOf", "oneOf"))
        options = [wanted, *(one for some in several if isinstance(some, list) for one in some)]
        for option in options:
            if name == "item" and isinstance(option, dict) and "items" in option:
                return option["items"]
            if isinstance(option, dict) and (found := typed.property_of(name, option)) is not None:
                return found
        return None
