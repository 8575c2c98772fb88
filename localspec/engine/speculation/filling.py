"""Drafters that add nodes in rows that are paid anyway, and learn what the target says there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol, cast

from localspec.control import trees
from localspec.engine.block_max import BlockMax
from localspec.types import Draft, DraftSession, Token


class TargetGuess(NamedTuple):
    """The target's likeliest `token` after a rejected `node`.

    `before` is the token before the node. `place` is where `token` would stand, counted from 0 for
    the text's next token.
    """

    place: int
    before: Token
    node: Token
    token: Token


class Filling(DraftSession, Protocol):
    """A drafter's memory of a request that can add nodes where a forward has rows to spare."""

    def fill(self, prefix: Sequence[Token], count: int) -> Draft:
        """A chain of at most `count` nodes after the text and `prefix`."""

    def see(self, rejected: Iterable[TargetGuess]) -> None:
        """Take the target's tokens after rejected nodes. Called before `commit`."""


def filling(opened: Mapping[str, DraftSession]) -> tuple[str, Filling] | None:
    """The name and session of the drafter that fills rows; found by attribute, as for `watch`."""
    for name, each in opened.items():
        if hasattr(each, "fill"):
            return name, cast("Filling", each)
    return None


def filled(draft: Draft, opened: Filling, count: int) -> Draft:
    """A draft with up to `count` more nodes after the end of its trunk."""
    trunk = draft.trunk()
    return trees.grafted(draft, trunk.then(opened.fill(trunk.tokens, count)))


def rejected(
    draft: Draft, accepted: Sequence[int], last: Token, rows: Sequence[BlockMax]
) -> Iterator[TargetGuess]:
    """The target's tokens after rejected nodes; `rows` follow the `last` token and each node."""
    kept = {*accepted}
    for node, depth in enumerate(trees.depths(draft.parents)):
        if node not in kept:
            parent = draft.parents[node]
            before = draft.tokens[parent] if parent >= 0 else last
            yield TargetGuess(depth + 1, before, draft.tokens[node], rows[node + 1].argmax())
