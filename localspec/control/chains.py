"""What the controller asks of a chain and of how its nodes survive. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from localspec.types import Draft


def handovers(survival: Sequence[float], ease: float) -> Iterator[int]:
    """Where a chain may be handed over: at its end, and where it is less sure than the text."""
    for nodes in range(1, len(survival)):
        if survival[nodes] < ease * survival[nodes - 1]:
            yield nodes
            break
    if survival:
        yield len(survival)


def falling(survival: Sequence[float]) -> list[float]:
    """Never rising, so that the likeliest nodes of a draft are always its first ones."""
    chances: list[float] = []
    for alive in survival:
        chances.append(min(alive, chances[-1]) if chances else alive)
    return chances


def common(chain: Draft, draft: Draft) -> int:
    """How many leading nodes the draft took over from the chain."""
    count = 0
    for mine, theirs in zip(
        zip(chain.tokens, chain.signals, strict=True),
        zip(draft.tokens, draft.signals, strict=True),
        strict=False,
    ):
        if mine != theirs:
            break
        count += 1
    return count
