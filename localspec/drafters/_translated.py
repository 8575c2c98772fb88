"""A draft model with another tokenizer reads the text in its own tokens, and drafts the target's.

The text is tokenized by the draft's tokenizer. Its last tokens may change with the text that
follows; the draft's KV is kept as far as they have not. What the draft says is tokenized by the
target's tokenizer: where the draft needs two tokens for a word that is one of the target's, that
one is the node. A token that both vocabularies have is drawn with the target's own noise, as in
token-level intersection (Timor et al., 2025, "Accelerating LLM Inference with Lossless Speculative
Decoding Algorithms for Heterogeneous Vocabularies"). A token that only the draft has is taken where
it is the likeliest.
"""

from __future__ import annotations

import codecs
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from operator import attrgetter
from typing import TYPE_CHECKING, cast

import numpy as np

from localspec.drafters.model import NAME, ModelDrafter, ModelSession
from localspec.forward_counts import ForwardCounts
from localspec.types import (
    Backend,
    Constraint,
    Draft,
    DraftRequest,
    DraftSession,
    Floats,
    Probs,
    Proposing,
    Signal,
    Token,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

COUPLED_ONLY = (
    "The draft model has another tokenizer than its target: coupled noise verifies it alone."
)
"""The message where rejection sampling is asked for."""

_OPEN_BYTES = 192
"""Text at the end that is tokenized again with what follows: words are shorter."""
_LONGEST_BYTES = 2048
"""A text of so many bytes is cut even where it has no blank."""
_PART_TOKENS = 64
_ABSENT = -1e4
"""The score of a token that the draft lacks: no temperature makes it likely."""
_TAIL_TOKENS = 8
"""Last tokens of the text that are tokenized again with the draft: a word seldom has more."""


@dataclass(frozen=True, slots=True)
class Translation:
    """Two vocabularies. The draft has `shared` of the target's tokens too.

    `target_ids` and `draft_ids` are these tokens, aligned. Of the draft, `ends` are the tokens
    after which nothing follows, and `begin` those that each text begins with. `tokenize` gives its
    tokens of a text in the middle of another one, `control` its control token of a name,
    `draft_piece` the bytes of a token. Of the target, `write` gives the tokens of a text, `piece`
    the bytes of a token, `spelled` the name of a control token.
    """

    n_target: int
    target_ids: NDArray[np.int64]
    draft_ids: NDArray[np.int64]
    ends: frozenset[Token]
    begin: tuple[Token, ...]
    piece: Callable[[Token], bytes]
    spelled: Callable[[Token], bytes]
    tokenize: Callable[[str], Sequence[Token]]
    control: Callable[[str], Token | None]
    to_draft: Mapping[Token, Token]
    to_target: Mapping[Token, Token]
    draft_piece: Callable[[Token], bytes]
    write: Callable[[str], Sequence[Token]]

    @property
    def shared(self) -> int:
        """Tokens that both have."""
        return len(self.target_ids)


class _Rewriting:
    """A text of the target in the draft's tokens. `tokens` from `_stable` on may still change."""

    def __init__(self, translation: Translation) -> None:
        self._translation = translation
        self.tokens: list[Token] = [*translation.begin]
        self.whole = True
        self._stable = len(self.tokens)
        self._open = bytearray()

    def extend(self, tokens: Sequence[Token]) -> int:
        """Append tokens of the target; the place from which on the draft's tokens have changed."""
        first = len(self.tokens)
        for start in range(0, len(tokens), _PART_TOKENS):
            first = min(first, self._stable)
            for token in tokens[start : start + _PART_TOKENS]:
                piece = self._translation.piece(token)
                self._open += piece
                if not piece:
                    self._write_control(token)
            self._write()
            self._settle()
        return first

    def _write_control(self, token: Token) -> None:
        """Append a control token: the draft's of the same name, or else its name as text."""
        self._write()
        self._stable = len(self.tokens)
        self._open.clear()
        name = self._translation.spelled(token).decode("utf-8", "replace")
        same = self._translation.control(name) if name else None
        self.tokens += [same] if same is not None else self._translation.tokenize(name)
        self._stable = len(self.tokens)

    def _write(self) -> None:
        """Tokenize the open text, without a last character that is not whole yet."""
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        text = decoder.decode(bytes(self._open))
        self.whole = not decoder.getstate()[0]
        self.tokens[self._stable :] = self._translation.tokenize(text) if text else ()

    def _settle(self) -> None:
        """Leave only the last words open: those before a blank do not change any more."""
        if len(self._open) < 2 * _OPEN_BYTES:
            return
        cut = self._open.rfind(b" ", 1, len(self._open) - _OPEN_BYTES)
        while cut > 0 and not chr(self._open[cut - 1]).isalnum():  # a run of blanks is one token
            cut = self._open.rfind(b" ", 1, cut)
        if cut <= 0 and len(self._open) < _LONGEST_BYTES:
            return
        if cut <= 0:
            cut = len(self._open) - _OPEN_BYTES
            while cut > 1 and self._open[cut] & 0xC0 == 0x80:  # noqa: PLR2004 - inside a character
                cut -= 1
        rest = self._open[cut:]
        del self._open[cut:]
        self._write()
        self._stable = len(self.tokens)
        self._open = rest
        self._write()


class _Sampler:
    """The target's sampler, which draws from the scores of a draft with other tokens.

    `said` are the draft's tokens that were drawn behind `_prefix`. A last token that the draft
    lacks, because a grammar demands it for example, is in `outside`, as a token of the target.
    """

    def __init__(self, translation: Translation, sampler: Proposing, text: Sequence[Token]) -> None:
        self._translation = translation
        self._sampler = sampler
        self._text = text
        self.greedy = sampler.greedy
        self.constraint: Constraint | None = sampler.constraint
        self._prefix: Sequence[Token] = ()
        self.said: list[Token] = []
        self.outside: Token | None = None
        self._stop = next(iter(translation.ends), 0)

    @property
    def looks_back(self) -> int:
        """None of the draft's tokens are looked at."""
        return 0

    def begin(self, prefix: Sequence[Token]) -> None:
        """Draft behind these nodes of another source, in the target's tokens."""
        self._prefix, self.said, self.outside = prefix, [], None

    def propose(
        self, logits: Floats, recent: Sequence[Token], path: Sequence[Token], position: int
    ) -> tuple[Token, Probs | None]:
        """The draft's next token: the likeliest if the target lacks that, else a drawn one."""
        del recent, path, position  # of the text in the draft's tokens
        known, text = self._translation, self._text
        token = int(logits.argmax())
        if token in known.to_target or not known.draft_piece(token):
            scores = np.full(known.n_target, _ABSENT, np.float32)
            inside = known.draft_ids < len(logits)
            scores[known.target_ids[inside]] = logits[known.draft_ids[inside]]
            np.maximum(scores, _ABSENT, out=scores)  # those not computed are minus infinity
            before = [*self._prefix, *(token for token, _ in self.written(self.said))]
            back = self._sampler.looks_back
            drawn, _ = self._sampler.propose(
                scores, text[-back:] if back else [], before, len(text) + len(before)
            )
            if drawn not in known.to_draft:
                self.outside = drawn
            token = known.to_draft.get(drawn, self._stop)
        self.said.append(token)
        return token, None

    def written(self, said: Sequence[Token]) -> list[tuple[Token, slice]]:
        """The target's tokens of what was said, each with the slice of `said` it is made of."""
        known = self._translation
        ended = bool(said) and said[-1] in known.ends
        pieces = [known.draft_piece(token) for token in said[: len(said) - ended]]
        ends = [*accumulate(map(len, pieces))]
        nodes: list[tuple[Token, slice]] = []
        at = 0
        for token in self._behind(b"".join(pieces)):
            first = min(bisect_right(ends, at), len(ends) - 1)
            at += len(known.piece(token))
            nodes.append((token, slice(first, max(first, bisect_left(ends, at)) + 1)))
        last = self.outside
        if last is None and ended:
            last = known.to_target.get(said[-1])
        if last is not None:
            nodes.append((last, slice(len(said) - 1, len(said))))
        return nodes

    def _behind(self, said: bytes) -> Sequence[Token]:
        """The target's tokens of these bytes behind the text and the prefix.

        They are tokenized together with the tokens before them, as many as this leaves unchanged.
        """
        known = self._translation
        tail = [*self._text[-_TAIL_TOKENS:], *self._prefix][-_TAIL_TOKENS:] if said else []
        for start in range(len(tail) + bool(said)):
            pieces = [known.piece(token) for token in tail[start:]]
            if not all(pieces):
                continue  # a control token: nothing is tokenized across it
            tokens = known.write(_whole(b"".join(pieces) + said))
            if [*tokens[: len(pieces)]] == tail[start:]:
                return tokens[len(pieces) :]
        return ()


def _whole(text: bytes) -> str:
    """The text without a last character that is not whole yet."""
    return codecs.getincrementaldecoder("utf-8")("replace").decode(text)


@dataclass(slots=True)
class TranslatedSession:
    """One request's text in both vocabularies."""

    inner: ModelSession
    sampler: _Sampler
    tokens: list[Token]
    text: _Rewriting

    @property
    def pending(self) -> int:
        """The draft's tokens to read before the next draft."""
        return self.inner.pending

    def commit(self, tokens: Sequence[Token]) -> None:
        """Extend the text."""
        self.tokens += tokens
        first = self.text.extend(tokens)
        self.inner.rewrite(first, self.text.tokens[first:])

    def close(self) -> None:
        """The slot's cells serve the next request that begins the same."""
        self.inner.close()


@dataclass(slots=True)
class TranslatedDrafter:
    """A `Drafter` around a draft model that has other tokens."""

    inner: ModelDrafter
    translation: Translation
    name: str = NAME
    free: bool = False
    beside: bool = True
    coupled_only: str = COUPLED_ONLY
    _unused: Signal = field(default_factory=lambda: Signal(NAME, 0, 0.5))

    @property
    def forwards(self) -> ForwardCounts:
        """Counts of the draft model's forwards."""
        return self.inner.forwards

    def open(
        self,
        slot: int,
        prompt: Sequence[Token],
        sampler: Proposing,
        prediction: Sequence[Token] = (),
    ) -> TranslatedSession:
        """Begin a request: its prompt is written in the draft's tokens; nothing is decoded."""
        tokens = list(prompt)
        text = _Rewriting(self.translation)
        text.extend(tokens)
        own = _Sampler(self.translation, sampler, tokens)
        return TranslatedSession(
            self.inner.open(slot, text.tokens, own, prediction), own, tokens, text
        )

    def read(self, session: DraftSession, most: int) -> int:
        """Read at most `most` of the draft's pending tokens, not the last; return their number."""
        return self.inner.read(cast("TranslatedSession", session).inner, most)

    def propose(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        """The draft model's chains in the target's tokens; none where a character is not whole."""
        asked = [self._asked(request) for request in requests]
        inner = iter(self.inner.propose([each for each in asked if each is not None]))
        return [
            Draft() if each is None else self._said(request, next(inner))
            for request, each in zip(requests, asked, strict=True)
        ]

    def close(self) -> None:
        """Free the draft model's context."""
        self.inner.close()

    def _asked(self, request: DraftRequest) -> DraftRequest | None:
        """The request in the draft's tokens; None where the text ends inside of a character."""
        session = cast("TranslatedSession", request.session)
        prefix = self._prefix(request.prefix.tokens)
        if not session.text.whole or prefix is None:
            return None
        session.sampler.begin(request.prefix.tokens)

        def guess(nodes: Draft) -> list[Token]:
            """The draft's tokens of what cheaper sources expect."""
            found = []
            for token in request.guess(self._said(request, nodes)):
                if (mine := self.translation.to_draft.get(token)) is None:
                    break
                found.append(mine)
            return found

        before = Draft.chain(prefix, [self._unused] * len(prefix))
        return replace(request, session=session.inner, prefix=before, guess=guess, skip=0)

    def _prefix(self, tokens: Sequence[Token]) -> list[Token] | None:
        """Another source's nodes in the draft's tokens; None where they end inside a character."""
        if not tokens:
            return []
        text = _Rewriting(replace(self.translation, begin=()))
        text.extend(tokens)
        return text.tokens if text.whole else None

    def _said(self, request: DraftRequest, draft: Draft) -> Draft:
        """The draft in the target's tokens, each with the least sure signal of its parts."""
        sampler = cast("TranslatedSession", request.session).sampler
        tokens, signals = list[Token](), list[Signal]()
        for token, parts in sampler.written(sampler.said[: len(draft)]):
            tokens.append(token)
            signals.append(min(draft.signals[parts], key=attrgetter("prior")))
        return Draft.chain(tokens, signals).head(request.budget)


def build(*, context: Backend, translation: Translation) -> TranslatedDrafter:
    """The drafter on an open context with other tokens, which it owns from now on."""
    inner = ModelDrafter(context, context.n_vocab, translation.ends)
    return TranslatedDrafter(inner, translation)
