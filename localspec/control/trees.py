"""Drafts as trees: the depth and survival of nodes, and their order. Pure.

A draft's trunk follows first children. A chain is a tree too and has no case of its own.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Sequence

from localspec.types import Draft, Signal, Token


def depths(parents: Sequence[int]) -> list[int]:
    """The number of ancestors of each node."""
    found: list[int] = []
    for parent in parents:
        found.append(1 + found[parent] if parent >= 0 else 0)
    return found


def path(draft: Draft, tokens: Sequence[Token]) -> list[int]:
    """The nodes of the path from the root on that agrees with these tokens."""
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
    """The draft with the part of a chain added that departs from it."""
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
    """The probability that each node is accepted together with all its ancestors.

    A child that another source proposes beside the first one can be right only where the first is
    wrong. Its chance is computed as if the two were independent, given that not both are right. A
    drafter's own second choices are calibrated as such and need no correction.
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
    """The draft with the chains grafted in, the likeliest nodes first.

    A cut from the end then drops the nodes of least joint probability: EAGLE-2's reranking (Li et
    al., arXiv 2406.16858). A draft without branches keeps its order.
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
