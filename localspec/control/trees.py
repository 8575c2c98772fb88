"""Drafts as trees: how deep and how likely nodes are, which of them come first. Pure.

Its trunk follows first children. A chain is a tree too, and nothing here knows chains.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Sequence

from localspec.types import Draft, Signal, Token


def depths(parents: Sequence[int]) -> list[int]:
    """How many nodes stand before each."""
    found: list[int] = []
    for parent in parents:
        found.append(1 + found[parent] if parent >= 0 else 0)
    return found


def path(draft: Draft, tokens: Sequence[Token]) -> list[int]:
    """The nodes from the root on that say what these tokens do."""
    nodes: list[int] = []
    last, count = -1, len(tokens)
    for node, parent in enumerate(draft.parents):
        if len(nodes) == count:
            break
        if parent == last and draft.tokens[node] == tokens[len(nodes)]:
            nodes.append(node)
            last = node
    return nodes


def picked(draft: Draft, nodes: Sequence[int]) -> Draft:
    """These nodes in this order, each after its parent."""
    place = {node: at for at, node in enumerate(nodes)} | {-1: -1}
    return Draft(
        tuple(draft.tokens[node] for node in nodes),
        tuple(place[draft.parents[node]] for node in nodes),
        tuple(draft.signals[node] for node in nodes),
        tuple(draft.laws[node] for node in nodes),
    )


def grafted(draft: Draft, chain: Draft) -> Draft:
    """The draft, and what a chain says from where it departs from it."""
    at, start = -1, 0
    for token in chain.tokens:
        same = (
            node
            for node in range(at + 1, len(draft))
            if draft.parents[node] == at and draft.tokens[node] == token
        )
        if (found := next(same, None)) is None:
            break
        at, start = found, start + 1
    count, rest = len(draft), len(chain) - start
    return Draft(
        draft.tokens + chain.tokens[start:],
        draft.parents + (at,) * (rest > 0) + tuple(range(count, count + rest - 1)),
        draft.signals + chain.signals[start:],
        draft.laws + chain.laws[start:],
    )


def survival(draft: Draft, estimate: Callable[[Signal], float]) -> list[float]:
    """The probability that each node is accepted together with all that it hangs off.

    A child that another source proposes beside the first one can only be right where that is wrong:
    of what both have said by themselves, that both are right is left out. A drafter's own second
    choices are estimated as such.
    """
    found: list[float] = []
    first: dict[int, tuple[str, float]] = {}
    for parent, signal in zip(draft.parents, draft.signals, strict=True):
        chance = estimate(signal)
        source, before = first.setdefault(parent, (signal.source, chance))
        if source != signal.source:
            chance = chance * (1 - before) / (1 - chance * before)
        found.append(chance * (found[parent] if parent >= 0 else 1.0))
    return found


def grown(draft: Draft, chains: Iterable[Draft], estimate: Callable[[Signal], float]) -> Draft:
    """A draft with those chains grafted in, the likeliest nodes first.

    So what is cut from its end are the nodes of least joint probability: EAGLE-2's reranking (Li et
    al., arXiv 2406.16858). A draft that nothing parts from stays as it is.
    """
    for each in chains:
        draft = grafted(draft, each)
    if draft.trunk() is draft:
        return draft
    alive = survival(draft, estimate)
    children: dict[int, list[int]] = {}
    for node, parent in enumerate(draft.parents):
        children.setdefault(parent, []).append(node)
    order: list[int] = []
    heap = [(-alive[node], node) for node in children.get(-1, ())]
    heapq.heapify(heap)
    while heap:
        _, node = heapq.heappop(heap)
        order.append(node)
        for child in children.get(node, ()):
            heapq.heappush(heap, (-alive[child], child))
    return picked(draft, order)
