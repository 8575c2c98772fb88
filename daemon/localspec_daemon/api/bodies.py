"""Reads the fields that the bodies of all dialects share into a `Generate`.

Unknown fields are ignored, because clients send many; null means absent. Numbers have the ranges
of `localspec.ranges`, so that none reaches the engine unchecked.
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Annotated, Any, Literal, TypeAlias, TypeVar

import msgspec
from msgspec import Meta

from localspec import ranges, wording
from localspec.config import Config
from localspec.errors import RequestError
from localspec.outdated import RENAMED_DRAFTERS
from localspec.types import SpeculationParams
from localspec.wire.messages import Generate, Message
from localspec_daemon.api.chain import Chain, biased_texts, given, sampling, whole
from localspec_daemon.api.dialect import Caller, ParsedRequest

Body = TypeVar("Body")

Count: TypeAlias = whole(-2, ranges.MAX_TOKENS.high)  # type: ignore[valid-type]
"""Tokens to generate; below 0 there is no limit but the context."""


class SpeculationOptions(msgspec.Struct, forbid_unknown_fields=True):
    """LocalSpec's own object. Unknown fields in it are refused, since no other client sends it."""

    mode: Literal["auto", "off", "always"] | None = None
    drafters: Annotated[list[str], Meta(max_length=ranges.MAX_DRAFTERS)] | None = None
    max_draft: Annotated[int, ranges.MAX_DRAFT.meta] | None = None
    verify: Literal["coupled", "rejection"] | None = None
    exactness: Literal["auto", "strict"] | None = None


class TextRequest(Chain):
    """The fields of every body that asks for text.

    `aliases` false takes the model's name literally; `return_progress` asks for all events of
    loading.
    """

    model: str | None = None
    aliases: bool | None = None
    stream: bool | None = None
    return_progress: bool | None = None
    speculation: SpeculationOptions | None = None


def decode(data: bytes, kind: type[Body]) -> Body:
    """Parses a JSON body into `kind`. Raises RequestError, which names the wrong field."""
    try:
        return msgspec.json.decode(data, type=kind)
    except msgspec.ValidationError as error:
        fault = wording.fault(error, kind)
        param = ".".join(filter(None, (fault.path, wording.missing(error))))
        where = fault.path or ("" if param else "The body")
        message = f"{where}: {fault.sentence}" if where else fault.sentence
        raise RequestError(message, param=param or None) from error
    except UnicodeDecodeError as error:
        raise RequestError("The body is not UTF-8 text.", fix="Send JSON in UTF-8.") from error
    except msgspec.DecodeError as error:
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
    max_thoughts: float | None = None,
    stop: str | Sequence[str] | None = None,
    speculation: SpeculationOptions | None = None,
    session: str | None = None,
    **more: Any,
) -> Generate:
    """Returns the worker's request; `prefix` begins its id, `more` are further fields of it.

    Defaults come from the configuration; without `session` the conversation has the name from the
    caller's headers. Raises RequestError.
    """
    chosen = sampling(chain, config.sampling)
    return Generate(
        id=identity(prefix),
        endpoint=endpoint,
        client=caller.client,
        sampling=chosen,
        biased_texts=biased_texts(chain),
        speculation=_speculation(speculation, config, mirostat=bool(chosen.mirostat)),
        max_tokens=_most(max_tokens, config.server.max_tokens),
        max_thoughts=_least(max_thoughts, config.server.max_reasoning_tokens),
        stop=stops(stop),
        session=session or caller.session,
        **{name: value for name, value in more.items() if value is not None},
    )


def _most(wanted: float | None, allowed: int) -> int | None:
    """Returns the token limit: the requested one, at most the configured one; None for no limit."""
    if wanted is None or wanted < 0:
        return allowed or None
    return min(int(wanted), allowed) if allowed else int(wanted)


def _least(*limits: float | None) -> int | None:
    """Returns the least limit, None without one; a number below 0 is no limit."""
    return min((int(each) for each in limits if each is not None and each >= 0), default=None)


def answered(request: TextRequest, config: Config, caller: Caller, **fields: Any) -> ParsedRequest:
    """A request for one answer; `fields` are those of its `Generate`. Raises RequestError."""
    one = generate(config, caller, chain=request, speculation=request.speculation, **fields)
    return parsed(request, [one])


def parsed(request: TextRequest, generates: Sequence[Generate]) -> ParsedRequest:
    """The parsed request, with the `Generate` of each choice."""
    return ParsedRequest(
        model=request.model or "",
        generates=tuple(generates),
        stream=bool(request.stream),
        body=request,
        aliases=request.aliases is not False,
        progress=bool(request.return_progress),
        silence_seconds=getattr(request, "sse_ping_interval", None),
    )


def prefilled(messages: list[Message]) -> tuple[list[Message], str]:
    """Splits off a last message of the assistant, which begins the answer; "" if there is none.

    A message with tool calls is complete and stays.
    """
    last = messages[-1] if messages[1:] else None
    if last and last.role == "assistant" and "tool_calls" not in last.extra:
        return messages[:-1], last.content
    return messages, ""


def identity(prefix: str) -> str:
    """Returns a new id: "chatcmpl-", "resp_" or "msg_", as its API has it, and 24 digits."""
    joint = "_" if prefix in {"resp", "msg"} else "-"
    return f"{prefix}{joint}{secrets.token_hex(12)}"


def stops(stop: str | Sequence[str] | None, param: str = "stop") -> list[str]:
    """Returns the stop strings without empty ones, which some clients always send.

    Raises RequestError.
    """
    given = [stop] if isinstance(stop, str) else stop or []
    texts = [text for text in given if text]
    ranges.check_stops(texts, param)
    return texts


def _speculation(
    options: SpeculationOptions | None, config: Config, *, mirostat: bool
) -> SpeculationParams:
    """Returns the request's speculation over the configured defaults.

    Without a choice of drafters the worker picks them. Mirostat adjusts itself with each token of
    the answer, so rejection sampling is not exact with it: RequestError where both are asked for.
    """
    verify = "coupled" if mirostat else config.speculation.verify
    defaults = SpeculationParams(
        mode=config.speculation.mode, max_draft=config.speculation.max_draft, verify=verify
    )
    if not options:
        return defaults
    if mirostat and options.verify == "rejection":
        raise RequestError(
            "mirostat and rejection sampling exclude each other.",
            fix='Leave speculation.verify out, or say "coupled".',
            param="speculation.verify",
        )
    asked = given(options, SpeculationParams)
    if names := asked.get("drafters"):
        asked["drafters"] = [RENAMED_DRAFTERS.get(name, name) for name in names]
    return msgspec.structs.replace(defaults, **asked)
