"""Splits code into pieces with a kind each, by Pygments, in its own process: a lexer may hang.

`python -m localspec_daemon.page.painter` reads a JSON list of [language, text] and writes a list
of lists of [kind, text]; an empty list where the language is not known.
"""

from __future__ import annotations

import json
import sys

from pygments.lexers import get_lexer_by_name  # type: ignore[import-untyped]
from pygments.token import Comment, Error, Generic, Keyword, Literal, Name, Number, Operator, String  # type: ignore[import-untyped]
from pygments.util import ClassNotFound  # type: ignore[import-untyped]

KINDS = (
    (Comment, "comment"),
    (Keyword, "keyword"),
    (Operator.Word, "keyword"),
    (Number, "number"),
    (String, "string"),
    (Literal, "string"),
    (Name.Function, "name"),
    (Name.Class, "name"),
    (Name.Tag, "name"),
    (Name.Decorator, "meta"),
    (Name.Builtin, "meta"),
    (Name.Attribute, "meta"),
    (Generic.Deleted, "error"),
    (Generic.Inserted, "string"),
    (Error, ""),
)
"""Types of tokens, and their kinds in the page's style sheet; the first that a token has counts."""


def painted(language: str, text: str) -> list[tuple[str, str]]:
    """Pieces that add up to `text`; none for a language that is not known."""
    try:
        lexer = get_lexer_by_name(language, stripnl=False, ensurenl=False)
    except ClassNotFound:
        return []
    pieces: list[tuple[str, str]] = []
    for token, piece in lexer.get_tokens(text):
        kind = next((name for known, name in KINDS if token in known), "")
        if pieces and pieces[-1][0] == kind:
            pieces[-1] = (kind, pieces[-1][1] + piece)
        else:
            pieces.append((kind, piece))
    return pieces if "".join(piece for _, piece in pieces) == text else []


if __name__ == "__main__":
    json.dump([painted(*block) for block in json.load(sys.stdin)], sys.stdout)
