"""Checks the bounds of a request before it reaches native code. Pure."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from types import MappingProxyType

from localspec import ranges
from localspec.engine.images import words
from localspec.errors import RequestError, TooLarge
from localspec.ranges import Range
from localspec.types import SamplingParams, SpeculationParams
from localspec.wire.messages import Generate
from localspec.wire.values import Adapter

MAX_PROMPT_BYTES = 8 * 1024 * 1024
MAX_WORD_CHARS = 200_000
"""The most characters in a row that are all blanks, or none: see `process.STACK_BYTES`."""

MAX_ECHOED = 1 << 17
"""Tokens and alternatives of one echo: some megabytes in a frame."""

_STEP_CHARS = MAX_WORD_CHARS // 2
_RUNS = (re.compile(r"\S*"), re.compile(r"\s*"))


def check(
    request: Generate,
    *,
    n_vocab: int,
    drafters: Collection[str],
    coupled_only: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Refuse a request with a value out of range. Raises RequestError, which names the field.

    `coupled_only` has the drafters that allow only coupled verification, each with the reason.
    """
    pieces = request.prompt_pieces
    sources = (request.messages, request.prompt, request.prompt_tokens, pieces)
    if sum(source is not None for source in sources) != 1:
        raise RequestError("A request needs exactly one of messages, prompt and prompt tokens.")
    if request.messages is not None and not request.messages:
        raise RequestError("messages is empty.", fix="Send at least one message.", param="messages")
    if request.max_tokens is not None:
        _in_range("max_tokens", request.max_tokens, ranges.MAX_TOKENS)
    so_far = [*words(request.so_far.prompt), *request.so_far.tokens] if request.so_far else ()
    numbers = [each for each in pieces or () if isinstance(each, int)]
    check_tokens((*(request.prompt_tokens or ()), *numbers, *so_far), n_vocab, "prompt")
    ranges.check_stops(request.stop)
    check_sampling(request.sampling, n_vocab)
    _check_speculation(request.speculation, drafters)
    _check_coupled(request.speculation, coupled_only)
    if request.after_sampling and request.sampling.mirostat:
        raise RequestError(
            "post_sampling_probs and mirostat exclude each other: its law is gone once a token is "
            "chosen.",
            param="post_sampling_probs",
        )
    if request.ignore_eos and (request.response_format or {}).get("type", "text") != "text":
        raise RequestError(
            "ignore_eos and response_format exclude each other: finished JSON must end.",
            param="ignore_eos",
        )


def scales(request: Generate, adapters: Sequence[Adapter]) -> tuple[float, ...]:
    """The scale of each adapter of the model. Raises RequestError for an unknown adapter."""
    if request.lora is None:
        return tuple(each.scale for each in adapters)
    for id_, scale in request.lora.items():
        if not 0 <= id_ < len(adapters):
            has = f"0 to {len(adapters) - 1}" if adapters else "none"
            raise RequestError(
                f"lora names the adapter {id_}; this model has {has}.",
                fix="GET /lora-adapters lists them; [models.adapters] in config.toml adds some.",
                param="lora",
            )
        if scale not in ranges.ADAPTER_SCALE:
            raise RequestError(
                f"The scale of adapter {id_} is {scale}.",
                fix=f"Choose a value from {ranges.ADAPTER_SCALE}.",
                param="lora",
            )
    return tuple(request.lora.get(id_, 0.0) for id_ in range(len(adapters)))


def check_tokens(tokens: Iterable[int], n_vocab: int, param: str) -> None:
    """Refuse a token that the model does not have. Raises RequestError."""
    for token in tokens:
        if not 0 <= token < n_vocab:
            raise _no_such_token(param, token, n_vocab)


def check_scores(request: Generate, tokens: int) -> None:
    """Refuse an echo whose logprobs are more than an answer should hold. Raises RequestError."""
    if request.echo and request.logprobs is not None:
        most = MAX_ECHOED // (1 + request.logprobs)
        if tokens > most:
            raise RequestError(
                f"The prompt has {tokens} tokens; with {request.logprobs} alternatives to each, "
                f"logprobs of {most} can be echoed.",
                fix="Ask for fewer alternatives, or echo a shorter prompt.",
                param="logprobs",
            )


def check_text(text: str, param: str = "prompt") -> None:
    """Refuse a text that a tokenizer may not survive. Raises TooLarge, which names the field."""
    size = len(text.encode())
    if size > MAX_PROMPT_BYTES:
        raise TooLarge(
            f"{param} comes to {size} bytes; {MAX_PROMPT_BYTES} are the most.",
            fix="Send a shorter text.",
            param=param,
        )
    if _has_long_word(text):
        raise TooLarge(
            f"{param} has more than {MAX_WORD_CHARS} characters without a blank, or of blanks.",
            fix="Break it up, or leave encoded data out.",
            param=param,
        )


def _has_long_word(text: str) -> bool:
    """Whether a run of blanks, or of other characters, is longer than MAX_WORD_CHARS.

    The text is read in steps of half that length: such a run fills at least one whole step. Only
    around a filled step is the run measured. All searches are short, because a long one would hold
    up every other thread.
    """
    for start in range(0, len(text) - _STEP_CHARS + 1, _STEP_CHARS):
        for run in _RUNS:
            if _length(run, text, start, start + _STEP_CHARS) < _STEP_CHARS:
                continue
            before = text[max(0, start - _STEP_CHARS) : start][::-1]
            begun = start - _length(run, before, 0, len(before))
            end = begun + MAX_WORD_CHARS + 1
            if start + _length(run, text, start, end) == end:
                return True
    return False


def _length(run: re.Pattern[str], text: str, start: int, end: int) -> int:
    found = run.match(text, start, end)
    return found.end() - start if found else 0


def check_sampling(sampling: SamplingParams, n_vocab: int) -> None:
    """Refuse numbers out of range, and biases of unknown tokens. Raises RequestError."""
    for name, range_ in ranges.SAMPLING.items():
        _in_range(name, getattr(sampling, name), range_)
    count = len(sampling.logit_bias)
    if count > ranges.MAX_BIASES:
        raise RequestError(
            f"logit_bias names {count} tokens; {ranges.MAX_BIASES} are the most.",
            param="logit_bias",
        )
    for token, bias in sampling.logit_bias.items():
        if not 0 <= token < n_vocab:
            raise _no_such_token("logit_bias", token, n_vocab)
        if bias != -math.inf:  # which forbids the token
            _in_range("logit_bias", bias, ranges.BIAS)
    if not ranges.known_samplers(sampling.samplers):
        raise RequestError("samplers has a step that is not served.", param="samplers")
    if not ranges.short_breakers(sampling.dry_sequence_breakers):
        name = "dry_sequence_breakers"
        raise RequestError(f"{name} has too many texts, or one too long.", param=name)


def _check_speculation(speculation: SpeculationParams, drafters: Collection[str]) -> None:
    if speculation.max_draft is not None:
        _in_range("speculation.max_draft", speculation.max_draft, ranges.MAX_DRAFT)
    for name in speculation.drafters or ():
        if name not in drafters:
            known = ", ".join(sorted(drafters)) or "none"
            raise RequestError(
                f"No drafter {name[:40]!r} is loaded.",
                fix=f"Loaded: {known}.",
                param="speculation.drafters",
            )


def _check_coupled(speculation: SpeculationParams, coupled_only: Mapping[str, str]) -> None:
    """Refuse rejection sampling for a drafter that was asked for and cannot be verified by it."""
    for name in speculation.drafters or ():
        if speculation.verify == "rejection" and name in coupled_only:
            raise RequestError(coupled_only[name], param="speculation.verify")


def _in_range(name: str, value: float, range_: Range) -> None:
    if value not in range_:
        raise RequestError(
            f"{name} = {value} is out of range.",
            fix=f"Choose a value from {range_}.",
            param=name,
        )


def _no_such_token(field: str, token: int, n_vocab: int) -> RequestError:
    return RequestError(
        f"{field} holds token {token}; this model's tokens are 0 to {n_vocab - 1}.", param=field
    )
