"""Filling in the middle: prefix, suffix and what else is known as one prompt, in tokens. Pure.

The layout is the one that families with such tokens were trained on and llama-server writes: other
files first, then prefix, suffix, and the token after which the middle is written. What changes most
during typing stands last, so that the next prompt begins as this one did: the line that is
typed is no part of the prefix, but the beginning of the middle.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from localspec.types import Token
from localspec.wire.values import Snippet

PROJECT = "myproject\n"
SEPARATOR = "\n\n--- snippet ---\n\n"
"""Between texts, for families without a token that begins a file."""

_CUT_TOKENS = 256
"""Text beyond the room is cut in such steps: a text whose beginning moved with every letter would
have to be read anew each time."""
_SUFFIX_SHARE = 4
_LINE_CHARS = 256
"""Of a longer line the part behind the last multiple is moved: it begins elsewhere rarely."""


@dataclass(frozen=True, slots=True)
class Marks:
    """The tokens for it; `repository` and `file` name what follows, where a family has them.

    A family without `middle` is given the suffix first, and goes on with the prefix.
    """

    prefix: Token
    suffix: Token
    middle: Token | None = None
    repository: Token | None = None
    file: Token | None = None
    first: Token | None = None
    """Begins every text, where the model wants that."""


def parted(prefix: str, begun: str) -> tuple[str, str]:
    """The text before the line that is typed, and that line, wherever a client has put it."""
    typed = (len(prefix) - prefix.rfind("\n") - 1) % _LINE_CHARS
    return prefix[: len(prefix) - typed], prefix[len(prefix) - typed :] + begun


def prompt(  # noqa: PLR0913 - the parts of one prompt
    marks: Marks,
    tokens: Callable[[str], list[Token]],
    *,
    prefix: str,
    suffix: str,
    begun: str = "",
    extra: Sequence[Snippet] = (),
    most: int,
    behind: Callable[[str], list[Token]] | None = None,
) -> list[Token]:
    """The prompt, of at most about `most` tokens; `begun` is how the middle begins.

    Of a prefix that is too long the end stays, of a suffix the beginning, of `extra` the last.
    `behind` makes tokens of text that goes on, where that is something else than `tokens`.
    """
    start = (behind or tokens)(begun)
    after = tokens(suffix)[: max(0, most // _SUFFIX_SHARE)]
    before = _end(tokens(prefix), max(0, most - len(after) - len(start)))
    room = most - len(after) - len(before) - len(start)
    known = _context(marks, tokens, extra, room)
    if marks.middle is None:
        body = [marks.suffix, *after, marks.prefix, *before]
    else:
        body = [marks.prefix, *before, marks.suffix, *after, marks.middle]
    return [*([] if marks.first is None else [marks.first]), *known, *body, *start]


def _context(
    marks: Marks, tokens: Callable[[str], list[Token]], extra: Sequence[Snippet], room: int
) -> list[Token]:
    """Other files, the last ones that there is room for; nothing without any."""
    chunks = [_chunk(marks, tokens, snippet) for snippet in extra]
    while chunks and sum(map(len, chunks)) > room:
        chunks.pop(0)
    if not chunks:
        return []
    opening = [] if marks.repository is None else [marks.repository, *tokens(PROJECT)]
    closing = [] if marks.file is None else [marks.file, *tokens("filename\n")]
    return [*opening, *(token for chunk in chunks for token in chunk), *closing]


def _chunk(marks: Marks, tokens: Callable[[str], list[Token]], one: Snippet) -> list[Token]:
    head = [] if marks.file is None else [marks.file, *tokens(f"{one.filename or 'tmp'}\n")]
    return [*(head or tokens(SEPARATOR)), *tokens(one.text)]


def _end(tokens: list[Token], most: int) -> list[Token]:
    """The last tokens, at most so many, cut in whole steps."""
    over = len(tokens) - most
    return tokens[-(-over // _CUT_TOKENS) * _CUT_TOKENS :] if over > 0 else tokens
