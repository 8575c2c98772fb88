"""The description of a format: what one is made of. Data alone; the families are in `table.py`.

A call is a sequence of parts: marks, which are texts, and holes for what differs from call to call.
Reader, writer and grammar walk the same sequence, so that what one of them knows all do.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TypeAlias


class Hole(Enum):
    """What stands between the marks of a call."""

    NAME = "name"
    """The function's name."""
    ID = "id"
    """Letters and digits that tell one call from another."""
    INDEX = "index"
    """The number of the call."""
    OBJECT = "object"
    """The arguments as a JSON object."""
    CALL = "call"
    """A JSON object of name and arguments."""
    PAIR = "pair"
    """A JSON object whose only key is the name, its value the arguments."""
    NOTED = "noted"
    """The arguments as an object in Gemma's notation."""
    KEYWORDS = "keywords"
    """The arguments as Python's keywords."""
    ELEMENTS = "elements"
    """An element for each argument, as `Format.element` describes it."""
    TREE = "tree"
    """An element for each argument, and inside of it one for each part of an object or a list."""
    KEY = "key"
    """An argument's name, inside of an element."""
    VALUE = "value"
    """An argument's value, inside of an element."""
    TYPE = "type"
    """How an element says what its value is, see `Element.text_type`."""


ARGUMENTS = frozenset({Hole.OBJECT, Hole.NOTED, Hole.KEYWORDS, Hole.ELEMENTS, Hole.TREE})


@dataclass(frozen=True, slots=True)
class Maybe:
    """A mark, or marks around a hole, that models write at times and `writing` does not."""

    parts: tuple[str | Hole, ...]


Part: TypeAlias = str | Hole | Maybe


@dataclass(frozen=True, slots=True)
class Element:
    """How one argument is written: `parts` with KEY and VALUE among them.

    `line`: one line break at each end of a value belongs to the marks. With a TYPE hole `text_type`
    is what it says of a string, `type_of` how it says anything else ("json" names the JSON type).
    """

    parts: tuple[str | Hole, ...]
    line: bool = False
    text_type: str = ""
    other_type: str = ""


@dataclass(frozen=True, slots=True)
class Way:
    """One way to write calls.

    `opening` and `closing` stand around all calls that follow one another, `between` between two.
    `known`: without marks that are unmistakable only names of functions that were offered count.
    `first`: only where the answer, or what follows its thoughts, begins.
    """

    call: tuple[Part, ...]
    opening: str = ""
    between: str = ""
    closing: str = ""
    known: bool = False
    first: bool = False
    element: Element | None = None
    keys: tuple[str, str] = ("name", "arguments")


@dataclass(frozen=True, slots=True)
class Pair:
    """Marks around thoughts, or around words.

    `own`: they are no words of any language, and count wherever they stand, not only where a part
    of the answer begins.
    """

    opening: str
    closing: str
    own: bool = False


@dataclass(frozen=True, slots=True)
class Heads:
    """Messages with a head each, which says what the message is.

    A head begins with one of `begins`, or with the answer where it begins with one of `goes_on`,
    for a prompt may end inside of a head; `ends` closes it. `call` is a pattern for the name of a
    function that is called, `thought` one for thoughts; all others are words. A message ends with
    one of `closings`, or with the next head.

    The rest is how heads are written by a model that is held to a grammar: of thoughts, of words
    before a call, of the answer, and of a call of {name}; `again` begins the next message.
    """

    begins: tuple[str, ...]
    goes_on: tuple[str, ...]
    ends: str
    thought: str
    closings: tuple[str, ...]
    call: str = ""
    thinks: str = ""
    before: str = ""
    says: str = ""
    calls: str = ""
    again: str = ""


@dataclass(frozen=True, slots=True)
class Format:
    """How the models of a family write.

    Args:
        name: What it is called in `status`.
        ways: How calls are written; the first is the template's own, others are read as well.
        thoughts: Marks around thoughts; the first are those that are written.
        words: Marks around words, of families that have some.
        dropped: Marks that say nothing here.
        heads: Of messages, for families that write such.
        signs: Texts of which a template of this family holds one, where rendering shows no call.
        offers: Signs count only in a template that shows functions.
        marks: Texts that may be one token of a vocabulary and are part of a longer mark here.
        ids: "openai", or "nine" for letters and digits as Mistral's templates demand them.
        pretends: Names that stand for "no function" and are no calls.
    """

    name: str
    ways: tuple[Way, ...]
    thoughts: tuple[Pair, ...] = (Pair("<think>", "</think>"),)
    words: tuple[Pair, ...] = ()
    dropped: tuple[str, ...] = ()
    heads: Heads | None = None
    signs: tuple[str, ...] = ()
    offers: bool = False
    marks: tuple[str, ...] = ()
    ids: str = "openai"
    pretends: frozenset[str] = field(default_factory=frozenset)
