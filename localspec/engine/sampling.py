"""Logits to law to token: the sampler chain and its noise. Pure: no clock, no state of a RNG.

The noise is a counter-based function of (seed, position, purpose, token), so that a draw depends on
where it stands and not on how many draws came before it. The target's own token at a position is
argmax(log p + g) with Gumbel noise g (the Gumbel-max trick); greedy is g = 0. A draft drawn with
the same g from a similar law often gives the same token: Gumbel coupling, Daliri et al., arXiv
2408.07978.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from enum import IntEnum

import numpy as np
from numpy.typing import NDArray

from localspec.errors import EngineError
from localspec.types import Constraint, Floats, Law, SamplingParams, Token, Verification

_MASK = (1 << 64) - 1
_GAMMA = 0x9E3779B97F4A7C15  # splitmix64's increment
_MIX_1, _MIX_2 = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_BLOCK = 256
"""Logits per block in the top-k search: 594 maxima for 152k tokens, few enough to partition."""


class Purpose(IntEnum):
    """Streams of noise that must not meet: each use of randomness at one position has its own."""

    TOKEN = 0  # the target's token, and drafts coupled to it
    DRAFT = 1  # an independent draft, for rejection sampling
    ACCEPT = 2  # accept or reject
    RESIDUAL = 3  # the correction after a rejection


def _mix(value: int) -> int:
    value = (value ^ (value >> 30)) * _MIX_1 & _MASK
    value = (value ^ (value >> 27)) * _MIX_2 & _MASK
    return value ^ (value >> 31)


def uniforms(
    seed: int, position: int, purpose: Purpose, tokens: NDArray[np.int32]
) -> NDArray[np.float64]:
    """Numbers in (0, 1), one for each token id: splitmix64 keyed by seed, position and purpose."""
    key = _mix((_mix((seed + _GAMMA) & _MASK) + position * 4 + purpose + 1) * _GAMMA & _MASK)
    state = tokens.astype(np.uint64) * np.uint64(_GAMMA) + np.uint64(key)
    state = (state ^ (state >> np.uint64(30))) * np.uint64(_MIX_1)
    state = (state ^ (state >> np.uint64(27))) * np.uint64(_MIX_2)
    state ^= state >> np.uint64(31)
    return (np.asarray(state >> np.uint64(11), dtype=np.float64) + 0.5) * 2.0**-53


def _block_maxima(logits: Floats) -> tuple[Floats, int]:
    """The largest logit of each block, and how many logits the blocks cover.

    Block b holds every len(maxima)-th logit from b on: numpy takes maxima over the first axis at
    the speed of memory.
    """
    blocks = logits.size // _BLOCK
    covered = blocks * _BLOCK
    return logits[:covered].reshape(_BLOCK, blocks).max(axis=0), covered


def top_k(logits: Floats, count: int) -> NDArray[np.int32]:
    """The `count` largest logits' token ids, largest first, ties to the smaller id. Exact.

    The count-th largest block maximum is a lower bound of the count-th largest logit, so only the
    blocks that reach it need a look.
    """
    size = logits.size
    blocks = size // _BLOCK
    if count >= size:
        found = np.arange(size)
    elif blocks <= count:
        bound = np.partition(logits, size - count)[size - count]
        found = np.flatnonzero(logits >= bound)
    else:
        maxima, covered = _block_maxima(logits)
        bound = np.partition(maxima, blocks - count)[blocks - count]
        high = np.flatnonzero(maxima >= bound)
        offset, which = np.nonzero(logits[:covered].reshape(_BLOCK, blocks)[:, high] >= bound)
        tail = np.flatnonzero(logits[covered:] >= bound) + covered
        found = np.concatenate([offset * blocks + high[which], tail])
    order = np.lexsort((found, -logits[found]))
    return found[order[:count]].astype(np.int32)


def certainty(logits: Floats) -> float:
    """About the probability of the likeliest token, in one pass over the row (n_vocab,).

    Each block stands for its largest logit only, so it is somewhat too high; that is good enough to
    tell easy text from hard, and several times as fast as a softmax over 152k tokens.
    """
    maxima, covered = _block_maxima(logits)
    maxima = np.concatenate([maxima, logits[covered:]])
    return 1.0 / float(np.exp(maxima - maxima.max()).sum())


class Sampler:
    """One request's sampler chain. Stateless but for its constraint; same inputs, same token.

    Args:
        params: The chain and the seed.
        constraint: A grammar that masks tokens, if the request has one.
        verify: The rule that will judge drafts; it settles how drafts are drawn.
    """

    def __init__(
        self,
        params: SamplingParams,
        constraint: Constraint | None = None,
        verify: Verification = "coupled",
    ) -> None:
        self.params = params
        self.constraint = constraint
        self.verify = verify
        self.greedy = params.temperature == 0.0
        self._penalized = (
            params.repetition_penalty != 1.0
            or params.frequency_penalty != 0.0
            or params.presence_penalty != 0.0
        ) and params.penalty_last_n > 0

    @property
    def looks_back(self) -> int:
        """How many of the latest tokens `pick` and `law` have to be shown."""
        return self.params.penalty_last_n if self._penalized else 0

    def pick(
        self, logits: Floats, recent: Sequence[Token], path: Sequence[Token], position: int
    ) -> Token:
        """The token of the law of `logits` at `position`: argmax(log p + g), argmax p when greedy.

        Args:
            logits: One row (n_vocab,).
            recent: The committed tokens before the position, at least the last `looks_back`.
            path: Drafted tokens between `recent` and the position.
            position: Index of the token in its sequence.
        """
        if self.greedy:
            adjusted = self._adjusted(logits, recent, path)
            token = int(adjusted.argmax())
            _require_finite(adjusted[token])
            return token
        return self.draw(self.law(logits, recent, path), position, Purpose.TOKEN)

    def propose(
        self, logits: Floats, recent: Sequence[Token], path: Sequence[Token], position: int
    ) -> tuple[Token, Law | None]:
        """A draft model's token from its own logits, and the law it was drawn from.

        Coupled drafts share the target's noise and need no law; drafts for rejection sampling are
        drawn independently of the noise that will judge them.
        """
        if self.greedy or self.verify == "coupled":
            return self.pick(logits, recent, path, position), None
        law = self.law(logits, recent, path)
        return self.draw(law, position, Purpose.DRAFT), law

    def draw(self, law: Law, position: int, purpose: Purpose) -> Token:
        """A token with probability `law`, by the Gumbel-max trick."""
        noise = -np.log(-np.log(uniforms(self.params.seed, position, purpose, law.tokens)))
        return int(law.tokens[int((law.logp + noise).argmax())])

    def uniform(self, position: int, purpose: Purpose) -> float:
        """One number in (0, 1) that belongs to this position."""
        return float(uniforms(self.params.seed, position, purpose, np.zeros(1, dtype=np.int32))[0])

    def law(self, logits: Floats, recent: Sequence[Token], path: Sequence[Token]) -> Law:
        """The law after the whole chain, with all its mass on one token when greedy."""
        params = self.params
        adjusted = self._adjusted(logits, recent, path)
        if self.greedy:
            best = int(adjusted.argmax())
            return Law(np.array([best], dtype=np.int32), np.zeros(1))
        tokens, logp = self._support(adjusted)
        _require_finite(float(logp.max(initial=-np.inf)))
        if params.top_p < 1.0:
            before = np.cumsum(np.exp(logp)) - np.exp(logp)
            keep = max(1, int(np.count_nonzero(before < params.top_p)))
            tokens, logp = tokens[:keep], logp[:keep]
        floor = logp.max() + np.log(params.min_p) if params.min_p > 0.0 else -np.inf
        allowed = (logp >= floor) & (logp > -np.inf)
        tokens, logp = tokens[allowed], logp[allowed]
        return Law(tokens, logp - _log_sum_exp(logp))

    def _support(self, logits: Floats) -> tuple[NDArray[np.int32], NDArray[np.float64]]:
        """Tokens and their log probabilities after temperature and top_k.

        Best first where top_p has to cut; then no more of them than it can need.
        """
        params, size = self.params, logits.size
        if 0 < params.top_k < size:
            tokens = top_k(logits, params.top_k)
            scores = logits[tokens].astype(np.float64) / params.temperature
            return tokens, scores - (_log_sum_exp(scores) if scores.size else 0.0)
        scores = logits.astype(np.float64) / params.temperature
        logp = scores - _log_sum_exp(scores)
        tokens = np.arange(size, dtype=np.int32)
        for count in (256, 4096, size) if params.top_p < 1.0 else ():
            tokens = top_k(logits, count)
            if np.exp(logp[tokens]).sum() >= params.top_p:
                break
        return tokens, logp[tokens]

    def _adjusted(self, logits: Floats, recent: Sequence[Token], path: Sequence[Token]) -> Floats:
        """Bias, penalties and mask; `logits` itself, not a copy, when none applies."""
        params = self.params
        if not (params.logit_bias or self._penalized or self.constraint):
            return logits
        adjusted: Floats = logits.copy()
        for token, bias in params.logit_bias.items():
            adjusted[token] += bias
        if self._penalized:
            self._penalize(adjusted, [*recent[-params.penalty_last_n :], *path])
        if self.constraint is not None:
            adjusted[~self.constraint.mask(path)] = -np.inf
        return adjusted

    def _penalize(self, logits: Floats, history: Sequence[Token]) -> None:
        """Repetition, frequency and presence over the window, as llama_sampler_init_penalties."""
        params = self.params
        for token, count in Counter(history[-params.penalty_last_n :]).items():
            value = float(logits[token])
            value = (
                value / params.repetition_penalty
                if value > 0
                else value * params.repetition_penalty
            )
            logits[token] = value - count * params.frequency_penalty - params.presence_penalty


def _log_sum_exp(scores: NDArray[np.float64]) -> float:
    peak = float(scores.max())
    return peak + float(np.log(np.exp(scores - peak).sum()))


def _require_finite(score: float) -> None:
    if not np.isfinite(score):
        raise EngineError(
            "The model's logits are not finite, or its grammar allows no token.",
            fix="Try the request without response_format; check the model file's SHA-256.",
        )
