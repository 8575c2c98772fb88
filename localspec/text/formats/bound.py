"""Makes Lark for a call's arguments: all that a reader accepts and that obeys their schema."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field

from localspec.text.formats import notated, typed
from localspec.text.formats.fields import Fields
from localspec.text.formats.offer import Json
from localspec.text.formats.ordered import Member, ordered
from localspec.text.formats.parts import Hole, Way
from localspec.text.formats.spelled import (
    BLANKS,
    SOME,
    RuleList,
    Spelling,
    escaped,
    json_rule,
    with_definitions,
)

_FIELDS_ALONE = frozenset(
    {"type", "properties", "required", "additionalProperties", "$defs", "definitions", "title",
     "description", "$schema", "examples", "default"}
)  # fmt: skip
"""Keys of a schema that only says which fields there are."""
_LOCAL = re.compile(r'"\$ref": "#(?!/(?:\$defs|definitions)/)')
"""A reference to a part of the schema that `with_definitions` does not add to a field's schema."""


@dataclass(slots=True)
class Arguments:
    """The arguments of one function, as rules whose names begin with `name`.

    `whole`: they must match the function's schema.
    """

    name: str
    function: Json
    whole: bool
    spelling: Spelling
    rules: RuleList = field(default_factory=RuleList)
    _made: dict[str, str] = field(default_factory=dict)

    @property
    def schema(self) -> Json:
        """The schema that the arguments must match; {} if they may be anything."""
        return typed.parameters(self.function) if self.whole else {}

    @property
    def may_be_empty(self) -> bool:
        """Whether a call may have no arguments."""
        return not self.schema.get("required")

    def of(self, part: Hole, way: Way) -> str:
        """Lark for the arguments, as the hole `part` of a way writes them."""
        key = f"{part.value}{way.element}"
        if key not in self._made:
            self._made[key] = self._of(part, way, f"{self.name}_{len(self._made)}")
        return self._made[key]

    def _of(self, part: Hole, way: Way, name: str) -> str:
        match part:
            case Hole.ELEMENTS | Hole.TREE if way.element is not None:
                fields = Fields(name, way.element, self.spelling, self.schema, self.rules)
                if part is Hole.TREE:
                    return fields.tree() if self.whole else fields.anything()
                made = fields.listed() if self.whole else fields.anything()
                return f"({made} | {BLANKS} {self.json()})"
            case Hole.KEYWORDS | Hole.NOTED:
                python = part is Hole.KEYWORDS
                style = notated.PYTHON if python else notated.gemma(self.spelling, way.quote)
                rules = notated.Rules(name, style, self.schema, self.rules)
                return rules.fields() if part is Hole.KEYWORDS else rules.object()
        return f"{BLANKS} {self.json()}"

    def json(self) -> str:
        """The rule for a JSON object."""
        name = f"{self.name}_j"
        if name not in self._made:
            self._made[name] = name
            given = self.schema
            if _fields_alone(given):
                self._members(name, given)
            else:
                self.rules.append(f"{name}: {json_rule(given or {'type': 'object'})}")
        return name

    def _members(self, name: str, given: Json) -> None:
        """An object whose fields may come in any order."""
        members = []
        needed = given.get("required", ())
        known = {
            json.dumps(key, ensure_ascii=False): (key, wanted)
            for key, wanted in typed.table(given, "properties").items()
        }
        for index, (spelled, (key, wanted)) in enumerate(known.items()):
            self.rules.append(f"{name}_v{index}: {json_rule(with_definitions(wanted, given))}")
            head = f"/{SOME}{escaped(spelled)}{SOME}:{SOME}/"
            members.append(Member(f"{head} {name}_v{index}", key in needed))
        self.rules.append(f'{name}: "{{" {name}_f /{SOME}\\}}/')
        self.rules += ordered(f"{name}_f", members, f"/{SOME},/")


def _fields_alone(given: Json) -> bool:
    """Whether a schema only says which fields there are, and these are at least two."""
    known = typed.table(given, "properties")
    return (
        len(known) > 1
        and given.keys() <= _FIELDS_ALONE
        and isinstance(given.get("required", []), list)
        and given.get("additionalProperties") is False  # else others may come, behind known ones
        and not _LOCAL.search(json.dumps(given))
        and set(given.get("required", ())) <= known.keys()
    )
