"""Rejection sampling draws from the target's law: a chi-square test with a stated power.

Two tokens are decided from a two-node draft on real logits of the tiny pair, with top_k 4: sixteen
cells of known probability. With 11,000 draws, 15 degrees of freedom and a threshold at p = 1e-6, a
total variation distance of 0.05 is found with probability 0.999 or more (noncentral chi-square with
lambda = N * 4 TV^2 = 110 for two equal-sized shifts, and more when they are concentrated).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest
from laws.engine_harness import Harness
from numpy.typing import NDArray

from localspec.engine.sampling import Purpose, Sampler
from localspec.engine.verify import Frontier, coupled, rejection
from localspec.types import Backend, Draft, Floats, Probs, Row, SamplingParams, Signal, Verified

DRAWS = 11_000
CHAIN = SamplingParams(temperature=1.3, top_k=4, top_p=1.0, min_p=0.0)
CHI_SQUARE_BOUND = 60.0
"""The quantile 1 - 1e-6 of chi-square with 15 degrees of freedom is 58.0 (scipy.stats.chi2)."""


@dataclass
class Tables:
    """Logits of both models after the prompt, and after each possible first token."""

    target: dict[tuple[int, ...], Floats]
    draft: dict[tuple[int, ...], Floats]


def _logits(memory: Backend, tokens: list[int]) -> Floats:
    memory.truncate(0, 0)
    rows = [Row(token, at, 0, at == len(tokens) - 1) for at, token in enumerate(tokens)]
    logits: Floats = memory.decode(rows).logits[0].copy()
    return logits


@pytest.fixture(scope="module")
def tables(harness: Harness) -> Tables:
    """All logits that two tokens can meet."""
    prompt = harness.request("To be or not to", CHAIN).prompt
    sampler = Sampler(CHAIN)
    roots = [_logits(memory, prompt) for memory in (harness.memory, harness.draft_memory)]
    firsts = {int(token) for root in roots for token in sampler.law(root, [], [], 0).tokens}
    found = Tables({(): roots[0]}, {(): roots[1]})
    for token in firsts:
        found.target[(token,)] = _logits(harness.memory, [*prompt, token])
        found.draft[(token,)] = _logits(harness.draft_memory, [*prompt, token])
    return found


def _draft(tables: Tables, sampler: Sampler, *, sampled: bool) -> Draft:
    """Two tokens of the draft model: drawn from its law, or its most likely ones."""
    tokens: list[int] = []
    laws: list[Probs | None] = []
    for position in (0, 1):
        law = sampler.law(tables.draft[tuple(tokens)], [], tokens, len(tokens))
        laws.append(law if sampled else None)
        drawn = sampler.draw(law, position, Purpose.DRAFT) if sampled else int(law.tokens[0])
        tokens.append(drawn)
        if tuple(tokens) not in tables.target and len(tokens) < 2:
            break
    return Draft.chain(tokens, [Signal("d", 0, 0.5)] * len(tokens), laws)


def _cells(tables: Tables, sampler: Sampler) -> dict[tuple[int, int], float]:
    """The target's probability of each pair of tokens."""
    first = sampler.law(tables.target[()], [], [], 0)
    return {
        (int(one), int(two)): float(np.exp(p_one + p_two))
        for one, p_one in zip(first.tokens, first.logp, strict=True)
        for second in [sampler.law(tables.target[(int(one),)], [], [int(one)], 1)]
        for two, p_two in zip(second.tokens, second.logp, strict=True)
    }


Verify = Callable[[Draft, Floats, Frontier], Verified]


def _statistic(tables: Tables, verify: Verify, *, sampled: bool) -> tuple[float, int, int]:
    """Chi-square of the first two tokens, and how many nodes were accepted and rejected."""
    cells = _cells(tables, Sampler(CHAIN))
    index = {pair: number for number, pair in enumerate(cells)}
    counts: NDArray[np.int64] = np.zeros(len(cells), dtype=np.int64)
    accepted = rejected = 0
    for seed in range(DRAWS):
        params = SamplingParams(temperature=1.3, top_k=4, top_p=1.0, min_p=0.0, seed=seed)
        sampler = Sampler(params)
        draft = _draft(tables, sampler, sampled=sampled)
        path = [(), draft.tokens[:1]]
        logits = np.stack([tables.target[key] for key in path] + [tables.target[()]])
        verdict = verify(draft.head(1), logits, Frontier(sampler, [], 0, ()))
        accepted += len(verdict.accepted)
        rejected += not verdict.accepted
        if verdict.accepted:
            pair = (draft.tokens[0], verdict.token)
        else:
            rest = Draft()
            second = np.stack([tables.target[(verdict.token,)]])
            pair = (verdict.token, verify(rest, second, Frontier(sampler, [], 1, ())).token)
        counts[index[pair]] += 1
    expected = np.array(list(cells.values())) * DRAWS
    return float(((counts - expected) ** 2 / expected).sum()), accepted, rejected


@pytest.mark.parametrize("verify", [rejection, coupled])
@pytest.mark.parametrize("sampled", [True, False])
def test_the_first_tokens_follow_the_targets_law(
    tables: Tables, verify: Verify, *, sampled: bool
) -> None:
    """Sampled and deterministic drafts, both rules: the pairs of tokens have the target's law."""
    statistic, accepted, rejected = _statistic(tables, verify, sampled=sampled)

    assert statistic < CHI_SQUARE_BOUND
    assert accepted > 0
    assert rejected > 0


def _without_residual(draft: Draft, logits: Floats, frontier: Frontier) -> Verified:
    """The classic mistake: after a rejection, draw from p instead of norm(max(p - q, 0))."""
    verdict = rejection(draft, logits, frontier)
    if verdict.accepted or not len(draft):
        return verdict
    law = frontier.sampler.law(logits[0], [], [], 0)
    return Verified((), frontier.sampler.draw(law, frontier.position, Purpose.RESIDUAL))


def _too_generous(draft: Draft, logits: Floats, frontier: Frontier) -> Verified:
    """Accepts every tenth rejected token after all."""
    verdict = rejection(draft, logits, frontier)
    if verdict.accepted or not len(draft) or frontier.sampler.params.seed % 10:
        return verdict
    path = list(draft.tokens)
    token = frontier.sampler.pick(logits[1], [], path, frontier.position + 1)
    return Verified((0,), token) if draft.tokens[0] in _FIRST else verdict


_FIRST: set[int] = set()


@pytest.mark.parametrize("wrong", [_without_residual, _too_generous])
def test_the_test_finds_wrong_rules(tables: Tables, wrong: Verify) -> None:
    """Rules with known mistakes are refused by the same statistic: the test can fail."""
    _FIRST.update(int(token) for token in Sampler(CHAIN).law(tables.target[()], [], [], 0).tokens)

    statistic, _, _ = _statistic(tables, wrong, sampled=True)

    assert statistic > CHI_SQUARE_BOUND
