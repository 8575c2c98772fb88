"""Scores a prompt: how likely the target finds each of its tokens after those before it."""

from __future__ import annotations

from collections.abc import Generator

from localspec.engine.adapters import Scales
from localspec.engine.block_max import BlockMax
from localspec.engine.likelihood import Likelihood, likelihood
from localspec.engine.step import Engine
from localspec.types import Token


def score(
    engine: Engine, client: str, prompt: list[Token], count: int, adapters: Scales = ()
) -> Generator[None, None, list[Likelihood]]:
    """Read a prompt from its beginning, in a slot of the engine between two of its steps.

    Yields after each piece of work, returns the likelihoods of all tokens but the first, each with
    `count` alternatives. What the slot held is forgotten; the prompt stays there for the next
    request, and the slot is given back when the generator ends or is closed.

    Raises:
        Busy: every slot is taken.
        NoRoom: there are no cells for the prompt now.
        EngineError: the target failed; the engine must not be used any more.
    """
    found: list[Likelihood] = []
    held = 0
    slot, _ = engine.take_slot(client, prompt)
    try:
        engine.target.truncate(slot, 0)
        while held < len(prompt):
            seen, read = engine.read(slot, prompt, held, 0, adapters)
            following = prompt[held + 1 : held + 1 + read]
            found += [
                likelihood(BlockMax(row), token, count)
                for row, token in zip(seen.logits, following, strict=False)
            ]
            held += read
            yield
    finally:
        engine.release_slot(slot, client, prompt[:held], adapters=adapters)
    return found
