"""JSON as it comes in: how far a text is one JSON object, without building it."""

from __future__ import annotations

import json
import re

_PLAIN = re.compile(r'[^"\\\x00-\x1f]+')
_BLANKS = re.compile(r"[ \t\r\n]+")
_SCALAR = re.compile(r"[-+.0-9A-Za-z]+")
_VALID = re.compile(r"-?(0|[1-9]\d*)(\.\d+)?([eE][-+]?\d+)?|true|false|null")
_HEX = "0123456789abcdefABCDEF"
_CLOSING = {"{": "}", "[": "]"}


class JsonScan:
    """Follows one JSON object through pieces of text of any length.

    A line break or another control character in a string, which JSON forbids and models write, is
    escaped; nothing else is mended.
    """

    def __init__(self) -> None:
        self.done = False
        """The object is complete."""
        self.broken = False
        """What came cannot be JSON any more."""
        self._open: list[str] = []
        self._wants = "object"
        self._scalar = ""
        self._hex = 0

    def push(self, text: str) -> tuple[int, str]:
        """How many characters of `text` belong to the object, and what they say."""
        at, said = 0, []
        while at < len(text) and not (self.done or self.broken):
            end, escaped = self._step(text, at)
            said.append(text[at:end] if escaped is None else escaped)
            at = end
        return at, "".join(said)

    def _step(self, text: str, at: int) -> tuple[int, str | None]:
        """The place behind what was understood at `at`, and what to write for it instead."""
        if self._wants in ("string", "key string", "escape", "hex"):
            return self._inside(text, at)
        if run := _SCALAR.match(text, at):
            return self._word(run), None
        if self._scalar and not self._finish_scalar():
            return at, None
        if run := _BLANKS.match(text, at):
            return run.end(), None
        return (at if self._refuses(text[at]) else at + 1), None

    def _word(self, run: re.Match[str]) -> int:
        if not (self._scalar or self._wants in ("value", "first value")):
            self.broken = True
            return run.start()
        self._scalar += run[0]
        return run.end()

    def _finish_scalar(self) -> bool:
        self.broken = not _VALID.fullmatch(self._scalar)
        self._scalar, self._wants = "", "more"
        return not self.broken

    def _refuses(self, char: str) -> bool:
        """Take a character outside of strings and scalars; True where it does not belong."""
        wants, inner = self._wants, self._open[-1] if self._open else ""
        value = wants in ("value", "first value")
        if char == "{" and (wants == "object" or value):
            self._open.append(char)
            self._wants = "first key"
        elif char == "[" and value:
            self._open.append(char)
            self._wants = "first value"
        elif char == '"' and value:
            self._wants = "string"
        elif char == '"' and wants in ("key", "first key"):
            self._wants = "key string"
        elif char == ":" and wants == "colon":
            self._wants = "value"
        elif char == "," and wants == "more":
            self._wants = "key" if inner == "{" else "value"
        elif char == _CLOSING.get(inner) and wants in ("more", "first key", "first value"):
            self._open.pop()
            self._wants = "more"
            self.done = not self._open
        else:
            self.broken = True
        return self.broken

    def _inside(self, text: str, at: int) -> tuple[int, str | None]:
        """One step inside a string. `_open` holds the kind of string while an escape is read."""
        if self._wants == "hex":
            self._hex -= 1
            self.broken = text[at] not in _HEX
            self._wants = "hex" if self._hex else self._open.pop()
        elif self._wants == "escape":
            self.broken = text[at] not in '"\\/bfnrtu'
            self._hex = 4
            self._wants = "hex" if text[at] == "u" else self._open.pop()
        elif run := _PLAIN.match(text, at):
            return run.end(), None
        elif text[at] == "\\":
            self._open.append(self._wants)
            self._wants = "escape"
        elif text[at] == '"':
            self._wants = "colon" if self._wants == "key string" else "more"
        else:
            return at + 1, json.dumps(text[at])[1:-1]
        return (at if self.broken else at + 1), None
