"""The growing text of one answer: what may be sent, and the token that each character came from."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from localspec.text.detokenize import Detokenizer
from localspec.text.lines import IndentLimit
from localspec.text.stop import StopMatcher
from localspec.types import Token


class Part(NamedTuple):
    """Text that is sent together.

    `origins` are (number of characters, source) in order and add up to the text's length. `tokens`
    are those whose last character is in this part.
    """

    text: str
    tokens: list[Token]
    origins: list[tuple[int, str]]


@dataclass(slots=True)
class _Waiting:
    """A token whose text is not completely sent: `chars` are left."""

    token: Token
    chars: int
    source: str


class AnswerText:
    """Tokens in, text out: whole characters only, and no part of a stop string. Request lifetime.

    `push` each token until `stopped`, `take` what may be sent as often as convenient, and `finish`
    before the last `take`.
    """

    def __init__(self, stops: Sequence[str], indent: int = 0) -> None:
        self._bytes = Detokenizer()
        self._stop = StopMatcher(stops)
        self._lines = IndentLimit(indent)
        self._ready = ""
        self._waiting: deque[_Waiting] = deque()
        self.kept = 0
        """Tokens whose text has wholly gone out; after a stop string, the tokens of the text."""

    @property
    def stopped(self) -> bool:
        """True once the last pushed token completed a stop string or a line ended the text."""
        return self._stop.stopped or self._lines.stopped

    @property
    def has_line(self) -> bool:
        """Whether a line is complete."""
        return self._lines.broken

    @property
    def stop(self) -> str:
        """The completed stop string; "" if there is none."""
        return self._stop.found

    def push(self, token: Token, piece: bytes, source: str) -> None:
        """Add the next token, its bytes and its source."""
        text = self._bytes.push(piece)
        self._waiting.append(_Waiting(token, len(text), source))
        self._ready += self._lines.push(self._stop.push(text))

    def finish(self) -> None:
        """End the answer: text held back may be sent, except an incomplete character."""
        self._ready += self._lines.push(self._stop.flush()) + self._lines.flush()

    def take(self) -> Part:
        """The part that may be sent now; its text may be empty."""
        text, self._ready = self._ready, ""
        tokens: list[Token] = []
        origins: list[tuple[int, str]] = []
        left = len(text)
        while self._waiting and (left or not self._waiting[0].chars):
            head = self._waiting[0]
            chars = min(left, head.chars)
            left -= chars
            head.chars -= chars
            if chars:
                origins.append((chars, head.source))
            if not head.chars:
                self._waiting.popleft()
                tokens.append(head.token)
        self.kept += len(tokens)
        return Part(text, tokens, origins)
