"""Arguments written as one element each, in Lark."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from localspec.text.formats import typed
from localspec.text.formats.offer import Json
from localspec.text.formats.ordered import Member, ordered
from localspec.text.formats.parts import Element, Hole
from localspec.text.formats.spelled import (
    ANY,
    BLANKS,
    RuleList,
    Spelling,
    escaped,
    json_rule,
    quoted,
    with_definitions,
    without,
)
from localspec.text.formats.tape import tokens

_MAX_DEPTH, MAX_RULES = 8, 4_000
"""Depth of nested elements that are enforced, and rules of one function's arguments, as a schema
may refer to itself in many places; a deeper value is JSON, and so is one behind so many rules."""
_LONGEST = 256
"""The largest limit of a text's length that is enforced: each character takes a state of an
automaton."""
_ANY_KEY = r'[^<>"\n]{1,80}'
_JSON_TYPES = "json|number|integer|boolean|array|object|null"
_ODD_PATTERN = re.compile(r"\\[bB1-9pP]|\(\?|[|^$]")
"""Parts of a pattern that would mean something else between the marks of an element."""


@dataclass(slots=True)
class Fields:
    """Rules for elements, with names that begin with `name`, which are added to `rules`."""

    name: str
    element: Element
    spelling: Spelling
    whole: Json
    rules: RuleList

    def listed(self) -> str:
        """The rule for the arguments that the schema names, in any order where they are few."""
        members = []
        needed = self.whole.get("required")
        for index, (key, wanted) in enumerate(typed.table(self.whole, "properties").items()):
            rule = f"{self.name}_{index}"
            self.rules.append(f"{rule}: {self._element(rule, escaped(key), wanted)}")
            members.append(Member(rule, isinstance(needed, list) and key in needed))
        self.rules += ordered(f"{self.name}_f", members, "")
        return f"{self.name}_f"

    def anything(self) -> str:
        """Lark for any elements."""
        rule = f"{self.name}_any"
        self.rules.append(f"{rule}: {self._element(rule, _ANY_KEY, None)}")
        return f"({rule})*"

    def _element(self, rule: str, key: str, wanted: Any) -> str:
        """Ways to write one argument."""
        element, allowed = self.element, typed.types(wanted, self.whole)
        ways = []
        if wanted is None or "string" in allowed:
            ways.append(self._filled(key, element.text_type, self._text(rule, wanted)))
        if element.text_type and wanted is None:
            ways.append(self._filled(key, element.other_type, self._value(f"{rule}_o", {})))
        elif self._is_more(wanted, allowed):
            plain = _without_text(wanted, self.whole)
            if plain is not None:
                ways.append(self._filled(key, element.other_type, self._value(rule, plain)))
        return " | ".join(ways)

    def _is_more(self, wanted: Any, allowed: frozenset[str]) -> bool:
        """Whether a value may be written in another form than as a text."""
        if "string" not in allowed or self.element.text_type or allowed & {"object", "array"}:
            return True
        limited = typed.choices(wanted, self.whole) is not None
        return limited and bool(allowed - {"string", "null"})

    def _filled(self, key: str, kind: str, value: str) -> str:
        """Lark for an element with its value; `value` includes the closing mark."""
        made: list[str] = []
        tight = False
        for part in self.element.parts:
            if part is Hole.VALUE:
                return " ".join([*made, value])
            if part is Hole.KEY:
                made.append(f"/{key}/")
            elif part is Hole.TYPE:
                made.append(f"/{_JSON_TYPES if kind == 'json' else escaped(kind)}/")
            else:
                made += self._mark(str(part), tight=tight)
            tight = isinstance(part, Hole)
        raise ValueError("this element has no value")

    def _mark(self, text: str, *, tight: bool) -> list[str]:
        """A mark in Lark; a `tight` one begins where a name or a type ends."""
        if not tight:
            return self.spelling.marks(text)
        first, *more = tokens(text)
        behind = [mark for one in more for mark in self.spelling.marks(one)]
        return [*self.spelling.exact(first), *behind]

    def _closing(self) -> Sequence[str]:
        place = self.element.parts.index(Hole.VALUE)
        return tokens(str(self.element.parts[place + 1]))

    def _value(self, rule: str, wanted: Any) -> str:
        """Lark for a value that is no text, and for the closing mark."""
        made = json_rule(with_definitions(wanted, self.whole))
        self.rules.append(f"{rule}_json: {made}")
        return " ".join([f"{BLANKS} {rule}_json", *self.spelling.marks("\n".join(self._closing()))])

    def _text(self, rule: str, wanted: Any) -> str:
        """Lark for a text, and for the closing mark."""
        first, *more = self._closing()
        before, rest = self.spelling.parted(first)
        behind = " ".join([*rest, *(mark for text in more for mark in self.spelling.marks(text))])
        body = text_of(wanted, self.whole, first, line=self.element.line)
        ending = f" {quoted(before)}" if before else ""
        self.rules.append(f"{rule.upper()}_TEXT: ({body}){ending}")
        return f"{rule.upper()}_TEXT {behind}".strip()

    # -- nested elements

    def tree(self) -> str:
        """The rule for all arguments, with nested elements for parts of objects and lists."""
        return self._object(self.name, self.whole, 0)

    def _object(self, rule: str, wanted: Json, depth: int) -> str:
        members = []
        needed = wanted.get("required")
        for index, (key, inner) in enumerate(typed.table(wanted, "properties").items()):
            made = self._branch(f"{rule}_{index}", key, inner, depth)
            members.append(Member(made, isinstance(needed, list) and key in needed))
        self.rules += ordered(f"{rule}_f", members, "")
        return f"{rule}_f"

    def _branch(self, rule: str, key: str, wanted: Any, depth: int) -> str:
        """One nested element."""
        mark = str(self.element.parts[0])[:-1]
        ways = [*self._nested(rule, wanted, depth)]
        ends = [BLANKS, *self.spelling.exact(f"{mark}</{key}>")]
        nested = [f"({' | '.join(ways)}) {' '.join(ends)}"] if ways else []
        allowed = typed.types(wanted, self.whole)
        if not allowed or "string" in allowed:
            before, rest = self.spelling.parted(mark)
            ending = f" {quoted(before)}" if before else ""
            body = text_of(wanted, self.whole, mark)
            self.rules.append(f"{rule.upper()}_TEXT: ({body}){ending}")
            nested.append(" ".join([f"{rule.upper()}_TEXT", *rest, quoted(f"</{key}>")]))
        begin = " ".join([BLANKS, *self.spelling.exact(f"{mark}<{key}>")])
        self.rules.append(f"{rule}: {begin} ({' | '.join(nested)})")
        return rule

    def _nested(self, rule: str, wanted: Any, depth: int) -> list[str]:
        """Ways to write a value that is no text."""
        several = [one for one in typed.alternatives(wanted, self.whole) if isinstance(one, dict)]
        names = [rule] if len(several) == 1 else [f"{rule}_o{at}" for at in range(len(several))]
        ways = []
        for name, one in zip(names, several, strict=True):
            further = depth < _MAX_DEPTH and len(self.rules) < MAX_RULES
            allowed = typed.types(one, self.whole)
            if further and "array" in allowed and isinstance(one.get("items"), dict):
                item = self._branch(f"{name}_i", "item", one["items"], depth + 1)
                least, most = item_counts(one)
                ways.append(f"({item}){{{least},{'' if most is None else most}}}")
            elif further and "object" in allowed and typed.table(one, "properties"):
                ways.append(self._object(f"{name}_p", one, depth + 1))
            elif (plain := _without_text(one, self.whole)) is not None:
                self.rules.append(f"{name}_json: {json_rule(with_definitions(plain, self.whole))}")
                ways.append(f"{BLANKS} {name}_json")
        return ways


def item_counts(wanted: Json) -> tuple[int, int | None]:
    """The least and the most items of a list; None where there is no limit, or none that is one."""
    least, most = wanted.get("minItems"), wanted.get("maxItems")
    least = least if isinstance(least, int) and least > 0 else 0
    return least, most if isinstance(most, int) and most >= least else None


def text_of(wanted: Any, whole: Json, mark: str, *, line: bool = False) -> str:
    """Lark for the text of a string between marks; `mark` ends it."""
    around = r"/\n?/" if line else ""
    only = typed.choices(wanted, whole)
    if only is not None:
        made = " | ".join(quoted("null" if one is None else one) for one in only) or '"null"'
        return f"{around} ({made}) {around}".strip()
    limits = _limits(wanted, whole)
    free = f"({without([escaped(mark)])})"
    if not limits:
        return free
    inner = " & ".join(f"/{limit}/" for limit in limits)
    return f"{free} & ({around} ({inner}) {around})"


def _limits(wanted: Any, whole: Json) -> list[str]:
    """Regular expressions that a text must match; none where it may be anything."""
    several = typed.alternatives(wanted, whole)
    texts = [one for one in several if "string" in typed.types(one, whole)]
    found = []
    if len(texts) == 1:
        given = texts[0]
        least, most = given.get("minLength", 0), given.get("maxLength")
        if isinstance(least, int) and 0 <= least <= _LONGEST and (least or most is not None):
            bounded = isinstance(most, int) and least <= most <= _LONGEST
            found.append(f"(?s:.{{{least},{most if bounded else ''}}})")
        if isinstance(pattern := given.get("pattern"), str):
            found += _searched(pattern)
    allowed = typed.types(wanted, whole)
    if allowed & {"object", "array"}:  # a text that begins with a bracket is read as one of them
        found.append(rf"([^ \t\r\n{{\[]{ANY})?")
    elif found and "null" in allowed:
        found = [f"{one}|null" for one in found]
    return found


def _searched(pattern: str) -> list[str]:
    """The pattern as one that matches the whole text; none where it cannot be written so."""
    begins, ends = pattern.startswith("^"), pattern.endswith("$") and not pattern.endswith("\\$")
    inner = pattern[begins : len(pattern) - ends]
    if _ODD_PATTERN.search(inner):
        return []
    inner = re.sub(r"(?<!\\)/", r"\\/", inner)
    return [f"{'' if begins else ANY}({inner}){'' if ends else ANY}"]


def _without_text(wanted: Any, whole: Json) -> Json | None:
    """The schema of values that are no strings; None where there are none."""
    found = []
    for one in typed.alternatives(wanted, whole):
        if not isinstance(one, dict):
            continue
        kinds = typed.types(one, whole)
        if "string" not in kinds:
            found.append(one)
        elif others := sorted(kinds - {"string"}):
            listed = one.get("enum")
            listed = listed if isinstance(listed, list) else []
            values = [value for value in listed if not isinstance(value, str)]
            kept = {key: value for key, value in one.items() if key != "enum"}
            found.append({**kept, "type": others, **({"enum": values} if values else {})})
    if not found:
        return None
    return found[0] if len(found) == 1 else {"anyOf": found}
