"""Keeps answers within a grammar: llguidance computes the tokens that may come next."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Sequence
from functools import partial

import llguidance
import numpy as np
from numpy.typing import NDArray

from localspec.errors import GrammarError
from localspec.text import grammar
from localspec.text.spelling import spelled_by
from localspec.types import Token

_KEPT = 8
"""Opened grammars that are kept: an agent sends the same functions every turn, and a few other
clients may be active. A grammar of forty functions takes a second or two of one core to open, and
some 25 MB."""


class Vocabulary:
    """The tokens of one model as grammars see them. Model lifetime; used by any thread.

    The tree that grammars walk is built when one first needs it, or by `prepare`. For a large
    vocabulary that takes 0.4 s, during which no other thread runs Python.

    Args:
        pieces: The bytes of each token; b"" for special ones, which a grammar names by their ids.
        eog: The tokens that end a generation; a finished answer allows nothing else.
        tokenize: Tokenizes forced text as the model does. Without it, one token for each byte.
    """

    def __init__(
        self,
        pieces: Sequence[bytes],
        eog: Collection[Token],
        tokenize: Callable[[str], list[Token]] | None = None,
    ) -> None:
        self.n_vocab = len(pieces)
        self.eog = sorted(eog)
        self.longest_bytes = max(map(len, pieces))
        """The most bytes that one token writes."""
        self._kept: OrderedDict[str, llguidance.LLMatcher] = OrderedDict()
        self._lock, self._building = threading.Lock(), threading.Lock()
        self._pieces, self._tokenize = pieces, tokenize
        self._tokenizer: llguidance.LLTokenizer | None = None

    def prepare(self) -> bool:
        """Build what the first grammar would wait for. Whether that was still to be done."""
        with self._building:
            if self._tokenizer is not None or not self.eog:
                return False
            self._tokenizer = llguidance.LLTokenizer(
                llguidance.TokenizerWrapper(_Pieces(self._pieces, self.eog, self._tokenize)),
                n_vocab=self.n_vocab,
                eos_token=self.eog,
            )
            return True

    def constraint(self, compiled: str) -> GrammarConstraint:
        """The constraint of one answer, by a grammar that `grammar.compiled` accepted.

        Raises RequestError where the grammar allows nothing with these tokens, or the model has no
        token that ends an answer.
        """
        self.prepare()
        if self._tokenizer is None:
            raise grammar.refused("this model has no token that ends an answer")
        another = partial(self._open, self._tokenizer, compiled)
        matcher = self._copy(compiled)
        if matcher is None or matcher.is_error():
            matcher = another()
        return GrammarConstraint(matcher, another, self.n_vocab, self.eog)

    def _copy(self, compiled: str) -> llguidance.LLMatcher | None:
        """A copy of the matcher that is kept for this grammar; None if there is none.

        Copies share one automaton. If it has grown too large, the copy has an error.
        """
        with self._lock:
            if (kept := self._kept.get(compiled)) is None:
                return None
            self._kept.move_to_end(compiled)
            copy = kept.deep_copy()
        copy.compute_bitmask()
        return copy

    def _open(self, tokenizer: llguidance.LLTokenizer, compiled: str) -> llguidance.LLMatcher:
        """A matcher with an automaton of its own, which is kept for the next answers.

        Raises RequestError.
        """
        first = llguidance.LLMatcher(tokenizer, compiled, log_level=0, limits=grammar.LIMITS)
        if not first.is_error():
            first.compute_bitmask()
        if first.is_error():
            raise grammar.refused(grammar.reason(first.get_error()))
        with self._lock:
            self._kept[compiled] = first
            self._kept.move_to_end(compiled)
            if len(self._kept) > _KEPT:
                self._kept.popitem(last=False)
        return first.deep_copy()


class GrammarConstraint:
    """One answer's grammar; implements `types.Constraint`. Request lifetime.

    The matcher stands after the committed text plus the last requested path, so that walking down a
    draft costs one token for each node.
    """

    def __init__(
        self,
        matcher: llguidance.LLMatcher,
        another: Callable[[], llguidance.LLMatcher],
        n_vocab: int,
        eog: Sequence[Token],
    ) -> None:
        self._matcher, self._new_matcher = matcher, another
        self._n_vocab = n_vocab
        self._committed: list[Token] = []
        self._path: list[Token] = []
        self._end_only = np.zeros(n_vocab, dtype=np.bool_)
        self._end_only[list(eog)] = True

    def mask(self, path: Sequence[Token]) -> NDArray[np.bool_]:
        """Allowed tokens (n_vocab,) after the committed text plus `path`.

        A mask must not be empty: after a path that the grammar forbids, and where the grammar gives
        up, only end tokens are allowed. `check_end` tells whether such an end is valid.
        """
        walked = self._walk(path)
        mask = self._matcher.compute_bitmask()
        if self._matcher.is_error():  # perhaps because of a rejected path
            walked = self._walk(path)
            mask = self._matcher.compute_bitmask()
        if not walked or self._matcher.is_error():
            return self._end_only
        bits = np.frombuffer(mask, dtype=np.uint8)
        allowed = np.unpackbits(bits, count=self._n_vocab, bitorder="little").view(np.bool_)
        return allowed if allowed.any() else self._end_only

    def forced(self, path: Sequence[Token]) -> Sequence[Token]:
        """The only text that may follow `path`, in the tokens that the model would use for it.

        The last tokens are left out where the text behind them might change how they are tokenized.
        """
        tokens = self._matcher.compute_ff_tokens() if self._walk(path) else []
        return () if self._matcher.is_error() else tokens

    def commit(self, tokens: Sequence[Token]) -> None:
        """Advance over tokens that became part of the text."""
        self._walk(tokens)
        self._committed += tokens
        self._path = []

    def check_end(self, tokens: Sequence[Token]) -> None:
        """Check that the answer may end after its last `tokens`, which are not committed yet.

        Raises GrammarError where the grammar gave up before its end.
        """
        self.mask(tokens)
        matcher = self._matcher
        if not matcher.is_error() and self._path == list(tokens) and matcher.is_accepting():
            return
        why = grammar.reason(matcher.get_error()) or "it allows nothing more"
        raise GrammarError(
            f"The grammar of response_format gave up in the middle of the answer: {why}.",
            fix='Simplify it, or ask for {"type": "json_object"}.',
            param="response_format",
        )

    def _walk(self, path: Sequence[Token]) -> bool:
        """Move the matcher from its last path to `path`; False where the grammar forbids it."""
        if self._matcher.is_error():  # an error is permanent
            self._matcher = self._new_matcher()
            self._matcher.consume_tokens(self._committed)
            self._path = []
        shared = 0
        for ours, theirs in zip(self._path, path, strict=False):
            if ours != theirs:
                break
            shared += 1
        if shared < len(self._path):
            self._matcher.rollback(len(self._path) - shared)
            del self._path[shared:]
        rest = list(path[shared:])
        if self._matcher.is_error() or self._matcher.validate_tokens(rest) < len(rest):
            return False
        self._matcher.consume_tokens(rest)
        self._path += rest
        return not self._matcher.is_error()


class _Pieces:
    """The vocabulary in the form that llguidance takes. Special tokens are named by their ids."""

    bos_token_id = None

    def __init__(
        self,
        pieces: Sequence[bytes],
        eog: Sequence[Token],
        tokenize: Callable[[str], list[Token]] | None,
    ) -> None:
        self.tokens = [piece or b"<%d>" % token for token, piece in enumerate(pieces)]
        self.eos_token_id = eog[0]
        self.special_token_ids = [token for token, piece in enumerate(pieces) if not piece]
        self._tokenize = tokenize
        self._of_byte = {piece: token for token, piece in enumerate(pieces) if len(piece) == 1}

    def __call__(self, text: bytes | str) -> list[Token]:
        """Tokens that spell `text`: the model's own if they write just it, else one per byte."""
        data = text.encode() if isinstance(text, str) else text
        if self._tokenize is not None:
            whole = data.decode("utf-8", "ignore")
            if (found := spelled_by(whole, self._tokenize, self.tokens.__getitem__)) is not None:
                return [*found]
        return [self._of_byte[bytes([b])] for b in data if bytes([b]) in self._of_byte]
