"""Divides a growing answer into thinking (<think> to </think> at its start) and the rest."""

from __future__ import annotations

import re

OPEN, CLOSE = "<think>", "</think>"


class Divider:
    """Cuts the text of one answer into thinking and the rest, wherever its pieces end.

    Only an answer that begins with the tag has thinking; anywhere else it is text about a tag.
    """

    def __init__(self) -> None:
        self._held = ""
        self._state = "before"

    def feed(self, text: str) -> list[tuple[bool, str]]:
        """List (is thinking, text) in order, without tags; possible half tags are held back."""
        self._held += text
        found: list[tuple[bool, str]] = []
        if self._state == "before":
            self._begin()
        if self._state == "thinking":
            inside, tag, rest = self._held.partition(CLOSE)
            kept = 0 if tag else _overlap(inside, CLOSE)
            found.append((True, inside[: len(inside) - kept]))
            self._held = rest if tag else inside[len(inside) - kept :]
            self._state = "answer" if tag else "thinking"
        if self._state == "answer":
            found.append((False, self._held))
            self._held = ""
        return [(thinking, part) for thinking, part in found if part]

    def close(self) -> list[tuple[bool, str]]:
        """Return the held-back text at the end of the answer."""
        held, self._held = self._held, ""
        return [(self._state == "thinking", held)] if held else []

    def _begin(self) -> None:
        begun = self._held.lstrip()
        if begun.startswith(OPEN):
            self._state, self._held = "thinking", begun.removeprefix(OPEN)
        elif not OPEN.startswith(begun):
            self._state = "answer"


def _overlap(text: str, tag: str) -> int:
    """Length of the longest end of `text` that begins `tag`."""
    return next((n for n in range(len(tag) - 1, 0, -1) if text.endswith(tag[:n])), 0)


def parted(text: str) -> tuple[str, str]:
    """Split a whole answer into its thinking and the rest."""
    found = re.match(rf"\s*{OPEN}(.*?)({CLOSE}|\Z)\s*", text, re.DOTALL)
    return (found[1].strip(), text[found.end() :]) if found else ("", text)
