"""Answers that must be JSON: which tokens may come next, by llguidance over the file's vocabulary.

The schema comes from outside, so its size and depth are bounded before it is compiled, and the
compiler's work is bounded by fuel, not by a clock: the same schema always passes or always fails.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence
from typing import Any

import llguidance
import numpy as np
from numpy.typing import NDArray

from localspec.errors import RequestError
from localspec.types import Token

MAX_SCHEMA_BYTES = 64 * 1024
MAX_SCHEMA_DEPTH = 64
_MAX_NODES = 20_000

# Without it a model that is unsure writes blanks until its tokens are used up.
_WHITESPACE = r"[\x20\x0A\x0D\x09]{1,64}"

_LIMITS = llguidance.LLParserLimits(
    initial_lexer_fuel=1_000_000,  # about 20 ms
    step_lexer_fuel=200_000,  # about 15 ms a token
    step_max_items=50_000,
    max_lexer_states=50_000,  # about 100 MB
    max_grammar_size=100_000,
    verbose_errors=False,
)


class Grammars:
    """Compiles constraints for one vocabulary. Model lifetime; the engine's thread.

    Args:
        n_vocab: Number of tokens.
        piece: The bytes of a token; b"" for special ones, which no grammar can ask for.
        eog: The tokens that end a generation; a finished answer allows nothing else.
    """

    def __init__(
        self, n_vocab: int, piece: Callable[[Token], bytes], eog: Collection[Token]
    ) -> None:
        self._n_vocab = n_vocab
        self._piece = piece
        self._eog = sorted(eog)
        self._tokenizer: llguidance.LLTokenizer | None = None

    def constraint(self, response_format: dict[str, Any] | None) -> JsonConstraint | None:
        """The constraint that OpenAI's `response_format` asks for; None for plain text.

        Raises RequestError for a type or a schema that cannot be served.
        """
        if response_format is None or response_format.get("type") == "text":
            return None
        grammar = _grammar(_schema(response_format))
        if not self._eog:
            raise _refused("this model has no token that ends an answer")
        matcher = llguidance.LLMatcher(self._vocabulary(), grammar, log_level=0, limits=_LIMITS)
        if matcher.is_error():
            raise _refused(matcher.get_error().partition("\n<state>")[0][:300])
        return JsonConstraint(matcher, self._n_vocab, self._eog)

    def _vocabulary(self) -> llguidance.LLTokenizer:
        """Built at the first use: it takes about a second for a large vocabulary."""
        if self._tokenizer is None:
            self._tokenizer = llguidance.LLTokenizer(
                llguidance.TokenizerWrapper(_Vocabulary(self._n_vocab, self._piece, self._eog)),
                n_vocab=self._n_vocab,
                eos_token=list(self._eog),
            )
        return self._tokenizer


class JsonConstraint:
    """One answer's grammar; implements `types.Constraint`. Request lifetime.

    The matcher stands after the committed text plus the path asked for last, so that walking down
    a draft costs one token each.
    """

    def __init__(self, matcher: llguidance.LLMatcher, n_vocab: int, eog: Sequence[Token]) -> None:
        self._matcher = matcher
        self._n_vocab = n_vocab
        self._path: list[Token] = []
        self._end_only = np.zeros(n_vocab, dtype=np.bool_)
        self._end_only[list(eog)] = True

    def mask(self, path: Sequence[Token]) -> NDArray[np.bool_]:
        """Allowed tokens (n_vocab,) after the committed text plus `path`.

        After a path that the grammar does not allow, and where the grammar gives up, only the end
        is allowed: a law must not be empty.
        """
        if not self._walk(path):
            return self._end_only
        bits = np.frombuffer(self._matcher.compute_bitmask(), dtype=np.uint8)
        if self._matcher.is_error():
            return self._end_only
        allowed = np.unpackbits(bits, count=self._n_vocab, bitorder="little").view(np.bool_)
        return allowed if allowed.any() else self._end_only

    def commit(self, tokens: Sequence[Token]) -> None:
        """Advance over tokens that became part of the text."""
        self._walk(tokens)
        self._path = []

    def _walk(self, path: Sequence[Token]) -> bool:
        """Stand after `path`, moving as little as possible; False where the grammar forbids it."""
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
        return True


class _Vocabulary:
    """The vocabulary in the shape that llguidance asks for."""

    def __init__(self, n_vocab: int, piece: Callable[[Token], bytes], eog: Sequence[Token]) -> None:
        self.tokens = [piece(token) for token in range(n_vocab)]
        self.eos_token_id = eog[0]
        self.bos_token_id = None
        self.special_token_ids: list[Token] = []
        self._of_byte = {piece: token for token, piece in enumerate(self.tokens) if len(piece) == 1}

    def __call__(self, text: bytes) -> list[Token]:
        """Any tokens that spell `text`; llguidance asks for them to report forced text."""
        return [self._of_byte[bytes([b])] for b in text if bytes([b]) in self._of_byte]


def _schema(response_format: dict[str, Any]) -> dict[str, Any]:
    """The JSON schema that a `response_format` stands for."""
    match response_format:
        case {"type": "json_object", "schema": dict(schema)}:
            return schema
        case {"type": "json_object"}:
            return {"type": "object"}
        case {"type": "json_schema", "json_schema": {"schema": dict(schema)}}:
            return schema
        case {"type": "json_schema"}:
            raise _refused("json_schema.schema is missing or is not an object")
        case _:
            raise RequestError(
                f"response_format.type {str(response_format.get('type'))[:40]!r} is not known.",
                fix='Choose "text", "json_object" or "json_schema".',
                param="response_format",
            )


def _grammar(schema: dict[str, Any]) -> str:
    """The schema in llguidance's form, after bounding it. Raises RequestError."""
    pending: list[tuple[Any, int]] = [(schema, 1)]
    nodes = 0
    while pending:
        value, depth = pending.pop()
        nodes += 1
        if depth > MAX_SCHEMA_DEPTH:
            raise _refused(f"it is nested more than {MAX_SCHEMA_DEPTH} deep")
        if isinstance(value, dict):
            pending += ((inner, depth + 1) for inner in value.values())
        elif isinstance(value, list):
            pending += ((inner, depth + 1) for inner in value)
    try:
        text = json.dumps(schema, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise _refused(f"it is not JSON: {error}") from error
    if len(text) > MAX_SCHEMA_BYTES or nodes > _MAX_NODES:
        raise _refused(f"it has {len(text)} bytes, {MAX_SCHEMA_BYTES} are allowed")
    try:
        return llguidance.LLMatcher.grammar_from_json_schema(
            text, overrides={"whitespace_pattern": _WHITESPACE}
        )
    except ValueError as error:
        raise _refused(str(error)[:300]) from error


def _refused(why: str) -> RequestError:
    return RequestError(
        f"The JSON schema of response_format cannot be used: {why}.",
        fix='Simplify the schema, or ask for {"type": "json_object"}.',
        param="response_format",
    )
