"""Parses values as models write them: JSON, near-JSON, Python literals, and Gemma's notation.

Models that were shown JSON mostly write JSON. Common deviations are accepted: a line break or a
quote inside of a string, an unknown escape, `True`, a surplus or a missing comma, other quotes.
Anything else raises ValueError; nothing is guessed.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass
from typing import Any, NoReturn

from localspec.text.formats import pythonic

MAX_DEPTH = 100
"""Depth of nested lists and objects; deeper ones are no arguments of a function."""
_MOST_RETRIED = 8
"""How often the text's length may be read in vain, as quoted objects that are none."""

_BLANK = re.compile(r"(?:\s+|/\*.*?\*/|//[^\n]*)*", re.DOTALL)
"""Blanks, and comments, which some models write into their JSON."""
_NUMBER = re.compile(r"[-+]?(?:\d[\d_]*)?\.?\d*(?:[eE][-+]?\d+)?")
_WORD = re.compile(r"[^\W\d][\w$-]*")
_PLAIN = re.compile(r'[^"\'`\\<]+')
_BARE = re.compile(r"[^,:{}\[\]<>]+")
_AFTER_KEY = re.compile(r"\s*:")
_AFTER_ITEM = re.compile(r"\s*(?:[,}\]:]|\Z)")
_END = r"(?:[}\]]\s*(?:[,}\]]|\Z)|\Z)"
_AFTER_MEMBER = re.compile(
    rf"""\s*(?:{_END}|,\s*(?:{_END}|[\w$-]+\s*:|"[^"\n]*"\s*:|'[^'\n]*'\s*:))"""
)
"""The text that may follow a member's value: the object's end, or the key of the next member."""
_AFTER_ARGUMENT = re.compile(r"\s*(?:,\s*(?:[^\W\d]\w*\s*[=:]|\Z)|\Z)")
_CURLED = str.maketrans("“”„‟", '""""')
"""Quotes of typesetters, which some models write around all strings."""
_ESCAPES = {
    '"': '"', "'": "'", "\\": "\\", "/": "/", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t",
}  # fmt: skip
_LITERALS = {
    "true": True, "True": True, "false": False, "False": False, "null": None, "None": None,
}  # fmt: skip
_SURROGATES = re.compile("[\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class Notation:
    """A notation of values.

    `quotes` are the delimiters of strings, the longest first. `bare`: keys, and values that are
    single words, may stand without quotes. `escapes`: backslash escapes are read in strings.
    """

    quotes: tuple[str, ...] = ('"', "'")
    bare: bool = False
    escapes: bool = True


JSON = Notation(('"""', "'''", '"', "'", "`"))
APOSTROPHE = re.compile(r"[^\W\d_]'[^\W\d_]")
"""An apostrophe inside of a word ("it's"). It ends no string: no letter may follow a string."""
PYTHON = Notation(('"""', "'''", '"', "'"))
GEMMA = Notation(('<|"|>', "<escape>", '"', "'"), bare=True, escapes=False)
"""The quotes of Gemma 4, of FunctionGemma, and others that both write now and then."""


def strict(text: str) -> Any:
    """The value of `text` as JSON. Raises ValueError, for NaN and infinite numbers too."""
    try:
        return json.loads(text, parse_constant=_no_number, parse_float=_finite)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error


def lenient(text: str, notation: Notation = JSON, *, unclosed: bool = False) -> Any:
    """The value of the whole `text` in a lenient notation. Raises ValueError.

    With `unclosed` the brackets at its end may be missing.
    """
    for inner_quotes, commas in ((False, True), (True, True), (False, False)):
        parser = _Parser(
            text, notation, inner_quotes=inner_quotes, unclosed=unclosed, commas=commas
        )
        try:
            value = parser.value(0)
            parser.end()
        except (ValueError, IndexError):
            continue
        return value
    if (straight := text.translate(_CURLED)) != text:
        return lenient(straight, notation, unclosed=unclosed)
    raise ValueError("no value")


def read(text: str, notation: Notation = JSON, *, unclosed: bool = False) -> Any:
    """The value of `text`: as JSON if it is valid, else leniently. Raises ValueError."""
    if notation is JSON:
        try:
            return strict(text)
        except ValueError:
            pass
    return lenient(text, notation, unclosed=unclosed)


def keywords(text: str, names: list[str]) -> dict[str, Any]:
    """The arguments between the parentheses of a Python call. Raises ValueError.

    Arguments without a name are assigned to `names` in order. A single object whose keys are such
    names holds all arguments.
    """
    try:
        found = _Parser(text, PYTHON).keywords(names)
    except (IndexError, ValueError):
        try:
            found = pythonic.arguments(text, names)
        except ValueError:
            found = _quoting(text, names)
    if text.lstrip()[:1] == "{" and len(found) == 1:
        [whole] = found.values()
        if isinstance(whole, dict) and whole.keys() <= set(names):
            return whole
    return found


def _quoting(text: str, names: list[str]) -> dict[str, Any]:
    """The arguments of a Python call with quotes inside of strings. Raises ValueError."""
    try:
        return _Parser(text, PYTHON, inner_quotes=True).keywords(names)
    except IndexError as error:
        raise ValueError("no value") from error


def written(value: Any) -> str:
    """A value as strict JSON. Raises ValueError where it is nested too deep."""
    try:
        text = json.dumps(value, ensure_ascii=False, allow_nan=False)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    return _SURROGATES.sub("\ufffd", text)


def _no_number(name: str) -> NoReturn:
    raise ValueError(name)


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(text)
    return value


class _Parser:
    """A parser of one text. Raises ValueError or IndexError on invalid input.

    With `inner_quotes` a quote ends a string only if the text behind it may follow a string there,
    and an object in quotes is a string. Without `commas` a comma may be missing before a string.
    With `unclosed` brackets may be missing at the end.
    """

    def __init__(
        self,
        text: str,
        notation: Notation,
        *,
        inner_quotes: bool = False,
        unclosed: bool = False,
        commas: bool = True,
    ) -> None:
        self.text = text
        self._unclosed = unclosed
        self._commas = commas
        self.at = 0
        self._notation = notation
        self._inner_quotes = inner_quotes
        self._quoted = False
        self._in_vain = 0

    def end(self) -> None:
        """Require that only blanks follow."""
        self._blank()
        if self.at < len(self.text):
            raise ValueError(self.text[self.at : self.at + 20])

    def value(self, depth: int, after: re.Pattern[str] = _AFTER_ITEM) -> Any:
        """The value that comes next; `after` matches what may follow it if it is a string."""
        if depth > MAX_DEPTH:
            raise ValueError("nested too deeply")
        self._blank()
        char = self.text[self.at]
        if char == "{":
            return self._object(depth)
        if char in "[(":
            return self._list(depth, "]" if char == "[" else ")")
        if quote := self._quote():
            return self._string(quote, after)
        return self._word()

    def keywords(self, names: list[str]) -> dict[str, Any]:
        """The arguments of a call, to the end of the text."""
        found: dict[str, Any] = {}
        while not self._ended():
            name = _WORD.match(self.text, self.at)
            behind = _BLANK.match(self.text, name.end()) if name else None
            if name and behind and self.text[behind.end() : behind.end() + 1] in ("=", ":"):
                key = name[0]
                self.at = behind.end() + 1
            elif len(found) < len(names):
                key = names[len(found)]
            else:
                raise ValueError("more arguments than parameters")
            found[key] = self.value(0, _AFTER_ARGUMENT)
            if not self._ended():
                self._take(",")
        return found

    def _object(self, depth: int) -> dict[str, Any]:
        self._take("{")
        found: dict[str, Any] = {}
        while not self._took("}"):
            key = self._key()
            self._take(":")
            found[key] = self.value(depth + 1, _AFTER_MEMBER)
            if self._last("}"):
                break
        return found

    def _last(self, closing: str) -> bool:
        """Whether the value before was the last one of an object or a list."""
        if self._took(","):
            return False
        if not self._commas and self._quote():
            return False
        self._take(closing)
        return True

    def _list(self, depth: int, closing: str) -> list[Any]:
        self.at += 1
        found: list[Any] = []
        while not self._took(closing):
            found.append(self.value(depth + 1))
            if self._last(closing):
                break
        return found

    def _key(self) -> str:
        self._blank()
        if quote := self._quote():
            return self._string(quote, _AFTER_KEY)
        pattern = _BARE if self._notation.bare else _WORD
        if not (name := pattern.match(self.text, self.at)):
            raise ValueError("no key")
        self.at = name.end()
        return name[0].strip()

    def _word(self) -> Any:
        """A number, a literal, or a word where bare words are allowed."""
        if word := _WORD.match(self.text, self.at):
            if word[0] in _LITERALS:
                self.at = word.end()
                return _LITERALS[word[0]]
        elif (number := _NUMBER.match(self.text, self.at)) and number[0].strip("+-._"):
            behind = self.text[number.end() : number.end() + 1]
            if not (behind.isalnum() or behind == "_"):
                self.at = number.end()
                return _number(number[0])
        if self._notation.bare and (bare := _BARE.match(self.text, self.at)):
            self.at = bare.end()
            return bare[0].strip()
        raise ValueError("no value")

    def _quote(self) -> str:
        """The quote that comes next; "" if there is none."""
        for quote in self._notation.quotes:
            if self.text.startswith(quote, self.at):
                return quote
        return ""

    def _string(self, quote: str, after: re.Pattern[str]) -> str:
        self.at += len(quote)
        if self._inner_quotes and (whole := self._quoted_object(quote)):
            return whole
        chars: list[str] = []
        while True:
            if self.text.startswith(quote, self.at) and self._ends(quote, after):
                self.at += len(quote)
                return "".join(chars)
            if run := _PLAIN.match(self.text, self.at):
                chars.append(run[0])
                self.at = run.end()
            elif self.text[self.at] == "\\" and self._notation.escapes:
                chars.append(self._escape())
            else:
                chars.append(self.text[self.at])
                self.at += 1

    def _quoted_object(self, quote: str) -> str:
        """The text of a quoted object whose own quotes were not escaped; "" if there is none."""
        begin = self.at
        if self._quoted or self._in_vain > _MOST_RETRIED * len(self.text):
            return ""
        if not re.compile(rf"{{\s*{re.escape(quote)}").match(self.text, begin):
            return ""
        self._quoted = True
        try:
            self._object(0)
            self._take(quote)
        except (ValueError, IndexError):
            self._in_vain += self.at - begin
            self.at = begin
            return ""
        finally:
            self._quoted = False
        return self.text[begin : self.at - len(quote)].rstrip()

    def _ends(self, quote: str, after: re.Pattern[str]) -> bool:
        behind = self.at + len(quote)
        if quote == "'" and APOSTROPHE.match(self.text, self.at - 1):
            return False
        return not self._inner_quotes or bool(after.match(self.text, behind))

    def _escape(self) -> str:
        """The character of an escape; an unknown escape stays as it is."""
        char = self.text[self.at + 1]
        for letter, digits in (("u", 4), ("x", 2)):
            code = self.text[self.at + 2 : self.at + 2 + digits]
            if char == letter and re.fullmatch(rf"[0-9a-fA-F]{{{digits}}}", code):
                self.at += 2 + digits
                return self._paired(chr(int(code, 16)))
        self.at += 2
        if char == "\n" and self._notation is PYTHON:
            return ""
        return _ESCAPES.get(char, "\\" + char)

    def _paired(self, high: str) -> str:
        """The character of the surrogate pair that `high` begins; `high` itself without a pair."""
        low = self.text[self.at : self.at + 6]
        if "\ud800" <= high <= "\udbff" and re.fullmatch(r"\\u[dD][c-fC-F][0-9a-fA-F]{2}", low):
            self.at += 6
            both = high + chr(int(low.removeprefix("\\u"), 16))
            return both.encode("utf-16", "surrogatepass").decode("utf-16")
        return high

    def _ended(self) -> bool:
        self._blank()
        return self.at >= len(self.text)

    def _took(self, char: str) -> bool:
        self._blank()
        if self._unclosed and char in "}]" and self.at >= len(self.text):
            return True
        if self.text[self.at : self.at + 1] != char:
            return False
        self.at += 1
        return True

    def _take(self, char: str) -> None:
        if not self._took(char):
            raise ValueError(f"no {char}")

    def _blank(self) -> None:
        if blank := _BLANK.match(self.text, self.at):
            self.at = blank.end()


def _number(text: str) -> int | float:
    plain = text.replace("_", "")
    if re.fullmatch(r"[-+]?\d+", plain):
        return int(plain)
    return _finite(plain)
