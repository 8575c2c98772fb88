"""Makes Lark for arguments in Python's or in Gemma's notation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from localspec.text.formats import typed, writing
from localspec.text.formats.fields import MAX_RULES, item_counts, text_of
from localspec.text.formats.offer import Json
from localspec.text.formats.ordered import Member, ordered
from localspec.text.formats.spelled import BLANKS, SOME, RuleList, Spelling, json_rule, quoted

_MAX_DEPTH = 8
"""Depth of nested schemas that are enforced; deeper values may be anything."""
_COMMA = f"/{SOME},{SOME}/"
_LIMITS = ("minLength", "maxLength", "pattern", "format")
_NUMBERS = ("type", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")


@dataclass(frozen=True, slots=True)
class Style:
    """A notation of values.

    `words` are its literals, `string` makes rules for a string with a schema, `key` the notation
    of a key inside of an object, `any_key` Lark for any such key, `constant` a given value.
    """

    words: Mapping[str, str]
    string: Callable[[Rules, str, Any], str]
    key: Callable[[str], str]
    any_key: str
    constant: Callable[[Any], str]


@dataclass(slots=True)
class Rules:
    """Rules for the arguments of one function, with names that begin with `name`."""

    name: str
    style: Style
    whole: Json
    rules: RuleList
    _number: int = 0
    _any: str = ""

    def fields(self) -> str:
        """Lark for Python's keyword arguments, without parentheses."""
        if not self.whole:
            one = f"/[A-Za-z_][A-Za-z0-9_]{{0,60}}{SOME}={SOME}/ {self._anything()}"
            return f"{BLANKS} ({one} ({_COMMA} {one})*)? {BLANKS}"
        return f"{BLANKS} {self._members(self.whole, quoted, '=', 0)} {BLANKS}"

    def object(self) -> str:
        """Lark for an object, with its brackets."""
        return self._object(self.whole, 0)

    def _object(self, wanted: Json, depth: int) -> str:
        if not typed.table(wanted, "properties"):
            value = self._anything()
            one = f"{self.style.any_key} /{SOME}:{SOME}/ {value}"
            return f"/\\{{{SOME}/ ({one} ({_COMMA} {one})*)? /{SOME}\\}}/"
        return f"/\\{{{SOME}/ {self._members(wanted, self.style.key, ':', depth)} /{SOME}\\}}/"

    def _members(self, wanted: Json, key: Callable[[str], str], assign: str, depth: int) -> str:
        known, needed = typed.table(wanted, "properties"), wanted.get("required")
        members = []
        for name, inner in known.items():
            made = f"{key(name)} /{SOME}{assign}{SOME}/ {self._value(inner, depth)}"
            members.append(Member(made, isinstance(needed, list) and name in needed))
        rule = self._named()
        self.rules += ordered(rule, members, _COMMA)
        return rule

    def _value(self, wanted: Any, depth: int) -> str:
        if not isinstance(wanted, dict) or depth > _MAX_DEPTH or self._is_long(depth):
            return self._anything()
        if isinstance(reference := wanted.get("$ref"), str):
            return self._value(typed.referred(reference, self.whole), depth + 1)
        values = [wanted["const"]] if "const" in wanted else wanted.get("enum")
        if isinstance(values, list) and values:
            return self._rule(" | ".join(self.style.constant(value) for value in values))
        for key in ("anyOf", "oneOf"):
            if isinstance(several := wanted.get(key), list) and several:
                return self._rule(" | ".join(self._value(one, depth + 1) for one in several))
        kinds = sorted(typed.types(wanted, self.whole))
        if not kinds:
            return self._anything()
        return self._rule(" | ".join(self._kind(kind, wanted, depth) for kind in kinds))

    def _is_long(self, depth: int) -> bool:
        """Whether there are so many rules that nested values may be anything."""
        return depth > 0 and len(self.rules) > MAX_RULES

    def _kind(self, kind: str, wanted: Json, depth: int) -> str:
        match kind:
            case "string":
                return self.style.string(self, self._named(), wanted)
            case "integer" | "number":
                given = {key: wanted[key] for key in _NUMBERS if key in wanted}
                name = self._named()
                self.rules.append(f"{name}: {json_rule({**given, 'type': kind})}")
                return name
            case "boolean":
                return f"{quoted(self.style.words['true'])} | {quoted(self.style.words['false'])}"
            case "array":
                item = self._value(wanted.get("items"), depth + 1)
                return f"/\\[{SOME}/ {_several(item, wanted)} /{SOME}\\]/"
            case "object":
                return self._object(wanted, depth + 1)
        return quoted(self.style.words["null"])

    def _anything(self) -> str:
        """The name of the rule for any value."""
        if not self._any:
            self._any = f"{self.name}_any"
            kinds = ("string", "number", "boolean", "null", "array", "object")
            made = " | ".join(self._kind(kind, {}, 0) for kind in kinds)
            self.rules.append(f"{self._any}: {made}")
        return self._any

    def _rule(self, made: str) -> str:
        name = self._named()
        self.rules.append(f"{name}: {made}")
        return name

    def _named(self) -> str:
        self._number += 1
        return f"{self.name}_{self._number}"


def _several(item: str, wanted: Json) -> str:
    """A list's items within its limits."""
    least, most = item_counts(wanted)
    if most == 0:
        return ""
    more = f"({_COMMA} {item}){{{max(0, least - 1)},{'' if most is None else most - 1}}}"
    return f"{item} {more}" if least else f"({item} {more})?"


def _python_string(rules: Rules, name: str, wanted: Any) -> str:
    """A string in double quotes, or in single ones where it has no limits."""
    given = {key: wanted[key] for key in _LIMITS if key in wanted}
    rules.rules.append(f"{name}: {json_rule({'type': 'string', **given})}")
    if given:
        return name
    return f"{name} | {_SINGLE}"


_PLAIN_KEY = "/[A-Za-z_][A-Za-z0-9_]{0,60}/"
_QUOTED_KEY = r'/[^<>"\n]{1,80}/'
_SINGLE = r"/'([^'\\\n]|\\['\"\\nrt])*'/"


def _python_constant(value: Any) -> str:
    both = quoted(writing.python(value))
    if isinstance(value, str) and not set(value) & set("'\"\\\n\r\t"):
        both += f" | {quoted(chr(39) + value + chr(39))}"
    return both


def _python_key(key: str) -> str:
    return f"({_python_constant(key)})"


PYTHON = Style(
    words={"true": "True", "false": "False", "null": "None"},
    string=_python_string,
    key=_python_key,
    any_key=r"""(/"[^"\\\n]{1,80}"/ | /'[^'\\\n]{1,80}'/)""",
    constant=_python_constant,
)


def gemma(spelling: Spelling, quote: str) -> Style:
    """Gemma's notation, whose quotes may be a single token."""
    before, rest = spelling.parted(quote)
    opened, behind = " ".join(spelling.exact(quote)), " ".join(rest)
    ending = f" {quoted(before)}" if before else ""

    def string(rules: Rules, name: str, wanted: Any) -> str:
        text = name.upper()
        rules.rules.append(f"{text}: ({text_of({'type': 'string', **wanted}, {}, quote)}){ending}")
        return f"{opened} {text} {behind}".strip()

    def constant(value: Any) -> str:
        return " ".join(spelling.exact(writing.noted(value, quote)))

    def key(name: str) -> str:
        return " ".join(spelling.exact(writing.noted_key(name, quote)))

    return Style(
        words={"true": "true", "false": "false", "null": "null"},
        string=string,
        key=key,
        any_key=f"({_PLAIN_KEY} | {opened} {_QUOTED_KEY} {opened})",
        constant=constant,
    )
