"""Makes an /infill request from an editor's buffer, and ghost text from the answer. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

MAX_BEFORE_CHARS = 24_000
MAX_AFTER_CHARS = 6_000
MAX_TYPED_CHARS = 1_000
MAX_OTHER_CHARS = 3_000
MAX_OTHERS = 4
"""A bound on the other open documents, which stand before everything else in the prompt."""

TYPING_MS = 250
"""During typing, half a second is too late."""
ASKED_MS = 1500
MAX_TOKENS = 96


@dataclass(frozen=True, slots=True)
class Buffer:
    """An open document."""

    name: str
    text: str


def request(
    buffer: Buffer, offset: int, others: Iterable[Buffer], *, typing: bool, model: str
) -> dict[str, Any]:
    """The body of POST /infill for the place `offset` of a buffer.

    Where text follows on the line, the rest of the line is asked for, otherwise a block. `others`
    are the other open documents, the latest last. The line being typed is a field of its own, which
    is the end of the prompt: so the text behind `offset` is not read again for every letter.
    """
    before, after = buffer.text[:offset], buffer.text[offset:]
    line, _, _ = after.partition("\n")
    typed = before.rpartition("\n")[2][-MAX_TYPED_CHARS:]
    known = [one for one in others if one.text.strip() and one.name != buffer.name]
    return {
        "model": model,
        "input_prefix": _tail(before[: len(before) - len(typed)]),
        "prompt": typed,
        "input_suffix": after[:MAX_AFTER_CHARS],
        "input_extra": [
            {"filename": one.name, "text": one.text[:MAX_OTHER_CHARS]}
            for one in known[-MAX_OTHERS:]
        ],
        "stop": ["\n"] if line.strip() else [],
        "n_predict": MAX_TOKENS,
        "n_indent": _indent(before),
        "t_max_predict_ms": TYPING_MS if typing else ASKED_MS,
        "prompt_cache_key": "localspec lsp",
        "response_fields": ["content"],
    }


def shown(content: str, after: str) -> str:
    """An answer without blanks at its end; "" if it only repeats the rest of the line."""
    text = content.rstrip()
    line, _, _ = after.partition("\n")
    return "" if text and text == line.rstrip() else text


def _tail(before: str) -> str:
    """The end of a long text, from the beginning of a line on."""
    if len(before) <= MAX_BEFORE_CHARS:
        return before
    return before[-MAX_BEFORE_CHARS:].partition("\n")[2]


def _indent(before: str) -> int:
    """The number of blanks at the beginning of the current line."""
    line = before.rpartition("\n")[2]
    return len(line) - len(line.lstrip(" \t"))
