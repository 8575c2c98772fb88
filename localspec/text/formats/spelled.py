"""Writes marks, blanks and fixed texts in Lark: as single tokens where a vocabulary has them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Self

from localspec.text.formats.offer import Json
from localspec.text.formats.tape import tokens
from localspec.text.grammar import refused
from localspec.types import Token

GAP = r"[ \t\r\n]*"
"""Blanks that a reader skips, in a pattern for the beginning of calls."""
_BLANK = r" |\n{1,2}( {0,12}|\t{0,3})"
SOME = f"({_BLANK})?"
"""Blanks where only a call may come; they are few, as an unsure model writes all that it may."""
BLANKS = f"/{_BLANK}/?"
ANY = r"(?s:.*)"
_MOST_CHARS = 4 << 20
"""Limit of a grammar: llguidance takes a second for so many characters."""
_DEFINED = re.compile(r"#/(\$defs|definitions)/([^/]+)")
_JSON = {"whitespace_pattern": _BLANK, "lenient": True}
_SPECIAL = frozenset(".^$*+?()[]{}|\\/&~#-")


@dataclass(frozen=True, slots=True)
class Spelling:
    """How one vocabulary spells marks; `single` maps marks to tokens that no characters spell."""

    single: Mapping[str, Token]

    def exact(self, text: str) -> list[str]:
        """The text in Lark, with nothing around it."""
        return [self._piece(piece) for piece in self.pieces(text)]

    def marks(self, text: str) -> list[str]:
        """A mark in Lark, with blanks wherever a reader skips them."""
        found: list[str] = []
        for part in tokens(text):
            first, *more = self.pieces(part)
            if first in self.single:
                found += [BLANKS, self._piece(first)]
            else:
                found.append(f"/{SOME}{escaped(first)}/")
            found += map(self._piece, more)
        return found

    def is_text(self, text: str) -> bool:
        """Whether characters alone spell a text."""
        return not any(mark in text for mark in self.single)

    def parted(self, text: str) -> tuple[str, list[str]]:
        """The characters before the first single token of a text, and the rest in Lark."""
        pieces = self.pieces(text)
        if pieces[0] in self.single:
            return "", [self._piece(piece) for piece in pieces]
        return pieces[0], [self._piece(piece) for piece in pieces[1:]]

    def pieces(self, text: str) -> list[str]:
        """The text, cut at single tokens."""
        inside = sorted((mark for mark in self.single if mark in text), key=len, reverse=True)
        if not inside:
            return [text] if text else []
        found = re.split(f"({'|'.join(map(re.escape, inside))})", text)
        return [piece for piece in found if piece]

    def _piece(self, piece: str) -> str:
        return f"<[{self.single[piece]}]>" if piece in self.single else quoted(piece)


def escaped(text: str) -> str:
    """A text, escaped for a regular expression of Lark."""
    odd = {"\n": r"\n", "\r": r"\r", "\t": r"\t", "\x7f": r"\x7f"}
    return "".join(f"\\{char}" if char in _SPECIAL else odd.get(char, char) for char in text)


def bounded(pattern: str) -> str:
    """Lark for a pattern where only a call may come: with few blanks."""
    return f"/{pattern.replace(GAP, SOME)}/"


def quoted(text: str) -> str:
    """A string literal in Lark."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", r"\x7f")


def spaced(parts: Iterable[str]) -> str:
    """Texts with blanks before each, as a regular expression."""
    return "".join(f"{GAP}{escaped(part)}" for part in parts)


def without(patterns: Iterable[str]) -> str:
    """Lark for any text in which none of the patterns occurs.

    llguidance 1.9 takes a complement alone as any text; within an intersection it has its meaning.
    """
    found = "|".join(dict.fromkeys(patterns))
    return f"/{ANY}/ & ~/{ANY}({found}){ANY}/" if found else f"/{ANY}/"


def json_rule(wanted: Json) -> str:
    """Lark for JSON that matches a schema, with blanks as models write them."""
    return f"%json {json.dumps({**wanted, 'x-guidance': _JSON})}"


def with_definitions(wanted: Any, whole: Json) -> Json:
    """A part of a schema, and the definitions that it refers to, directly or through others."""
    part: Json = wanted if isinstance(wanted, dict) else {}
    needed: dict[str, Json] = {}
    pending: list[Any] = [part]
    while pending:
        value = pending.pop()
        if isinstance(value, list):
            pending += value
        if not isinstance(value, dict):
            continue
        pending += value.values()
        if isinstance(reference := value.get("$ref"), str) and (found := _DEFINED.match(reference)):
            kind, name = found[1], found[2].replace("~1", "/").replace("~0", "~")
            known = whole.get(kind)
            if isinstance(known, dict) and name in known and name not in needed.get(kind, ()):
                needed.setdefault(kind, {})[name] = known[name]
                pending.append(known[name])
    return {**part, **needed}


class RuleList(list[str]):
    """The rules of a grammar. Raises RequestError where they become too many characters.

    A property takes along the definitions that it refers to, so a schema that is bounded by itself
    may become a grammar that is not.
    """

    def __init__(self) -> None:
        super().__init__()
        self._chars = 0

    def append(self, rule: str) -> None:
        """Add a rule."""
        self._chars += len(rule)
        if self._chars > _MOST_CHARS:
            raise refused(f"its grammar has more than {_MOST_CHARS} characters")
        super().append(rule)

    def __iadd__(self, rules: Iterable[str]) -> Self:  # type: ignore[override,misc]
        for rule in rules:
            self.append(rule)
        return self
