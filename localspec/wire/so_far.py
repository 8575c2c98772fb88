"""An answer that goes on with another worker: its tokens, and what they cost."""

from __future__ import annotations

import msgspec

from localspec.types import Origin, SourceCount
from localspec.wire.values import TokenLogprob


class Spent(msgspec.Struct, frozen=True):
    """The costs of an answer so far, as its workers counted them, without the pauses between them.

    `predicted` counts output tokens copied from the request's prediction; `aim` is mirostat's aim
    behind the latest token, in bits; the rest is as in `SpeculationReport`.
    """

    ttft_seconds: float = 0.0
    prompt_seconds: float = 0.0
    decode_seconds: float = 0.0
    rounds: int = 0
    draft_seconds: float = 0.0
    verify_seconds: float = 0.0
    host_seconds: float = 0.0
    predicted: int = 0
    sources: dict[str, SourceCount] = {}
    aim: float = 0.0


class SoFar(msgspec.Struct, frozen=True):
    """An answer whose worker is gone, for the next worker to continue.

    `prompt`, `cached_tokens` and `origin` are those of its first `Started`. `tokens` are all that
    were decided, each with its source in `sources`; `held` has the logprobs of tokens whose text
    was still held back.
    """

    prompt: list[int]
    cached_tokens: int
    tokens: list[int]
    sources: list[str]
    held: list[TokenLogprob]
    spent: Spent
    origin: Origin = "slot"
