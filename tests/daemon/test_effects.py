"""Fields that are accepted take effect: each changes the answer of a real model as it says."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import tiny

from localspec_daemon.supervisor.worker import COMMAND

LETTERS = {str(token): 25.0 for token in range(97, 123)}
SAID: dict[str, Any] = {"seed": 5, "temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0,
                        "repeat_penalty": 1.0, "logit_bias": LETTERS}  # fmt: skip
CHAIN: dict[str, Any] = {
    "temperature": 0.1, "seed": 6, "top_k": 1, "top_p": 0.05, "min_p": 0.9, "typical_p": 0.05,
    "top_n_sigma": 0.01, "repeat_penalty": 2.0, "repetition_penalty": 2.0,
    "presence_penalty": 2.0, "frequency_penalty": 2.0, "mirostat": 2, "dynatemp_range": 0.9,
    "logit_bias": [[98, False], [99, 90]], "samplers": ["temperature"], "dry_multiplier": 5.0,
    "xtc_probability": 1.0, "repeat_last_n": 1, "dynatemp_exponent": 9.0, "mirostat_tau": 0.1,
    "mirostat_eta": 1.0, "xtc_threshold": 0.4, "dry_base": 9.0, "dry_allowed_length": 9,
    "dry_penalty_last_n": 1, "dry_sequence_breakers": [*"abcdefghijklmnopqrstuvwxyz"],
    "min_keep": 20, "max_tokens": 3, "stop": [*"abcdefghijklmnopqrstuvwxyz"], "ignore_eos": True,
    "t_max_predict_ms": 1, "grammar": 'root ::= "grammar"', "json_schema": {"const": "schema"},
    "guided_choice": ["left"], "guided_regex": "[0-9]{3}", "guided_grammar": 'root ::= "g"',
    "guided_json": {"const": 1}, "response_format": {"type": "json_object"},
}  # fmt: skip
"""Each changes what is said where the rest of the chain stands still."""
_MIROSTAT = {"mirostat": 2}
_XTC = {"xtc_probability": 1.0, "xtc_threshold": 0.001}
_DRY = {"dry_multiplier": 5.0, "dry_allowed_length": 1, "temperature": 0.1}
BESIDE: dict[str, dict[str, Any]] = {
    "mirostat": {"mirostat_tau": 0.1},
    "mirostat_tau": _MIROSTAT,
    "mirostat_eta": _MIROSTAT | {"mirostat_tau": 0.5},
    "xtc_probability": {"xtc_threshold": 0.001},
    "xtc_threshold": _XTC,
    "dry_multiplier": {**_DRY, "dry_multiplier": 0.0},
    "dry_base": _DRY | {"dry_multiplier": 0.1, "temperature": 0.5},
    "dry_allowed_length": _DRY,
    "dry_penalty_last_n": _DRY,
    "dry_sequence_breakers": _DRY,
    "dynatemp_exponent": {"dynatemp_range": 0.9},
    "repeat_last_n": {"repeat_penalty": 2.0},
    "min_keep": {"min_p": 0.9},
    "ignore_eos": {"logit_bias": LETTERS | {"261": 32.0}},
    "t_max_predict_ms": {"logit_bias": {"10": 100}, "max_tokens": 400},
    "samplers": {"top_k": 1},
}
"""Fields without which it would not be seen, and that stand in both requests."""
CHAT = {"messages": [{"role": "user", "content": "the way"}]}
ENDPOINTS: dict[str, dict[str, Any]] = {
    "/completion": {"prompt": "the way"},
    "/v1/completions": {"prompt": "the way"},
    "/v1/chat/completions": CHAT,
}


def said(told: Any) -> str:
    """The text of an answer, in any of these shapes."""
    choice = told.get("choices", [told])[0]
    return str(choice.get("message", choice).get("content", choice.get("text")))


@pytest.fixture
def real(harness: Any, daemon: Any) -> Any:
    """A daemon with a small real model."""
    (harness.models / "alpha.gguf").unlink()
    tiny.build(harness.models / "alpha.gguf")
    harness.configure(engine={"context": 1024, "slots": 2, "exactness": "standard"})
    return lambda: daemon(harness, COMMAND)


@pytest.mark.parametrize("endpoint", ENDPOINTS)
def test_a_field_changes_what_is_said(real: Any, endpoint: str) -> None:
    """A field that is accepted and does nothing is worse than one that is refused."""
    asked = ENDPOINTS[endpoint]

    async def answer(it: Any, **fields: Any) -> str:
        status, told = await it.post(endpoint, asked | SAID | {"max_tokens": 40} | fields)
        assert status == 200, (fields, told)
        return said(told)

    async def scene() -> None:
        async with real() as it:
            idle = []
            for name, value in CHAIN.items():
                beside = BESIDE.get(name, {})
                if await answer(it, **beside) == await answer(it, **beside | {name: value}):
                    idle.append(name)
            assert not idle, " ".join(idle)

    asyncio.run(scene())
