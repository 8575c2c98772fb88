"""llama-server's POST /infill: what editors complete code with. Pure, no HTTP."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from localspec.config import Config
from localspec.types import Snippet
from localspec_daemon.dialects.bodies import decode, generate
from localspec_daemon.dialects.dialect import Asked, Caller, Dialect
from localspec_daemon.dialects.framing import UNENDING_EVENTS
from localspec_daemon.dialects.llama_server import CompletionReply
from localspec_daemon.dialects.openai import as_asked, limit, shared
from localspec_daemon.dialects.openai_errors import errors
from localspec_daemon.dialects.openai_types import MAX_CHOICES, Request

MAX_SNIPPETS = 256
_DAY_MS = 86_400_000


class InfillRequest(Request):
    """POST /infill. `prompt` is how the middle begins; unknown samplers are left out.

    `t_max_predict_ms` after its first token an answer ends, once it has a line. One without a token
    ends `t_max_prompt_ms` after it began, and is read on while nobody waits.
    """

    input_prefix: str = ""
    input_suffix: str = ""
    input_extra: Annotated[list[Snippet], Meta(max_length=MAX_SNIPPETS)] | None = None
    prompt: str | None = None
    n_indent: Annotated[int, Meta(ge=0, le=1000)] | None = None
    n_cmpl: Annotated[int, Meta(ge=1, le=MAX_CHOICES)] | None = None
    t_max_prompt_ms: Annotated[float, Meta(ge=0, le=_DAY_MS)] | None = None
    t_max_predict_ms: Annotated[float, Meta(ge=0, le=_DAY_MS)] | None = None
    response_fields: list[str] | None = None


def infill(data: bytes, config: Config, caller: Caller) -> Asked:
    """A body of POST /infill. Raises RequestError.

    Of one completion the likeliest is wanted, unless a temperature is sent; several would be the
    same.
    """
    request = decode(data, InfillRequest)
    request.n = request.n or request.n_cmpl
    if request.temperature is None and (request.n or 1) == 1:
        request = msgspec.structs.replace(request, temperature=0.0)
    one = generate(
        config,
        caller,
        prefix="cmpl",
        endpoint="infill",
        max_tokens=limit(request),
        prompt=request.input_prefix,
        suffix=request.input_suffix,
        extra=request.input_extra,
        begun=request.prompt,
        indent=request.n_indent,
        prompt_seconds=_seconds(request.t_max_prompt_ms),
        predict_seconds=_seconds(request.t_max_predict_ms),
        **shared(request, config),
    )
    return as_asked(request, [one])


def _seconds(milliseconds: float | None) -> float | None:
    """A deadline; 0 is none."""
    return milliseconds / 1000 if milliseconds else None


INFILL = Dialect(infill, CompletionReply, errors, UNENDING_EVENTS)
