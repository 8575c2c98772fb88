"""The messages that begin no answer of the model: questions about texts, and actions on slots."""

from __future__ import annotations

from typing import Literal

import msgspec


class Tokenize(msgspec.Struct, frozen=True, tag="tokenize"):
    """Asks for the tokens of a text, and their pieces."""

    id: str
    text: str
    add_special: bool
    parse_special: bool


class Detokenize(msgspec.Struct, frozen=True, tag="detokenize"):
    """Asks for the text of tokens."""

    id: str
    tokens: list[int]


class Embed(msgspec.Struct, frozen=True, tag="embed"):
    """Asks for the first `width` numbers of a vector of each text (or of tokens); None for all.

    `norm` is llama.cpp's: 2 is Euclid's, -1 none. With `cut` a text that is too long is cut. With a
    `query` each text is a document, and its vector only holds its score.
    """

    id: str
    texts: list[str | list[int | str]]
    norm: int = 2
    width: int | None = None
    cut: bool = False
    query: str | None = None


NOT_RUNNING = "no active completion for this id"
"""The answer where the request has ended, or never was, in llama-server's words."""


class EndThoughts(msgspec.Struct, frozen=True, tag="end_thoughts"):
    """Ends the thoughts of the answer to `request`; `QuestionAnswer.text` is the reason if not."""

    id: str
    request: str


class SlotAction(msgspec.Struct, frozen=True, tag="slot"):
    """Saves what a slot holds to a file, restores it from there, or erases it.

    The slot is that of the conversation `session`, else the one with the number `slot`; the action
    waits until it is idle. The answer has the counts of tokens and bytes.
    """

    id: str
    client: str
    slot: int
    session: str
    action: Literal["save", "restore", "erase"]
    filename: str = ""
