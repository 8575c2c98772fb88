"""Writes a request's settings as llama-server's `generation_settings`. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from localspec.chain import RANDOM_SEED, SamplingParams
from localspec.ranges import SAMPLERS
from localspec.wire.messages import Generate
from localspec_daemon.api.chain import RANDOM_SEEDS
from localspec_daemon.api.dialect import Json

NO_BOUND = -1
"""llama-server's number for no limit of tokens."""


def of_chain(chain: SamplingParams) -> Json:
    """Returns the fields of a sampler chain."""
    seed = max(RANDOM_SEEDS) if chain.seed == RANDOM_SEED else chain.seed
    return {
        "seed": seed,
        "temperature": chain.temperature,
        "dynatemp_range": chain.dynatemp_range,
        "dynatemp_exponent": chain.dynatemp_exponent,
        "top_k": chain.top_k,
        "top_p": chain.top_p,
        "min_p": chain.min_p,
        "top_n_sigma": chain.top_n_sigma,
        "xtc_probability": chain.xtc_probability,
        "xtc_threshold": chain.xtc_threshold,
        "typical_p": chain.typical_p,
        "repeat_last_n": chain.penalty_last_n,
        "repeat_penalty": chain.repetition_penalty,
        "presence_penalty": chain.presence_penalty,
        "frequency_penalty": chain.frequency_penalty,
        "dry_multiplier": chain.dry_multiplier,
        "dry_base": chain.dry_base,
        "dry_allowed_length": chain.dry_allowed_length,
        "dry_penalty_last_n": chain.dry_penalty_last_n,
        "dry_sequence_breakers": [*chain.dry_sequence_breakers],
        "mirostat": chain.mirostat,
        "mirostat_tau": chain.mirostat_tau,
        "mirostat_eta": chain.mirostat_eta,
        "adaptive_target": -1.0,
        "adaptive_decay": 0.9,
        "min_keep": chain.min_keep,
        "samplers": [*(chain.samplers or SAMPLERS)],
        "logit_bias": [
            {"token": token, "bias": None if math.isinf(bias) else bias}
            for token, bias in chain.logit_bias.items()
        ],
    }


def settings(  # noqa: PLR0913 - what a request may say besides its chain
    chain: SamplingParams,
    *,
    max_tokens: int | None = None,
    stop: Sequence[str] = (),
    ignore_eos: bool = False,
    stream: bool = False,
    n_probs: int = 0,
    grammar: str = "",
    speculates: bool = True,
    timings_per_token: bool = False,
    after_sampling: bool = False,
    thoughts_apart: bool = True,
    lora: Mapping[int, float] | None = None,
    keep: int = 0,
    discard: int = 0,
) -> Json:
    """Returns all of llama-server's settings."""
    most = NO_BOUND if max_tokens is None else max_tokens
    return of_chain(chain) | {
        "stop": [*stop],
        "max_tokens": most,
        "n_predict": most,
        "n_keep": keep,
        "n_discard": discard,
        "ignore_eos": ignore_eos,
        "stream": stream,
        "n_probs": n_probs,
        "grammar": grammar,
        "grammar_lazy": False,
        "grammar_triggers": [],
        "preserved_tokens": [],
        "chat_format": "Content-only",
        "reasoning_format": "auto" if thoughts_apart else "none",
        "reasoning_in_content": not thoughts_apart,
        "generation_prompt": "",
        "speculative.types": "localspec" if speculates else "none",
        "timings_per_token": timings_per_token,
        "post_sampling_probs": after_sampling,
        "backend_sampling": False,
        "lora": [{"id": id_, "scale": scale} for id_, scale in (lora or {}).items()],
    }


def of_request(one: Generate, *, stream: bool, timings_per_token: bool) -> Json:
    """Returns the settings of one request."""
    form = one.response_format or {}
    return settings(
        one.sampling,
        max_tokens=one.max_tokens,
        stop=one.stop,
        ignore_eos=one.ignore_eos,
        stream=stream,
        n_probs=one.logprobs or 0,
        grammar=str(form.get("grammar", "")) if form.get("type") == "gbnf" else "",
        speculates=one.speculation.mode != "off",
        timings_per_token=timings_per_token,
        after_sampling=one.after_sampling,
        thoughts_apart=one.reasoning_apart,
        lora=one.lora,
        keep=one.keep,
        discard=one.discard,
    )
