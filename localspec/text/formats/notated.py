"""Schemas in Lark for arguments that are not JSON: in Python's or in Gemma's notation."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from localspec.text.formats import typed
from localspec.text.formats.offer import Json

_MAX_DEPTH = 8
"""Depth of nested schemas that are enforced; deeper values may be anything."""


@dataclass(frozen=True, slots=True)
class Style:
    """The notation of values: literals, strings, keys and separators."""

    words: Mapping[str, str]
    string: str
    key: Callable[[str], str]
    constant: Callable[[Any], str]
    comma: str
    colon: str
    any_key: str


@dataclass(slots=True)
class Rules:
    """Lark rules for the arguments of one function, with names that begin with `name`."""

    name: str
    style: Style
    whole: Json
    rules: list[str] = field(default_factory=list)
    _any: str = ""

    def fields(self, wanted: Json, assign: str) -> str:
        """The name of a rule for the fields of an object, without its brackets."""
        return self._fields(wanted, assign, self.style.key, 0)

    def _value(self, wanted: Any, depth: int) -> str:
        if not isinstance(wanted, dict) or depth > _MAX_DEPTH:
            return self._anything()
        if isinstance(reference := wanted.get("$ref"), str):
            return self._value(typed.referred(reference, self.whole), depth + 1)
        for key in ("enum", "const"):
            if key in wanted:
                values = wanted[key] if key == "enum" else [wanted[key]]
                texts = " | ".join(quoted(self.style.constant(value)) for value in values)
                return self._rule(texts)
        for key in ("anyOf", "oneOf"):
            if isinstance(several := wanted.get(key), list) and several:
                return self._rule(" | ".join(self._value(one, depth + 1) for one in several))
        kinds = sorted(typed.types(wanted, self.whole))
        if not kinds:
            return self._anything()
        return self._rule(" | ".join(self._kind(kind, wanted, depth) for kind in kinds))

    def _kind(self, kind: str, wanted: Json, depth: int) -> str:  # noqa: PLR0911 - one of each
        match kind:
            case "string":
                return self._string()
            case "integer":
                return "/-?(0|[1-9][0-9]{0,17})/"
            case "number":
                return r"/-?(0|[1-9][0-9]{0,17})(\.[0-9]{1,17})?/"
            case "boolean":
                return f"{quoted(self.style.words['true'])} | {quoted(self.style.words['false'])}"
            case "array":
                item = self._value(wanted.get("items"), depth + 1)
                return f'"[" ({item} ({quoted(self.style.comma)} {item})*)? "]"'
            case "object":
                if not typed.table(wanted, "properties"):
                    return self._any_object()
                fields = self._fields(wanted, self.style.colon, self.style.key, depth + 1)
                return f'"{{" {fields} "}}"'
        return quoted(self.style.words["null"])

    def _fields(self, wanted: Json, assign: str, key: Callable[[str], str], depth: int) -> str:
        """Fields in the order of the schema; those that are not required may be missing."""
        known = typed.table(wanted, "properties")
        needed = wanted.get("required")
        needed = needed if isinstance(needed, list) else []
        none_yet, some = self._rule('""'), self._rule('""')
        for name, inner in reversed(known.items()):
            one = f"{quoted(key(name) + assign)} {self._value(inner, depth)}"
            left_out = name not in needed
            first = f"{one} {some}" + (f" | {none_yet}" if left_out else "")
            more = f"{quoted(self.style.comma)} {one} {some}" + (f" | {some}" if left_out else "")
            none_yet, some = self._rule(first), self._rule(more)
        return none_yet

    def _string(self) -> str:
        return self._rule(self.style.string.replace("NAME", f"{self.name}_{len(self.rules)}"))

    def _any_object(self) -> str:
        value = self._anything()
        field_ = f"{self.style.any_key} {quoted(self.style.colon)} {value}"
        return f'"{{" ({field_} ({quoted(self.style.comma)} {field_})*)? "}}"'

    def _anything(self) -> str:
        """The name of the rule for any value."""
        if not self._any:
            self._any = f"{self.name}_any"
            kinds = ("string", "number", "boolean", "null", "array")
            made = " | ".join(self._kind(kind, {}, 0) for kind in kinds)
            self.rules.append(f"{self._any}: {made} | {self._any_object()}")
        return self._any

    def _rule(self, made: str) -> str:
        name = f"{self.name}_{len(self.rules)}"
        *inner, last = made.split("\n")
        self.rules += [*inner, f"{name}: {last}"]
        return name


def quoted(text: str) -> str:
    """A string literal in Lark."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", r"\x7f")
