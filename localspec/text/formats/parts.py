"""The description of a call format, as data. The families are in `table.py`.

A call is a sequence of parts: marks, which are fixed texts, and holes for what differs from call
to call. Reader, writer and grammar all use the same sequence.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TypeAlias


class Hole(Enum):
    """A variable part between the marks of a call."""

    NAME = "name"
    """The function's name."""
    ID = "id"
    """An id of letters and digits."""
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
    """An element for each argument, with nested elements for parts of objects and lists."""
    KEY = "key"
    """An argument's name in an element."""
    VALUE = "value"
    """An argument's value in an element."""
    TYPE = "type"
    """The type in an element, see `Element.text_type`."""


ARGUMENTS = frozenset({Hole.OBJECT, Hole.NOTED, Hole.KEYWORDS, Hole.ELEMENTS, Hole.TREE})


@dataclass(frozen=True, slots=True)
class Maybe:
    """An optional mark, or marks around a hole; `writing.marks_written` says which are written."""

    parts: tuple[str | Hole, ...]


Part: TypeAlias = str | Hole | Maybe


@dataclass(frozen=True, slots=True)
class Element:
    """The notation of one argument: `parts` contain KEY and VALUE.

    `line`: one line break at each end of a value belongs to the marks. `cdata`: a value may stand
    in CDATA sections, in which marks are plain text. With a TYPE hole, strings have the type
    `text_type` and other values `other_type`, where "json" stands for the name of any JSON type.
    """

    parts: tuple[str | Hole, ...]
    line: bool = False
    cdata: bool = False
    text_type: str = ""
    other_type: str = ""


@dataclass(frozen=True, slots=True)
class Way:
    """One notation of calls.

    `opening` and `closing` are around consecutive calls, `between` is between two. `known`: the
    marks are ambiguous, so only names of offered functions count. `first`: a call may begin only
    at the beginning of the answer, or after its thoughts. `keys` are those of a CALL for name and
    arguments, `quote` is around strings of NOTED. `odd`: it is read, but no grammar allows it.
    """

    call: tuple[Part, ...]
    opening: str = ""
    between: str = ""
    closing: str = ""
    known: bool = False
    first: bool = False
    element: Element | None = None
    keys: tuple[str, str] = ("name", "arguments")
    quote: str = '<|"|>'
    odd: bool = False


@dataclass(frozen=True, slots=True)
class Pair:
    """Marks around thoughts or text.

    `own`: the marks occur in no ordinary text and count anywhere, not only at the beginning of a
    part of the answer.
    """

    opening: str
    closing: str
    own: bool = False


@dataclass(frozen=True, slots=True)
class Heads:
    """The heads of messages, for formats in which an answer has several messages.

    A head begins with one of `begins`, or, because a prompt may end inside of a head, the answer
    begins with one of `goes_on`; `ends` closes it. `call` is a pattern for the name of a called
    function, `thought` one for thoughts; all other messages are text. A message ends with one of
    `closings`, or with the next head. The other fields are heads as a grammar requires them:
    `thinks` of thoughts, `before` of text before a call, `says` of the answer, `calls` of a call of
    {name}, and `also` further ones of a call. `again` ends a message and begins the next one.
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
    also: tuple[str, ...] = ()
    again: str = ""


@dataclass(frozen=True, slots=True)
class Format:
    """How the models of a family write.

    Args:
        name: Its name in `status`: one of the families that write so.
        ways: How calls are written; the first is the template's own, others are read as well.
        thoughts: Marks around thoughts; the first are those that are written.
        thinks: The models think, although their template writes no mark of thoughts.
        words: Marks around the answer's text, where the family has them.
        dropped: Marks that mean nothing to a reader and are left out.
        heads: Heads of messages, where the family has them.
        signs: Texts by which the family is known where rendering shows no call: its template holds
            one of them.
        offers: Signs count only in a template that shows functions.
        marks: Texts that may be one token of a vocabulary and are part of a longer mark here.
        ids: "openai", or "nine" for nine letters and digits, as Mistral's templates demand.
        pretends: Function names that mean "no function": a call of one of them is no call.
    """

    name: str
    ways: tuple[Way, ...]
    thoughts: tuple[Pair, ...] = (Pair("<think>", "</think>"),)
    thinks: bool = False
    words: tuple[Pair, ...] = ()
    dropped: tuple[str, ...] = ()
    heads: Heads | None = None
    signs: tuple[str, ...] = ()
    offers: bool = False
    marks: tuple[str, ...] = ()
    ids: str = "openai"
    pretends: frozenset[str] = field(default_factory=frozenset)
