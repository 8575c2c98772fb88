"""llama-server's POST /infill, used by editors for completion. Pure, no HTTP."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

from localspec.config import Config
from localspec.wire.values import Snippet
from localspec_daemon.api.bodies import decode, generate
from localspec_daemon.api.chain import all_known
from localspec_daemon.api.dialect import Caller, Dialect, ParsedRequest
from localspec_daemon.api.framing import UNENDING_EVENTS
from localspec_daemon.api.llama_server import CompletionReply, LlamaRequest, own
from localspec_daemon.api.openai import limit, with_choices

MAX_SNIPPETS = 256


class InfillRequest(LlamaRequest):
    """A body of POST /infill; `prompt` begins the middle. An unknown sampler drops `samplers`."""

    input_prefix: str = ""
    input_suffix: str = ""
    input_extra: Annotated[list[Snippet], Meta(max_length=MAX_SNIPPETS)] | None = None
    prompt: str | None = None


def infill(data: bytes, config: Config, caller: Caller) -> ParsedRequest:
    """Parses a body of POST /infill. Raises RequestError.

    A single completion is greedy unless a temperature is sent. Several keep the configured
    temperature: greedy ones would all be the same.
    """
    request = decode(data, InfillRequest)
    if not all_known(request.samplers):
        request.samplers = None
    if request.temperature is None and (request.n or request.n_cmpl or 1) == 1:
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
        **own(request, config),
    )
    return with_choices(request, [one])


INFILL = Dialect(infill, CompletionReply, UNENDING_EVENTS)
