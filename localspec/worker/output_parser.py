"""Parses an answer's text into words, thoughts and calls, each with its source."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from localspec.text.formats import Piece, Reader
from localspec.text.stream import Part
from localspec.types import Token
from localspec.wire.messages import Delta
from localspec.wire.values import CallDelta, TokenLogprob


@dataclass(slots=True)
class OutputParser:
    """Turns the parts of one answer's text into deltas. Request lifetime.

    Args:
        id: The request's id.
        reader: Splits text into words, thoughts and calls; None where all is words.
        call_id: A new id for a call.
        shown: Control tokens that the reader has to see, and the bytes that stand for them.
    """

    id: str
    reader: Reader | None
    call_id: Callable[[], str]
    shown: Mapping[Token, bytes]
    calls: int = 0
    """Calls that have begun."""
    _written: Counter[str] = field(default_factory=Counter)
    """Characters of each kind of piece."""
    _origins: deque[tuple[int, str]] = field(default_factory=deque)

    def delta(
        self, part: Part, logprobs: list[TokenLogprob], *, ended: bool, cut: bool = False
    ) -> Delta | None:
        """The text of `part` and of earlier ones that may be sent now; None without any.

        `ended`: this is the last part. `cut`: the answer did not end by itself.
        """
        if self.reader is None:
            return Delta(self.id, *part, logprobs) if part.text or part.tokens else None
        self._origins += part.origins
        pieces = self.reader.push(part.text)
        if ended:
            pieces += self.reader.finish(cut=cut)
        for piece in pieces:
            self._written[piece.kind] += len(piece.raw)
        origins = [
            origin
            for piece in pieces
            for origin in self._came(len(piece.raw))
            if piece.kind == "content"
        ]
        text, reasoning = _of(pieces, "content"), _of(pieces, "reasoning")
        calls = [*self._called(pieces)]
        if not (text or reasoning or calls or part.tokens):
            return None
        return Delta(self.id, text, part.tokens, origins, logprobs, reasoning, calls)

    @property
    def thought_share(self) -> float:
        """The share of the answer's characters that are thoughts."""
        return self._written["reasoning"] / max(1, self._written.total())

    def _came(self, chars: int) -> list[tuple[int, str]]:
        """The sources of the next `chars` characters of the answer."""
        found = []
        while chars:
            length, source = self._origins.popleft()
            if length > chars:
                self._origins.appendleft((length - chars, source))
            found.append((min(length, chars), source))
            chars -= min(length, chars)
        return found

    def _called(self, pieces: Iterable[Piece]) -> Iterator[CallDelta]:
        """The calls in `pieces`, each with its arguments behind its name."""
        for piece in pieces:
            if piece.kind == "call":
                yield CallDelta(self.calls, self.call_id(), piece.text)
                self.calls += 1
            elif piece.kind == "arguments":
                yield CallDelta(self.calls - 1, arguments=piece.text)


def _of(pieces: Iterable[Piece], kind: str) -> str:
    return "".join(piece.text for piece in pieces if piece.kind == kind)
