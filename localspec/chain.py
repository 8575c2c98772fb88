"""The numbers of one request's sampler chain, for settings, bodies of requests and the engine.

It imports nothing of LocalSpec.
"""

from __future__ import annotations

import msgspec

RANDOM_SEED = -1
"""The seed that means a new one for each request."""

BREAKERS = ("\n", ":", '"', "*")
"""llama.cpp's default breakers of DRY: no repetition extends across them."""


class SamplingParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The sampler chain of one request, in the order it is applied.

    logit_bias, penalties (over the last `penalty_last_n` tokens), dry, grammar, top_n_sigma,
    temperature, top_k, typical_p, top_p, min_p, xtc. `samplers` gives another order in llama.cpp's
    names; samplers that it does not name are not applied. Temperature 0 is greedy. With `mirostat`
    1 or 2 only temperature and mirostat follow the grammar. Samplers that cut leave at least
    `min_keep` tokens. `seed` keys the noise: behind the same tokens a seed fixes every draw.
    """

    temperature: float = 0.8
    top_k: int = 40
    top_p: float = 0.95
    min_p: float = 0.05
    repetition_penalty: float = 1.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    penalty_last_n: int = 64
    typical_p: float = 1.0
    top_n_sigma: float = -1.0
    dynatemp_range: float = 0.0
    dynatemp_exponent: float = 1.0
    xtc_probability: float = 0.0
    xtc_threshold: float = 0.1
    dry_multiplier: float = 0.0
    dry_base: float = 1.75
    dry_allowed_length: int = 2
    dry_penalty_last_n: int = 64
    dry_sequence_breakers: tuple[str, ...] = BREAKERS
    mirostat: int = 0
    mirostat_tau: float = 5.0
    mirostat_eta: float = 0.1
    min_keep: int = 0
    samplers: tuple[str, ...] = ()
    logit_bias: dict[int, float] = {}
    seed: int = RANDOM_SEED
