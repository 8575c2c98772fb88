"""Logits to law to token: the sampler chain and its noise. Pure: no clock, no state of a RNG.

The noise is a counter-based function of (seed, position, purpose, token), so that a draw depends on
its position and not on how many draws came before it. The target's own token at a position is
argmax(log p + g) with Gumbel noise g (the Gumbel-max trick); greedy is g = 0. A draft drawn with
the same g from a similar law often gives the same token: Gumbel coupling, Daliri et al., arXiv
2408.07978.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from enum import IntEnum
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from localspec.chain import SamplingParams
from localspec.engine import chain
from localspec.engine.block_max import BlockMax, Logits
from localspec.errors import GrammarError, no_numbers
from localspec.types import Constraint, Floats, Probs, Token, VerificationRule

_MASK = (1 << 64) - 1
_GAMMA = 0x9E3779B97F4A7C15  # splitmix64's increment
_MIX_1, _MIX_2 = 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_CHANCE = 0x9E6C63D0876A9A35
"""Changes the seed for what a step of the chain draws, which must not share noise with tokens."""


class Purpose(IntEnum):
    """Independent streams of noise: each use of randomness at one position has its own."""

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
    return unit(state)


def unit(bits: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Evenly spaced numbers in (0, 1), both ends excluded, from the upper 52 of 64 bits.

    The half that is added must not be rounded away: with 53 bits the largest number would be 1.
    """
    return (np.asarray(bits >> np.uint64(12), dtype=np.float64) + 0.5) * 2.0**-52


class Sampler:
    """One request's sampler chain; same inputs, same token.

    Its only state is that of its constraint, and mirostat's aim after the latest token from `pick`.
    Neither depends on drafts.

    Args:
        params: The chain and the seed.
        constraint: A grammar that masks tokens, if the request has one.
        verify: The rule that will judge drafts; it decides how drafts are drawn.
        breakers: Sequences that a repetition does not reach over, for `dry_multiplier`.
    """

    def __init__(
        self,
        params: SamplingParams,
        constraint: Constraint | None = None,
        verify: VerificationRule = "coupled",
        breakers: chain.Breakers = MappingProxyType({}),
    ) -> None:
        self.params = params
        self.constraint = constraint
        self.verify = verify
        self._breakers = breakers
        self._whole = _needs_whole_chain(params)
        self.greedy = params.temperature == 0.0 and not self._whole
        self._penalized = (
            params.repetition_penalty != 1.0
            or params.frequency_penalty != 0.0
            or params.presence_penalty != 0.0
        ) and params.penalty_last_n > 0
        self.offset = 0
        """Tokens that shifts have dropped from the text; added to positions, so noise stays."""
        self.aim = 2 * params.mirostat_tau
        """Mirostat's aim after the latest token, in bits; set by a session that is resumed."""

    @property
    def looks_back(self) -> int:
        """How many of the latest tokens `pick` and `law` need as `recent`."""
        penalized = self.params.penalty_last_n if self._penalized else 0
        repeats = self._whole and chain.repeats(self.params)
        return max(penalized, self.params.dry_penalty_last_n if repeats else 0)

    def pick(
        self, logits: Logits, recent: Sequence[Token], path: Sequence[Token], position: int
    ) -> Token:
        """The token that the law of `logits` gives: argmax(log p + g), argmax p when greedy.

        Args:
            logits: One row (n_vocab,), or its peaks.
            recent: The committed tokens before the position, at least the last `looks_back`.
            path: Drafted tokens between `recent` and the position.
            position: Index of the token in its sequence.
        """
        if self.greedy:
            adjusted = self._adjusted(logits, recent, path)
            token = int(adjusted.argmax())
            _require_possible(adjusted[token], logits)
            return token
        law = self.law(logits, recent, path, position)
        token = self.draw(law, position, Purpose.TOKEN)
        if self.params.mirostat:
            surprise = -float(law.logp[law.tokens == token][0]) / math.log(2)
            self.aim -= self.params.mirostat_eta * (surprise - self.params.mirostat_tau)
        return token

    def propose(
        self, logits: Logits, recent: Sequence[Token], path: Sequence[Token], position: int
    ) -> tuple[Token, Probs | None]:
        """A draft model's token from its own logits, and the law it was drawn from.

        Coupled drafts share the target's noise and need no law. Drafts for rejection sampling are
        drawn independently of the noise that will judge them, and of earlier rounds' draws for the
        same position, from which a drafter may have learned something.
        """
        if self.greedy:
            return self.pick(logits, recent, path, position), None
        law = self.law(logits, recent, path, position)
        if self.verify == "coupled":
            return self.draw(law, position, Purpose.TOKEN), None
        root = position - len(path)
        return self.draw(law, root << 32 | position, Purpose.DRAFT), law

    def draw(self, law: Probs, position: int, purpose: Purpose) -> Token:
        """A token with probability `law`, by the Gumbel-max trick."""
        if law.tokens.size == 1:
            return int(law.tokens[0])  # whatever the noise; most laws of easy text are such
        noise = -np.log(
            -np.log(uniforms(self.params.seed, position + self.offset, purpose, law.tokens))
        )
        return int(law.tokens[int((law.logp + noise).argmax())])

    def uniform(self, position: int, purpose: Purpose) -> float:
        """One number in (0, 1) that belongs to this position."""
        return float(
            uniforms(
                self.params.seed, position + self.offset, purpose, np.zeros(1, dtype=np.int32)
            )[0]
        )

    def law(
        self, logits: Logits, recent: Sequence[Token], path: Sequence[Token], position: int
    ) -> Probs:
        """The law after the whole chain, with all its mass on one token when greedy.

        A step of the chain that draws a number gets the one that belongs to the position. So the
        law at a position is always the same.
        """
        params = self.params
        adjusted = self._adjusted(logits, recent, path)
        if self.greedy:
            best = int(adjusted.argmax())
            return Probs(np.array([best], dtype=np.int32), np.zeros(1))
        if self._whole:
            row = adjusted.logits if isinstance(adjusted, BlockMax) else adjusted
            chance = self._chance(position)
            moment = chain.ChainInputs([*recent, *path], chance, self.aim, row.size, self._breakers)
            _require_possible(float(row.max()), logits)
            return chain.law(params, chain.Candidates.of(row), moment)
        peaks = adjusted if isinstance(adjusted, BlockMax) else BlockMax(adjusted)
        _require_possible(float(peaks.maxima.max()), logits)
        tokens, scores, whole = self._support(peaks)
        mass = np.exp(scores)
        if params.top_p < 1.0:  # then they are sorted: keep those with less mass before them
            keep = 1 + int(np.searchsorted(mass.cumsum(), params.top_p * whole))
            tokens, scores, mass = tokens[:keep], scores[:keep], mass[:keep]
        allowed = mass >= params.min_p if params.min_p > 0.0 else mass > 0.0
        if not allowed.all():
            tokens, scores, mass = tokens[allowed], scores[allowed], mass[allowed]
        return Probs(tokens, scores - np.log(mass.sum()))

    def _chance(self, position: int) -> float:
        none = np.zeros(1, dtype=np.int32)
        return float(
            uniforms(self.params.seed ^ _CHANCE, position + self.offset, Purpose.TOKEN, none)[0]
        )

    def _support(self, peaks: BlockMax) -> tuple[NDArray[np.int32], NDArray[np.float64], float]:
        """Tokens after top_k, their scores after temperature, and the mass of all of them.

        Scores and masses are relative to the best token's. Where top_p has to cut, tokens are best
        first, and no more than it can need.
        """
        params, logits = self.params, peaks.logits
        if 0 < params.top_k < logits.size:
            tokens = peaks.top_k(params.top_k)
            scores = _scores(logits[tokens], params.temperature)
            return tokens, scores, float(np.exp(scores).sum())
        scores = _scores(logits, params.temperature)
        mass = np.exp(scores)
        whole = float(mass.sum())
        tokens = np.arange(logits.size, dtype=np.int32)
        for count in (256, 4096, logits.size) if params.top_p < 1.0 else ():
            tokens = peaks.top_k(count)
            if mass[tokens].sum() >= params.top_p * whole:
                break
        return tokens, scores[tokens], whole

    def _adjusted(self, logits: Logits, recent: Sequence[Token], path: Sequence[Token]) -> Logits:
        """The logits after bias, penalties and mask; `logits` itself when none applies.

        A draft model's vocabulary may be shorter than the one that these are about.
        """
        params = self.params
        allowed = None if self.constraint is None else self.constraint.mask(path)
        penalized = self._penalized and not self._whole
        if not params.logit_bias and not penalized and allowed is None:
            return logits
        adjusted = logits.logits.copy() if isinstance(logits, BlockMax) else logits.copy()
        for token, bias in params.logit_bias.items():
            if token < adjusted.size:
                adjusted[token] += bias
        if penalized:
            self._penalize(adjusted, [*recent[-params.penalty_last_n :], *path])
        if allowed is not None:
            adjusted[~allowed[: adjusted.size]] = -np.inf
        return adjusted

    def _penalize(self, logits: Floats, history: Sequence[Token]) -> None:
        """Apply the three penalties over the window, as llama_sampler_init_penalties does."""
        params = self.params
        for token, count in Counter(history[-params.penalty_last_n :]).items():
            if token >= logits.size:
                continue
            value = float(logits[token])
            value = (
                value / params.repetition_penalty
                if value > 0
                else value * params.repetition_penalty
            )
            logits[token] = value - count * params.frequency_penalty - params.presence_penalty


def _needs_whole_chain(params: SamplingParams) -> bool:
    """Whether a request needs steps of `chain.py`, or another order than `Sampler.law` has."""
    return bool(
        params.samplers
        or params.mirostat
        or params.typical_p < 1
        or params.top_n_sigma > 0
        or params.dynatemp_range > 0
        or params.xtc_probability > 0
        or params.min_keep > 1
        or chain.repeats(params)
    )


def _scores(logits: Floats, temperature: float) -> NDArray[np.float64]:
    """The differences of the logits to the largest one, divided by temperature.

    The difference is taken first: then the best score is 0 at any temperature, and a score that
    overflows is one that has no chance.
    """
    scores = logits.astype(np.float64)
    scores -= scores.max()
    with np.errstate(over="ignore"):
        scores /= temperature
    return scores


def _require_possible(best: float, logits: Logits) -> None:
    """Check the best score of a row after bias and mask.

    Raises NoNumbers where the model's own logits have none, GrammarError where no token is left.
    """
    if np.isfinite(best):
        return
    row = logits.logits if isinstance(logits, BlockMax) else logits
    if not np.isfinite(row.max()):  # a token may be impossible (-inf), but not all
        raise no_numbers()
    raise GrammarError(
        "The grammar, or a bias, leaves none of the model's tokens.",
        fix="Try the request without response_format, grammar and logit_bias.",
    )
