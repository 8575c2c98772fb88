"""The whole chain of llama.cpp's samplers over one row of logits, in any order. Pure.

The chain that most requests ask for is in `Sampler`, which looks at few logits; every other one is
computed here. Each step is llama.cpp's of the same name (`src/llama-sampler.cpp`);
`tests/laws/test_chain_law.py` compares them. Where llama.cpp's step draws a number, this one is
given one, so its result is a function of logits, history and that number.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from localspec.chain import SamplingParams
from localspec.ranges import SAMPLERS
from localspec.types import Floats, Probs, Token

MIROSTAT_TOKENS = 100
"""Mirostat 1 estimates the slope of a law from so many of its likeliest tokens: llama.cpp's m."""

_MAX_PENALTY_LOG = 88.7228391
"""The logarithm of the largest 32-bit float: beyond it a penalty would be infinite."""

_MOST_XTC_THRESHOLD = 0.5
"""No two tokens can be likelier than that."""

Breakers = Mapping[Token, Sequence[tuple[Token, ...]]]
"""Sequences that a repetition does not reach over: by first token, the tokens that follow it."""


@dataclass(slots=True)
class Candidates:
    """The tokens that are still possible, with their logits; best first once `sort` was called."""

    tokens: NDArray[np.int32]
    logits: NDArray[np.float64]

    @classmethod
    def of(cls, logits: Floats) -> Candidates:
        """The tokens of a row that are possible (above -inf); there must be one."""
        tokens = np.flatnonzero(logits > -np.inf).astype(np.int32)
        return cls(tokens, logits[tokens].astype(np.float64))

    def keep(self, which: NDArray[np.intp] | NDArray[np.bool_] | slice) -> None:
        """Keep only these, in this order."""
        self.tokens, self.logits = self.tokens[which], self.logits[which]

    def sort(self) -> None:
        """Best first, ties to the smaller id."""
        self.keep(np.lexsort((self.tokens, -self.logits)))

    def logp(self) -> NDArray[np.float64]:
        """The log-probabilities of the candidates."""
        shifted: NDArray[np.float64] = self.logits - self.logits.max()
        found: NDArray[np.float64] = shifted - np.log(np.exp(shifted).sum())
        return found

    def law(self) -> Probs:
        """The remaining candidates, as a law."""
        return Probs(self.tokens, self.logp())


@dataclass(frozen=True, slots=True)
class ChainInputs:
    """The inputs of a step besides logits.

    `history` are the tokens before, prompt included. `chance` is a number in (0, 1) that belongs to
    the position. `aim` is the surprise that mirostat aims at there, in bits.
    """

    history: Sequence[Token]
    chance: float
    aim: float
    n_vocab: int
    breakers: Breakers


def law(params: SamplingParams, candidates: Candidates, moment: ChainInputs) -> Probs:
    """The law after every step that the request asks for."""
    if params.mirostat:
        _temperature(params, candidates, moment)
        _MIROSTATS[params.mirostat](candidates, moment)
        return candidates.law()
    for name in params.samplers or SAMPLERS:
        _STEPS[name](params, candidates, moment)
    return candidates.law()


def penalties(params: SamplingParams, history: Sequence[Token]) -> dict[Token, int]:
    """How often each token occurs in the window of the penalties."""
    counts: dict[Token, int] = {}
    for token in history[-params.penalty_last_n :] if params.penalty_last_n else ():
        counts[token] = counts.get(token, 0) + 1
    return counts


def repetitions(
    params: SamplingParams, history: Sequence[Token], breakers: Breakers
) -> dict[Token, int]:
    """The tokens that would extend a repetition, and the length of the longest one so far.

    Tokens that are themselves breakers are left out. The Z-algorithm (Gusfield, Algorithms on
    Strings, Trees and Sequences, 1997) gives for each place of the reversed text how much of its
    beginning is repeated there.
    """
    back = list(reversed(history[-params.dry_penalty_last_n :]))
    longest = min(len(back), _unbroken(back, breakers))
    if len(back) <= params.dry_allowed_length or longest < params.dry_allowed_length:
        return {}
    found: dict[Token, int] = {}
    shared = [0] * len(back)
    left = right = 0
    for place in range(1, len(back)):
        length = min(shared[place - left], right - place) if place < right else 0
        while place + length < len(back) and back[length] == back[place + length]:
            length += 1
        shared[place] = length
        if place + length > right:
            left, right = place, place + length
        length = min(length, longest)
        if length >= params.dry_allowed_length:
            token = back[place - 1]
            found[token] = max(found.get(token, 0), length)
    return {token: length for token, length in found.items() if () not in breakers.get(token, ())}


def _unbroken(back: Sequence[Token], breakers: Breakers) -> int:
    """The number of tokens after the last breaker, in a text that is given backwards."""
    for place, token in enumerate(back):
        lengths = [
            len(rest)
            for rest in breakers.get(token, ())
            if len(rest) <= place and list(rest) == list(reversed(back[place - len(rest) : place]))
        ]
        if lengths:
            return place - max(lengths)
    return len(back)


def dry_penalty(params: SamplingParams, length: int) -> float:
    """The penalty on the logit of a token that would extend a repetition of that length."""
    most = math.inf
    if params.dry_base > 1.000001:  # noqa: PLR2004 - llama.cpp's
        most = int(_MAX_PENALTY_LOG / math.log(params.dry_base))
    exponent = min(length - params.dry_allowed_length, most)
    return float(params.dry_multiplier * params.dry_base**exponent)


def repeats(params: SamplingParams) -> bool:
    """Whether DRY does anything."""
    return params.dry_multiplier != 0.0 and params.dry_base >= 1.0 and params.dry_penalty_last_n > 0


def _penalties(params: SamplingParams, these: Candidates, moment: ChainInputs) -> None:
    counts = penalties(params, moment.history)
    for place in np.flatnonzero(np.isin(these.tokens, [*counts])):
        value, count = these.logits[place], counts[int(these.tokens[place])]
        scaled = (
            value / params.repetition_penalty if value > 0 else value * params.repetition_penalty
        )
        these.logits[place] = scaled - count * params.frequency_penalty - params.presence_penalty


def _dry(params: SamplingParams, these: Candidates, moment: ChainInputs) -> None:
    if not repeats(params):
        return
    found = repetitions(params, moment.history, moment.breakers)
    for place in np.flatnonzero(np.isin(these.tokens, [*found])):
        these.logits[place] -= dry_penalty(params, found[int(these.tokens[place])])


def _top_n_sigma(params: SamplingParams, these: Candidates, _moment: ChainInputs) -> None:
    if params.top_n_sigma > 0 and these.tokens.size > 1:
        least = these.logits.max() - params.top_n_sigma * these.logits.std()
        these.keep(these.logits >= least)


def _temperature(params: SamplingParams, these: Candidates, _moment: ChainInputs) -> None:
    """Apply the temperature; with `dynatemp_range` it depends on the entropy of the law."""
    temperature = params.temperature
    if params.dynatemp_range > 0:
        if these.tokens.size < 2:  # noqa: PLR2004 - one token has no entropy
            return
        logp = these.logp()
        share = -float((np.exp(logp) * logp).sum()) / math.log(these.tokens.size)
        low = max(0.0, temperature - params.dynatemp_range)
        high = temperature + params.dynatemp_range
        temperature = low + (high - low) * max(share, 0.0) ** params.dynatemp_exponent
    if temperature <= 0:
        these.sort()
        these.keep(slice(1))
    else:
        with np.errstate(over="ignore"):
            these.logits = (these.logits - these.logits.max()) / temperature
        these.keep(these.logits > -np.inf)


def _top_k(params: SamplingParams, these: Candidates, _moment: ChainInputs) -> None:
    if 0 < params.top_k < these.tokens.size:
        these.sort()
        these.keep(slice(params.top_k))


def _typical(params: SamplingParams, these: Candidates, _moment: ChainInputs) -> None:
    """Meister et al., Locally Typical Sampling (arXiv 2202.00666)."""
    if params.typical_p >= 1:
        return
    these.sort()
    logp = these.logp()
    mass = np.exp(logp)
    entropy = -float((mass * logp).sum())
    order = np.argsort(np.abs(-logp - entropy), kind="stable")
    kept = 1 + int(np.searchsorted(mass[order].cumsum(), params.typical_p, side="right"))
    these.keep(order[: max(kept, params.min_keep)])


def _top_p(params: SamplingParams, these: Candidates, _moment: ChainInputs) -> None:
    if params.top_p < 1:
        these.sort()
        kept = 1 + int(np.searchsorted(np.exp(these.logp()).cumsum(), params.top_p))
        these.keep(slice(max(kept, params.min_keep)))


def _min_p(params: SamplingParams, these: Candidates, _moment: ChainInputs) -> None:
    if params.min_p > 0:
        these.sort()
        likely = int((these.logits >= these.logits.max() + math.log(params.min_p)).sum())
        these.keep(slice(max(likely, params.min_keep, 1)))


def _xtc(params: SamplingParams, these: Candidates, moment: ChainInputs) -> None:
    """Exclude top choices: of the tokens above the threshold, all but the least likely."""
    wanted = params.xtc_probability > 0 and params.xtc_threshold <= _MOST_XTC_THRESHOLD
    if not wanted or moment.chance > params.xtc_probability:
        return
    these.sort()
    above = int((np.exp(these.logp()) >= params.xtc_threshold).sum()) - 1
    if above > 0 and these.tokens.size - above >= params.min_keep:
        these.keep(slice(above, None))


def _mirostat(these: Candidates, moment: ChainInputs) -> None:
    """Basu et al., Mirostat (arXiv 2007.14966): keep as many tokens as give the aimed surprise."""
    these.sort()
    logp = these.logp()[:MIROSTAT_TOKENS]
    if logp.size < 2:  # noqa: PLR2004 - one token has no slope
        return
    ranks = np.arange(1, logp.size)
    steps, drops = np.log((ranks + 1) / ranks), logp[:-1] - logp[1:]
    slope = float((steps * drops).sum() / (steps * steps).sum())
    excess = slope - 1
    with np.errstate(all="ignore"):
        share = np.float64(excess * 2.0**moment.aim) / (1 - np.float64(moment.n_vocab) ** -excess)
        count = share ** (1 / np.float64(slope))
    these.keep(slice(max(int(count), 1) if np.isfinite(count) else None))


def _mirostat_2(these: Candidates, moment: ChainInputs) -> None:
    """Mirostat 2: keep the tokens of at most the aimed surprise, or else the likeliest one."""
    these.sort()
    surprises = -these.logp() / math.log(2)
    these.keep(slice(max(1, int(np.searchsorted(surprises, moment.aim, side="right")))))


_MIROSTATS = {1: _mirostat, 2: _mirostat_2}
_STEPS = {
    "penalties": _penalties,
    "dry": _dry,
    "top_n_sigma": _top_n_sigma,
    "temperature": _temperature,
    "top_k": _top_k,
    "typ_p": _typical,
    "top_p": _top_p,
    "min_p": _min_p,
    "xtc": _xtc,
}
