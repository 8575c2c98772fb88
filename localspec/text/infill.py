"""Prompts for filling in the middle, in tokens: prefix, suffix and other files. Pure.

The layout is the one that models were trained on and that llama-server writes: other files first,
then prefix, suffix, and the token after which the middle is generated. What changes most during
typing is last, so that the KV of the previous prompt can be reused: the line being typed is not
part of the prefix but the beginning of the middle.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from localspec.types import Token
from localspec.wire.values import Snippet

PROJECT = "myproject\n"
SEPARATOR = "\n\n--- snippet ---\n\n"
"""The text between files, for families without a token that begins a file."""

_CUT_TOKENS = 256
"""Step in tokens for cutting long text: if its beginning moved with every letter, the prompt would
have to be read anew each time."""
_SUFFIX_SHARE = 4
_LINE_CHARS = 256
"""Step in characters for cutting a long line, so that its beginning moves rarely."""


@dataclass(frozen=True, slots=True)
class Marks:
    """A family's infill tokens; `repository` and `file` precede names, where a family has them.

    A family without `middle` gets the suffix first, then the prefix, which the answer continues.
    """

    prefix: Token
    suffix: Token
    middle: Token | None = None
    repository: Token | None = None
    file: Token | None = None
    first: Token | None = None
    """The token that begins every text, where the model wants one."""


def parted(prefix: str, begun: str) -> tuple[str, str]:
    """The text before the line being typed, and that line.

    The client may have put the line into `prefix`, into `begun`, or a part of it into each.
    """
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
    """The prompt, of at most about `most` tokens; `begun` is the beginning of the middle.

    A prefix that is too long keeps its end, a suffix its beginning, `extra` its last files.
    `behind` tokenizes text that continues other text, where that differs from `tokens`.
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
    """The last of the other files that fit into `room` tokens; empty without any."""
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
    """The last tokens, at most `most`, cut in whole steps."""
    over = len(tokens) - most
    return tokens[-(-over // _CUT_TOKENS) * _CUT_TOKENS :] if over > 0 else tokens
