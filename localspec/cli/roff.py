"""Text in the man macros of roff: filled, escaped, or line by line. Pure."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

WIDTH = 72
"""Characters of a line of the file; roff fills them anew."""


def filled(text: str) -> Iterator[str]:
    """A paragraph that roff may wrap."""
    for line in textwrap.wrap(text, WIDTH, break_on_hyphens=False):
        yield escaped(line)


def verbatim(lines: Sequence[str]) -> Iterator[str]:
    """Lines as they are, without the indentation that they share."""
    kept = textwrap.dedent("\n".join(lines)).split("\n")
    yield from (".RS 4", ".nf", *map(escaped, kept), ".fi", ".RE")


def item(tag: str, text: str) -> Iterator[str]:
    """A term in bold, and its explanation."""
    yield from (".TP", f"\\fB{escaped(tag)}\\fR", *filled(text))


def escaped(text: str) -> str:
    """The roff of `text`: hyphens that can be copied, and no line that is a request."""
    shown = text.replace("\\", "\\e").replace("-", "\\-").replace('"', "\\(dq")
    return f"\\&{shown}" if shown.startswith((".", "'")) else shown
