"""Special tokens in prompts: the template's are tokens, those in messages are plain text.

llama.cpp tokenizes a special token wherever its text occurs. So before a template is rendered, the
first character of each such text in a message is replaced by a stand-in, and also where such a text
might arise once the template has joined strings. A stand-in is one private character, so that
trimming, slicing and counting work as before. The rendered text is then cut at the template's own
special tokens, and a stretch between two of them that holds a stand-in is tokenized without special
tokens. A prompt without stand-ins is unchanged. Private characters in a message are escaped.

Tokens of type user-defined are no control tokens, and llama.cpp always tokenizes them. Where the
template writes them, or a format of answers has them (`<tool_call>`, `<think>`), their text in a
message is cut after the first character. The model's own messages keep marks of thoughts and calls:
the model generated these tokens, and templates look for them to leave thoughts out. Other tokens
of this type (`<table>`, runs of blanks) are treated as ordinary words.

A template that takes words out of a text (`replace`) could join two halves to a special token. For
such a template a stand-in replaces every character with which a special token begins, except in
the model's own messages.

Limits: a template that looks for a special token inside of a message does not find it, and one
that escapes characters (for HTML, for a URL) escapes the stand-in, or leaves it unescaped.
"""

from __future__ import annotations

import itertools
import json
import re
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator
from typing import Any, NamedTuple, TypeVar, cast

from localspec.text.windows import finds, substituted

_Value = TypeVar("_Value")

_STAND_INS = 0xF0000
"""The first of the private characters that stand for first characters of special tokens."""
_ITSELF = "\U000ffffd"
"""The escape before a private character of the message itself, which moves to the next plane."""
_GAP = 0x10000
_MANY = 64
"""The most special tokens in one part: llama.cpp's time grows with the square of their number."""
_MAX_CHARS = 200
"""The most characters of a special token that are searched for; of a longer one its beginning."""
_TAKES_OUT = re.compile(r"[.|]\s*replace\b")
"""How a template takes words out of a text."""
_MAX_TOKENS = 20_000
"""With more special tokens than this, every first character of one counts as its beginning."""


class Part(NamedTuple):
    """A stretch of a prompt, and whether special tokens in it are tokenized as such.

    A `joined` part continues the text before it.
    """

    text: str
    special: bool
    joined: bool = False


class Markers:
    """The special tokens of one vocabulary. Model lifetime; any thread.

    Args:
        control: Texts of tokens that are only tokenized on request.
        others: Texts of tokens that are always tokenized.
        template: The chat template; the `others` that it writes have a meaning in a chat.
        marks: Marks by which answers are read; the `others` among them have a meaning too.
        kept: The `others` that stay tokens in the model's own messages.
    """

    def __init__(
        self,
        control: Collection[str],
        others: Collection[str] = (),
        template: str = "",
        marks: Collection[str] = (),
        kept: Collection[str] = (),
    ) -> None:
        self.longest_bytes = max((len(text.encode()) for text in (*control, *others)), default=1)
        """The most bytes in the text of one special token."""
        control = {text[:_MAX_CHARS] for text in control if text}
        every = {text[:_MAX_CHARS] for text in others if text} | control
        self._control = _whole(control)
        self._any = _whole(every)
        written = {text for text in others if text.strip() and text in template}
        meant = {text[:_MAX_CHARS] for text in written.union(marks).intersection(others)}
        self._meant = _beginning(meant, whole=True)
        self._begins_own = _beginning(control | meant.difference(kept))
        signs = control | meant
        self._begins_any = _beginning(signs)
        self._firsts_any = _beginning({text[0] for text in signs})
        self._takes_out = bool(_TAKES_OUT.search(template))
        firsts = sorted({case for text in signs for case in text[0].upper() + text[0].lower()})
        self._stand_in = {first: chr(_STAND_INS + at) for at, first in enumerate(firsts)}
        self._firsts = {other: first for first, other in self._stand_in.items()}
        reserved = "".join(self._stand_in.values()) + _ITSELF
        self._reserved = re.compile(f"[{reserved}]")
        self._standing = re.compile(f"[{reserved[:-1]}]") if firsts else None
        self._moved = re.compile(f"{_ITSELF}(.)", re.DOTALL)

    def quoted(self, value: _Value, *, own: bool = False, words: bool = False) -> _Value:
        """The same strings, lists and objects with stand-ins where special tokens begin.

        `own`: the strings are the model's own output. `words`: a template may take words out of
        them.
        """
        begins = self._begins_own if own else self._begins_any
        if words and self._takes_out:
            begins = self._firsts_any
        if begins is None:
            return value
        copied: Any = self._copied(value, begins)
        return cast("_Value", copied)

    def parts(self, text: str, *, quoted: bool = False) -> list[Part]:
        """The stretches of a prompt, each tokenized separately.

        In a `quoted` prompt, stretches with a stand-in are tokenized without special tokens.
        """
        runs: Iterable[tuple[str, bool]] = [(text, True)]
        if quoted and self._standing:
            runs = self._runs(self._unescaped(text), self._standing)
        return [
            Part(self._restored(piece) if quoted else piece, special, joined)
            for run, special in runs
            for whole in self._pieces(run)
            for piece, joined in ([(whole, False)] if special else self._cut(whole))
        ]

    def count(self, text: str) -> int:
        """The number of special tokens in a text; 0 if it cannot be counted."""
        return sum(1 for _ in _found(self._any, text))

    def _copied(self, value: Any, begins: re.Pattern[str]) -> Any:
        if isinstance(value, str):
            moved = substituted(
                self._reserved, value, 1, lambda it: _ITSELF + chr(ord(it[0]) + _GAP)
            )
            return substituted(
                begins, moved, _MAX_CHARS, lambda it: self._stand_in.get(it[0], it[0])
            )
        if isinstance(value, list):
            return [self._copied(inner, begins) for inner in value]
        if isinstance(value, dict):  # templates know the names of keys
            return {
                key if key.isidentifier() else self._copied(key, begins): self._copied(
                    inner, begins
                )
                for key, inner in value.items()
            }
        return value

    def _restored(self, text: str) -> str:
        return substituted(self._moved, self._stood(text), 2, lambda it: chr(ord(it[1]) - _GAP))

    def _stood(self, text: str) -> str:
        """The text with stand-ins replaced by the original characters, of the same length."""
        if not self._standing:
            return text
        return substituted(self._standing, text, 1, lambda it: self._firsts[it[0]])

    def _cut(self, run: str) -> Iterator[tuple[str, bool]]:
        """A message's text, cut inside of each token that llama.cpp would always tokenize."""
        begun = 0
        for found in _found(self._meant, self._stood(run)):
            place = found.start()  # a match is one character, so that overlapping tokens are found
            if run[place] in self._firsts:
                yield run[begun : place + 1], begun > 0
                begun = place + 1
        yield run[begun:], begun > 0

    def _unescaped(self, text: str) -> str:
        """The text with stand-ins that a template has escaped, in JSON or in Python, restored."""
        for stand_in in self._stand_in.values():
            for written in (json.dumps(stand_in), repr(stand_in)):
                text = text.replace(written[1:-1], stand_in)
        return text

    def _runs(self, text: str, standing: re.Pattern[str]) -> Iterator[tuple[str, bool]]:
        """Each stretch between two control tokens that holds a stand-in, and the text between them.

        With each: whether special tokens in it are tokenized as such.
        """
        quoted = [found.start() for found in finds(standing, text, 1)]
        ends = [0, len(text)]
        ends += (end for found in _found(self._control, text) for end in found.span())
        begun = 0
        ends.sort()
        for start, end in itertools.pairwise(ends):
            if bisect_left(quoted, start) < bisect_left(quoted, end):
                if begun < start:
                    yield text[begun:start], True
                yield text[start:end], False
                begun = end
        if begun < len(text):
            yield text[begun:], True

    def _pieces(self, text: str) -> Iterator[str]:
        """The text, cut so that no piece holds more than `_MANY` special tokens."""
        begun = 0
        for number, found in enumerate(_found(self._any, text)):
            if number and number % _MANY == 0:
                yield text[begun : found.start()]
                begun = found.start()
        yield text[begun:]


def _found(whole: re.Pattern[str] | None, text: str) -> Iterator[re.Match[str]]:
    """The special tokens in a text."""
    return finds(whole, text, _MAX_CHARS) if whole else iter(())


def _whole(texts: Collection[str]) -> re.Pattern[str] | None:
    """A pattern for any of the texts, the longest first; None where there are none or too many."""
    return re.compile(_tree(texts)) if 0 < len(texts) <= _MAX_TOKENS else None


def _beginning(texts: Collection[str], *, whole: bool = False) -> re.Pattern[str] | None:
    """A pattern for a place where any of the texts begins, or might begin at the end of a string.

    Case is ignored, since a template may change it. With `whole`, case counts, and only whole
    texts do.
    """
    if not texts:
        return None
    flags = re.NOFLAG if whole else re.IGNORECASE
    if len(texts) > _MAX_TOKENS:
        return re.compile("|".join(sorted({re.escape(text[0]) for text in texts})), flags)
    branches = _branches(text if whole else text.lower() for text in texts)
    pattern = "|".join(
        f"{re.escape(first)}(?={_tree(rest, unfinished=not whole)})"
        for first, rest in sorted(branches.items())
    )
    return re.compile(pattern, flags)


def _tree(texts: Collection[str], *, unfinished: bool = False) -> str:
    """A pattern for any of the texts; if `unfinished`, a beginning is enough at a string's end."""
    if unfinished and "" in texts:
        return ""
    found = [
        re.escape(first) + _tree(rest, unfinished=unfinished)
        for first, rest in sorted(_branches(texts).items())
    ]
    if unfinished:
        found.append(r"\s*+\Z")
    elif "" in texts:
        found.append("")
    return found[0] if len(found) == 1 else "(?:" + "|".join(found) + ")"


def _branches(texts: Iterable[str]) -> dict[str, set[str]]:
    """The continuations of each first character."""
    branches: dict[str, set[str]] = {}
    for text in texts:
        if text:
            branches.setdefault(text[0], set()).add(text[1:])
    return branches
