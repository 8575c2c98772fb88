"""How a family of models is offered functions and calls them: the seam, and grammars in pieces."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias

from localspec.protocol import Message
from localspec.text.tools.tape import Reading, Tape

Json: TypeAlias = dict[str, Any]
Spell: TypeAlias = Callable[[str], str]
"""A marker in Lark: its token where the vocabulary has one for it alone, else its characters."""


@dataclass(frozen=True, slots=True)
class Offer:
    """What one answer may do.

    `functions` are OpenAI's function objects, empty where none may be called. With `forced` nothing
    but calls may come, with `only` of that function alone. `said` is Lark for what comes instead of
    a call, empty for any words. `thinks`: the model may think before it answers; `thinking`: the
    prompt has begun that already.
    """

    functions: Sequence[Json] = ()
    forced: bool = False
    only: str = ""
    said: str = ""
    parallel: bool = True
    thinks: bool = False
    thinking: bool = False

    @property
    def names(self) -> frozenset[str]:
        """The functions' names."""
        return frozenset(str(function["name"]) for function in self.functions)

    @property
    def callable(self) -> list[Json]:
        """The functions that a grammar has to know."""
        return [one for one in self.functions if self.only in ("", one["name"])]

    @property
    def constrains(self) -> bool:
        """Whether a grammar is needed: by force, or for words or a function that are strict."""
        strict = any(function.get("strict") for function in self.functions)
        return self.forced or bool(self.said) or strict


class Format(Protocol):
    """One family's way.

    `markers` are control tokens that a reader has to see as text. `thought` stands around thoughts;
    a template that holds its end is one of a model that thinks.
    """

    name: str
    markers: Sequence[str]
    thought: tuple[str, str] | None

    def messages(self, messages: Sequence[Message]) -> list[Message]:
        """The conversation as this family's templates want it."""

    def prompt(self, functions: Sequence[Json]) -> str:
        """What tells of the functions, for a template that does not; a part of the system's."""

    def read(self, tape: Tape, offer: Offer) -> Reading[None]:
        """Make pieces of an answer."""

    def grammar(self, offer: Offer, spell: Spell) -> str:
        """Lark for answers with calls of the offer; with words only where it is not forced."""

    def call_id(self) -> str:
        """A new id for a call."""


def schema(function: Json, *, whole: bool) -> Json:
    """The schema of a function's arguments, written as models write them: one blank, no more.

    The `whole` one, or any object.
    """
    return spaced((function.get("parameters") if whole else None) or {"type": "object"})


def spaced(given: Json) -> Json:
    """The schema of what is written with one blank behind commas and colons, and no other."""
    spacing = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
    return {**given, "x-guidance": {**spacing, "lenient": True}}


def literal(text: str) -> str:
    """Characters in Lark."""
    return json.dumps(text, ensure_ascii=False)


def lark(  # noqa: PLR0913 - the parts of one grammar
    offer: Offer,
    spell: Spell,
    *,
    thought: tuple[str, str] | None,
    opening: str,
    first: str,
    between: str = "",
    end: str = "",
    one: Callable[[Json, str], str],
) -> str:
    """The grammar of answers that call functions: by force at once, otherwise behind any words.

    Calls begin with `opening` and then `first`; `between` stands between two calls, `end` behind
    the last. `one` writes a call in Lark, given the function and the rule of its arguments, and on
    lines of their own the rules that it needs.
    """
    functions = offer.callable
    calls = range(len(functions))
    more = f" ({between} call)*" if offer.parallel and between else ""
    rules = [f"rest: {first} call{more} {end}", f"call: {_either(f'call_{i}' for i in calls)}"]
    for index, function in enumerate(functions):
        arguments = schema(function, whole=offer.forced or bool(function.get("strict")))
        rules.append(f"call_{index}: {one(function, f'args_{index}')}")
        rules.append(f"args_{index}: %json {json.dumps(arguments)}")
    mark = spell(opening)
    if not functions:
        return "\n".join(_behind_thoughts(offer.said, offer, thought, spell))
    if offer.forced or offer.said:
        answer = f"{mark} rest" if offer.forced else f"{offer.said} | {mark} rest"
    elif mark.startswith("<"):  # a token that words cannot spell
        answer = f"/(?s:.*)/ ({mark} rest)?"
    else:
        answer = "WORDS | before rest"
        rules.append(f"before[suffix={mark}]: /(?s:.*)/")
        rules.append(f"WORDS: ~/(?s:.*){_escaped(opening)}(?s:.*)/")
    return "\n".join([*_behind_thoughts(answer, offer, thought, spell), *rules])


def _behind_thoughts(
    answer: str, offer: Offer, pair: tuple[str, str] | None, spell: Spell
) -> list[str]:
    """The start rule of `answer`, behind thoughts where the model thinks before it answers."""
    if pair is None or not (offer.thinks or offer.thinking):
        return [f"start: {answer}"]
    closing = spell(pair[1])
    if closing.startswith("<"):
        thought = f"thought: /(?s:.*)/ {closing}"
    else:
        thought = f"thought[suffix={closing}]: /(?s:.*)/"
    before = "thought BLANKS" if offer.thinking else f"({spell(pair[0])} thought BLANKS)?"
    return [f"start: {before} ({answer})", thought, "BLANKS: /[ \\n]{0,4}/"]


def _either(names: Iterable[str]) -> str:
    return " | ".join(names)


def _escaped(text: str) -> str:
    return "".join(f"\\{char}" if char in ".^$*+?()[]{}|\\/" else char for char in text)


def arguments_of(call: Mapping[str, Any]) -> Any:
    """A call's arguments as an object, where they are JSON of one; else as they are."""
    given = call.get("arguments")
    if not isinstance(given, str):
        return given or {}
    try:
        found = json.loads(given or "{}")
    except ValueError:
        return given
    return found if isinstance(found, dict) else given
