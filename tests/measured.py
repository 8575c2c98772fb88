"""Results as a measurement leaves them, with figures that a test can compute in its head."""

from __future__ import annotations

from typing import Any

from localspec.bench.results import Answer, Batch, Results, Settings, Source

MODEL: dict[str, Any] = {
    "name": "tiny",
    "exactness": "strict",
    "drafters": ["lookup", "model"],
    "llama_build": "b1; CPU : AVX2 = 1",
    "cost_ms_by_rows": {"2": 34.0, "1": 20.0, "4": 60.0, "16": 110.0},
}


def answer(prompt: str, arm: str, seconds: float, repeat: int = 0, **changes: Any) -> Answer:
    """101 tokens, 100 of them decoded in `seconds`; all arms but plain report their rounds."""
    fields: dict[str, Any] = {
        "prompt": prompt,
        "slice": prompt.partition("/")[0],
        "turn": 0,
        "repeat": repeat,
        "arm": arm,
        "kind": "cold",
        "text": f"about {prompt}",
        "finish": "length",
        "tokens": 101,
        "prompt_tokens": 50,
        "cached_tokens": 0,
        "decode_seconds": seconds,
        "ttft_seconds": 0.1,
        "seconds": seconds + 0.1,
    }
    if arm != "plain":
        fields |= {"rounds": 50, "reason": "speculating"}
        fields["sources"] = {"lookup": Source(40, 25, [25, 15], [20, 5])}
    return Answer(**(fields | changes))


def results(*answers: Answer, **changes: Any) -> Results:
    """A measurement in which each answer was a batch of its own."""
    fields: dict[str, Any] = {
        "version": "0.1.0",
        "created": "2024-05-01 12:00 UTC",
        "machine": "a <fast> machine",
        "settings": Settings(repeats=1 + max(one.repeat for one in answers)),
        "model": MODEL,
        "arms": list(dict.fromkeys(one.arm for one in answers)),
        "batches": [Batch(one.arm, one.repeat, one.seconds, [one]) for one in answers],
    }
    return Results(**(fields | changes))
