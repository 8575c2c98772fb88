"""Compares two vocabularies, so that a draft model can write in another one's tokens."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np

from localspec.catalog import pairing
from localspec.drafters._translated import COUPLED_ONLY, Translation
from localspec.types import Token, VerificationRule
from localspec.worker import planning

_MARK = "\n"
"""Put before a text whose tokenizer would otherwise put a blank before it."""
LEAST_SHARED = 64
"""The fewest tokens in common, about the letters and digits of ASCII: fewer say hardly a word."""


class Vocabulary(Protocol):
    """A model's tokens; `engine.llama.model.Model`."""

    n_vocab: int
    bos: Token | None
    eos: Token | None
    eog: frozenset[Token]

    @property
    def adds_bos(self) -> bool:
        """Whether each text begins with `bos`."""

    def piece(self, token: Token) -> bytes:
        """The bytes that a token writes; control tokens write nothing."""

    def spelled(self, token: Token) -> bytes:
        """The bytes that a token writes; of a control token, its name."""

    def plain_tokens(self, text: str) -> list[Token]:
        """The tokens of a text; special tokens in it are read as plain text."""

    def control(self, text: str) -> Token | None:
        """The control token of that name; None without one."""


def needed(
    target: Vocabulary, draft: Vocabulary, files: Sequence[Path], verify: VerificationRule
) -> tuple[Translation | None, str]:
    """The translation that a pair needs, None with one vocabulary; and why none is possible.

    The headers in `files` decide about vocabularies that differ in length or in how texts end.
    Raises BadGGUF.
    """
    headers = [planning.header_of(file) for file in files]
    if other := pairing.other_target(*headers):
        return None, other
    difference = _difference(target, draft)
    if not difference and _alike(target, draft):
        return None, ""
    verdict = pairing.check(*headers)
    if not verdict.by_text:
        return None, f"The draft does not share the target's vocabulary: {difference}." * bool(
            difference
        )
    if verify == "rejection":
        return None, COUPLED_ONLY
    found = between(target, draft)
    if found.shared < LEAST_SHARED:
        return None, f"The draft has {found.shared} tokens of the target: too few to write with."
    return found, ""


def _alike(target: Vocabulary, draft: Vocabulary) -> bool:
    return (target.n_vocab, target.bos, target.eos) == (draft.n_vocab, draft.bos, draft.eos)


def _difference(target: Vocabulary, draft: Vocabulary) -> str:
    """The first token found that the two models write differently; empty when there is none.

    Only a sample is compared: the supervisor has compared the headers, and this guards against
    files that have changed since.
    """
    both = min(target.n_vocab, draft.n_vocab)
    for token in (*range(min(256, both)), *range(256, both, 97)):
        if target.piece(token) != draft.piece(token):
            return f"token {token} is {target.piece(token)!r} there and {draft.piece(token)!r} here"
    return ""


def between(target: Vocabulary, draft: Vocabulary) -> Translation:
    """The translation of a target's text for a draft. Half a second for large vocabularies."""
    written = {piece: token for token in range(draft.n_vocab) if (piece := draft.piece(token))}
    pairs = {
        token: written[piece]
        for piece, token in {target.piece(token): token for token in range(target.n_vocab)}.items()
        if piece in written
    }
    for token in sorted(target.eog):
        same = draft.control(target.spelled(token).decode("utf-8", "replace"))
        if same is not None and same not in pairs.values():
            pairs[token] = same
    if target.eos is not None and draft.eos is not None and draft.eos not in pairs.values():
        pairs.setdefault(target.eos, draft.eos)
    begin = (draft.bos,) if draft.adds_bos and draft.bos is not None else ()
    return Translation(
        n_target=target.n_vocab,
        target_ids=np.asarray([*pairs], np.int64),
        draft_ids=np.asarray([*pairs.values()], np.int64),
        ends=draft.eog | frozenset(pairs[token] for token in target.eog if token in pairs),
        begin=begin,
        piece=target.piece,
        spelled=target.spelled,
        tokenize=_middle(draft),
        control=draft.control,
        to_draft=pairs,
        to_target={theirs: token for token, theirs in pairs.items()},
        draft_piece=draft.piece,
        write=_middle(target),
    )


def _middle(model: Vocabulary) -> Callable[[str], Sequence[Token]]:
    """A function that tokenizes a text inside another one, without a blank before it."""
    mark = model.plain_tokens(_MARK)
    if b"".join(map(model.piece, model.plain_tokens("x"))) == b"x":
        return model.plain_tokens

    def tokenize(text: str) -> Sequence[Token]:
        tokens = model.plain_tokens(_MARK + text)
        return tokens[len(mark) :] if tokens[: len(mark)] == mark else model.plain_tokens(text)

    return tokenize
