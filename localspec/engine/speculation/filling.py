"""Drafters that add nodes where a forward has rows anyway, and hear what the target says there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol, cast

from localspec.control import trees
from localspec.engine.block_max import BlockMax
from localspec.types import Draft, DraftSession, Token


class TargetGuess(NamedTuple):
    """The target's likeliest token for a place, the text's next one being 0, and what it follows.

    That is a node which did not become text, and the token before it.
    """

    place: int
    before: Token
    node: Token
    token: Token


class Filling(DraftSession, Protocol):
    """A drafter's memory of a request that can add nodes where a forward has rows to spare."""

    def fill(self, prefix: Sequence[Token], count: int) -> Draft:
        """A chain of at most so many nodes behind the text and `prefix`."""

    def see(self, rejected: Iterable[TargetGuess]) -> None:
        """Hear what the target says behind nodes that did not become text. Before `commit`."""


def filling(opened: Mapping[str, DraftSession]) -> tuple[str, Filling] | None:
    """The drafter of a request that fills rows, and its name. By the attribute, as for `watch`."""
    for name, each in opened.items():
        if hasattr(each, "fill"):
            return name, cast("Filling", each)
    return None


def filled(draft: Draft, opened: Filling, count: int) -> Draft:
    """A draft with so many nodes more behind the end of its trunk."""
    trunk = draft.trunk()
    return trees.grafted(draft, trunk.then(opened.fill(trunk.tokens, count)))


def rejected(
    draft: Draft, accepted: Sequence[int], last: Token, rows: Sequence[BlockMax]
) -> Iterator[TargetGuess]:
    """Words of the target behind rejected nodes, by rows behind the `last` token and each node."""
    kept = {*accepted}
    for node, depth in enumerate(trees.depths(draft.parents)):
        if node not in kept:
            parent = draft.parents[node]
            before = draft.tokens[parent] if parent >= 0 else last
            yield TargetGuess(depth + 1, before, draft.tokens[node], rows[node + 1].argmax())
