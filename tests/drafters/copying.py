"""Helpers of lookup's tests: open a session, draft and commit, as the engine does."""

from __future__ import annotations

from collections.abc import Sequence

from localspec import drafters
from localspec.drafters.lookup import LookupSession
from localspec.engine.sampling import Sampler
from localspec.types import Draft, DraftRequest, SamplingParams, Signal

DRAFTER = drafters.load("lookup", piece=lambda _: b" word")
"""To it every token is a word of its own."""


def begun(prompt: Sequence[int], prediction: Sequence[int] = ()) -> LookupSession:
    """A session on both texts that has read nothing of them."""
    session = DRAFTER.open(0, prompt, Sampler(SamplingParams(temperature=0)), prediction)
    assert isinstance(session, LookupSession)
    return session


def opened(prompt: Sequence[int], prediction: Sequence[int] = ()) -> LookupSession:
    """A session that has read both texts."""
    session = begun(prompt, prediction)
    session.read(session.pending)
    return session


def propose(
    session: LookupSession, budget: int = 8, prefix: Sequence[int] = (), worth: int | None = None
) -> Draft:
    """Tokens that `session` proposes; `worth` nodes are worth it, or all."""

    def wanted(signals: Sequence[Signal]) -> bool:
        return worth is None or len(signals) < worth

    before = Draft.chain(prefix, [Signal("test", 0, 0.5)] * len(prefix))
    (draft,) = DRAFTER.propose([DraftRequest(session, before, budget, wanted)])
    return draft


def written(session: LookupSession, output: Sequence[int]) -> LookupSession:
    """Session after a draft before each token of `output`."""
    for token in output:
        propose(session)
        session.commit([token])
    return session
