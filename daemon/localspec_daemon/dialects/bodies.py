"""What the bodies of all dialects have in common: decoding, sampling, the `Generate` they become.

Unknown fields are ignored, because clients send many; null means absent. Numbers have the ranges
of `localspec.ranges`, so that none reaches the engine unchecked.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal, TypeAlias, TypeVar

import msgspec
from msgspec import Meta

from localspec import ranges, wording
from localspec.config import Config
from localspec.errors import RequestError
from localspec.protocol import Generate, Message
from localspec.ranges import SAMPLING
from localspec.types import SamplingParams, SpeculationParams
from localspec_daemon.dialects.dialect import Asked, Caller, Json

Body = TypeVar("Body", bound=msgspec.Struct)

SEED_BITS = 53
"""A seed that is drawn here is reported, and JavaScript's numbers must be able to repeat it."""

IMAGES = {"image", "image_url", "input_image"}
UNSEEN = "[An image, which this model cannot see.]"
"""Stands for one that a tool gave: refused, it would end that conversation for good, since agents
send it again with every turn. One that somebody attached is refused, who then knows."""

TokenId: TypeAlias = Annotated[int, ranges.TOKEN.meta]
Bias: TypeAlias = Annotated[float, ranges.BIAS.meta]
Repetition: TypeAlias = Annotated[float, Meta(ge=0, le=SAMPLING["repetition_penalty"].high)]
"""0 is how some clients write "off"."""


def _whole(low: float, high: float) -> Any:
    """A whole number, which some clients write as 1.0."""
    return (
        Annotated[int, Meta(ge=low, le=high)]
        | Annotated[float, Meta(ge=low, le=high, multiple_of=1)]
    )


Count: TypeAlias = _whole(-2, ranges.MAX_TOKENS.high)  # type: ignore[valid-type]
"""Tokens to say; less than 0 is as many as there is room for."""
TopK: TypeAlias = _whole(-1, SAMPLING["top_k"].high)  # type: ignore[valid-type]
LastTokens: TypeAlias = Annotated[int, Meta(ge=-1, le=SAMPLING["penalty_last_n"].high)]
"""-1 is llama.cpp's "all there are"; here as many as may be looked at."""
Seed: TypeAlias = int | Annotated[float, Meta(ge=-(2**53), le=2**53, multiple_of=1)]


class SpeculationOptions(msgspec.Struct, forbid_unknown_fields=True):
    """LocalSpec's own object; a typing error in it is worth an answer."""

    mode: Literal["auto", "off", "always"] | None = None
    drafters: Annotated[list[str], Meta(max_length=ranges.MAX_DRAFTERS)] | None = None
    max_draft: Annotated[int, ranges.MAX_DRAFT.meta] | None = None
    verify: Literal["coupled", "rejection"] | None = None


class Unserved(msgspec.Struct):
    """Samplers of others that nobody here serves: `NEUTRAL` has the values that ask for nothing."""

    mirostat: Any = None
    typical_p: Any = None
    dynatemp_range: Any = None
    dry_multiplier: Any = None
    xtc_probability: Any = None
    top_n_sigma: Any = None


NEUTRAL: dict[str, tuple[Any, ...]] = {
    "mirostat": (None, 0),
    "typical_p": (None, 1),
    "dynatemp_range": (None, 0),
    "dry_multiplier": (None, 0),
    "xtc_probability": (None, 0),
    "top_n_sigma": (None, -1, 0),
}
"""What editors send always."""


class Chain(Unserved):
    """The sampler chain as a body may set it, under the names that most dialects share."""

    temperature: Annotated[float, SAMPLING["temperature"].meta] | None = None
    top_k: TopK | None = None
    top_p: Annotated[float, SAMPLING["top_p"].meta] | None = None
    min_p: Annotated[float, SAMPLING["min_p"].meta] | None = None
    repetition_penalty: Repetition | None = None
    repeat_penalty: Repetition | None = None
    frequency_penalty: Annotated[float, SAMPLING["frequency_penalty"].meta] | None = None
    presence_penalty: Annotated[float, SAMPLING["presence_penalty"].meta] | None = None
    penalty_last_n: Annotated[int, SAMPLING["penalty_last_n"].meta] | None = None
    repeat_last_n: LastTokens | None = None
    logit_bias: dict[TokenId, Bias] | None = None
    seed: Seed | None = None


class TextRequest(Chain):
    """What every body that asks for text has besides.

    `aliases` false takes the model's name as it stands; `return_progress` asks for every word
    about loading.
    """

    model: str | None = None
    aliases: bool | None = None
    stream: bool | None = None
    return_progress: bool | None = None
    speculation: SpeculationOptions | None = None


def decode(data: bytes, kind: type[Body]) -> Body:
    """A JSON body of that type. Raises RequestError, which names the field at fault."""
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.ValidationError as error:
        fault = wording.fault(error, kind)
        said = f"{fault.path or 'The body'}: {fault.sentence}"
        raise RequestError(said, param=fault.path or None) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise RequestError(f"The body is not valid JSON: {error}.") from error
    except RecursionError as error:
        raise RequestError("The body is nested too deeply.") from error


def generate(  # noqa: PLR0913 - what every dialect has to say of a request
    config: Config,
    caller: Caller,
    *,
    prefix: str,
    endpoint: str,
    chain: Chain,
    max_tokens: float | None,
    stop: str | Sequence[str] | None = None,
    speculation: SpeculationOptions | None = None,
    session: str | None = None,
    **more: Any,
) -> Generate:
    """The worker's request; `prefix` begins its id, `more` are further fields of it.

    What the chain and the speculation leave out is what the configuration says, and a conversation
    without a name has the one in the caller's headers. Raises RequestError.
    """
    return Generate(
        id=identity(prefix),
        endpoint=endpoint,
        client=caller.client,
        sampling=sampling(chain, config.sampling),
        speculation=_speculation(speculation, config),
        max_tokens=None if max_tokens is None or max_tokens < 0 else int(max_tokens),
        stop=stops(stop),
        session=session or caller.session,
        **{name: value for name, value in more.items() if value is not None},
    )


def answered(request: TextRequest, config: Config, caller: Caller, **fields: Any) -> Asked:
    """A request for one answer; `fields` are those of its `Generate`. Raises RequestError."""
    one = generate(config, caller, chain=request, speculation=request.speculation, **fields)
    return asked(request, [one])


def asked(request: TextRequest, generates: Sequence[Generate]) -> Asked:
    """The request, with what it is to generate."""
    return Asked(
        model=request.model or "",
        generates=tuple(generates),
        stream=bool(request.stream),
        body=request,
        aliases=request.aliases is not False,
        progress=bool(request.return_progress),
    )


def prefilled(messages: list[Message]) -> tuple[list[Message], str]:
    """The messages, and how the answer begins: with a last one of the assistant's own.

    One that calls tools is over.
    """
    last = messages[-1] if messages[1:] else None
    if last and last.role == "assistant" and "tool_calls" not in last.extra:
        return messages[:-1], last.content
    return messages, ""


def identity(prefix: str) -> str:
    """A new id, such as "chatcmpl-" and 24 digits."""
    return f"{prefix}-{secrets.token_hex(12)}"


def sampling(chain: Chain, defaults: SamplingParams) -> SamplingParams:
    """The configured chain with what the request says instead; both use the same names.

    Raises RequestError for a number out of range, and for samplers that are not here.
    """
    refuse_unless(NEUTRAL, chain)
    chosen = _given(chain, SamplingParams)
    if chain.repeat_penalty is not None:
        chosen.setdefault("repetition_penalty", chain.repeat_penalty)
    penalty = chosen.get("repetition_penalty", 1.0) or 1.0  # 0 is how some clients write "off"
    if penalty not in SAMPLING["repetition_penalty"]:
        name = "repeat_penalty" if chain.repetition_penalty is None else "repetition_penalty"
        raise RequestError(f"{name} = {penalty} is out of range.", param=name)
    if "repetition_penalty" in chosen:
        chosen["repetition_penalty"] = penalty
    window = chain.repeat_last_n if chain.penalty_last_n is None else chain.penalty_last_n
    if window is not None:
        chosen["penalty_last_n"] = int(SAMPLING["penalty_last_n"].high) if window < 0 else window
    if chain.top_k is not None:
        chosen["top_k"] = max(int(chain.top_k), 0)  # -1 is how others write "no limit"
    chosen["seed"] = _seed(chain.seed)
    return msgspec.structs.replace(defaults, **chosen)


def refuse_unless(neutral: Mapping[str, tuple[Any, ...]], asked: msgspec.Struct) -> None:
    """Raises RequestError for a field that would change the answer and is served by nobody here."""
    for name, values in neutral.items():
        if getattr(asked, name) not in values:
            raise RequestError(f"{name} is not served.", fix=f"Leave {name} out.", param=name)


def stops(stop: str | Sequence[str] | None, param: str = "stop") -> list[str]:
    """The stop strings; empty ones, which some clients always send, stop nothing.

    Raises RequestError.
    """
    given = [stop] if isinstance(stop, str) else stop or []
    texts = [text for text in given if text]
    ranges.check_stops(texts, param)
    return texts


def _seed(seed: float | None) -> int:
    if seed is None:
        return secrets.randbits(SEED_BITS)
    if not -(2**63) <= seed < 2**64:
        raise RequestError(f"seed = {seed} does not fit 64 bits.", param="seed")
    return int(seed) % 2**64


def _speculation(options: SpeculationOptions | None, config: Config) -> SpeculationParams:
    """The configured defaults; which drafters they mean is known where they are loaded."""
    defaults = SpeculationParams(
        mode=config.speculation.mode,
        max_draft=config.speculation.max_draft,
        verify=config.speculation.verify,
    )
    if not options:
        return defaults
    return msgspec.structs.replace(defaults, **_given(options, SpeculationParams))


def _given(source: msgspec.Struct, target: type[msgspec.Struct]) -> Json:
    """The fields of `target` that `source` sets."""
    values = ((name, getattr(source, name, None)) for name in target.__struct_fields__)
    return {name: value for name, value in values if value is not None}
