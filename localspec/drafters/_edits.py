"""Edits that an answer makes in a copied text and may make again, such as a renamed field."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from localspec.drafters._joints import NO_TOKEN
from localspec.types import Token

_EDIT_TOKENS = 12
"""The longest edit that is expected again, in tokens."""


class Edit(NamedTuple):
    """Tokens of a copied text, and what stands for them in the copy. Neither is empty."""

    old: tuple[Token, ...]
    new: tuple[Token, ...]


class Edits:
    """The edits of one answer. Request lifetime; state only."""

    def __init__(self) -> None:
        self._known: dict[Token, list[Edit]] = {}  # by the first old token, the latest last

    def learn(self, edit: Edit) -> None:
        """Remember an edit that was made."""
        self.forget(edit)
        self._known.setdefault(edit.old[0], []).append(edit)

    def forget(self, edit: Edit) -> None:
        """Drop an edit that was not made where it could have been."""
        known = self._known.get(edit.old[0], [])
        if edit in known:
            known.remove(edit)

    def at(self, text: Sequence[Token], position: int) -> Edit | None:
        """The latest edit known of the tokens at `position`."""
        if not self._known or position >= len(text):
            return None
        for edit in reversed(self._known.get(text[position], ())):
            if tuple(text[position : position + len(edit.old)]) == edit.old:
                return edit
        return None


def between(
    text: Sequence[Token], broken: int, written: int, found: int, common: int
) -> Edit | None:
    """The edit that lies between a broken copy and the place where it goes on.

    A mere insertion or deletion has no old or no new tokens and would fit anywhere or nowhere; then
    the token behind it becomes a part of both.

    Args:
        text: The copied text, and at its end the copy.
        broken: The position in the copied text at which the copy left it.
        written: Tokens written since then.
        found: The position in the copied text at which the copy goes on.
        common: Equal tokens before `found` and at the end of the text; at most `written`.
    """
    left = found - common
    if not broken <= left <= broken + _EDIT_TOKENS or written - common > _EDIT_TOKENS:
        return None
    end = len(text) - common
    start = len(text) - written
    if left == broken or end == start:
        if not common:
            return None
        left, end = left + 1, end + 1
    edit = Edit(tuple(text[broken:left]), tuple(text[start:end]))
    return None if edit.old == edit.new else edit


@dataclass(slots=True)
class Path:
    """A place in a text, with known edits made again: `made` tokens of `edit` are written."""

    position: int
    edit: Edit | None = None
    made: int = 0

    def token(self, text: Sequence[Token], ahead: Sequence[Token] = ()) -> Token:
        """The token expected next in the text continued by `ahead`; NO_TOKEN behind its end."""
        if self.edit is not None:
            return self.edit.new[self.made]
        if self.position < len(text):
            return text[self.position]
        beyond = self.position - len(text)
        return ahead[beyond] if beyond < len(ahead) else NO_TOKEN

    def leave_edit(self) -> None:
        """Drop the edit, which is not being made, unless a part of it is written already."""
        if not self.made:
            self.edit = None

    def go_on(self, text: Sequence[Token], edits: Edits) -> None:
        """Move past the next token."""
        if self.edit is None:
            self.position += 1
        else:
            self.made += 1
            if self.made < len(self.edit.new):
                return
            self.position += len(self.edit.old)
        self.edit, self.made = edits.at(text, self.position), 0
