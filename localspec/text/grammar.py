"""The grammars that requests may ask for, in llguidance's language: schemas, patterns, grammars.

Input is bounded here before any compiler sees it, and the compiler's work is bounded by fuel, not
by a clock: the same grammar always passes or always fails. `compiled` runs native code, which may
crash, so it belongs into a process of its own (`worker/sandbox.py`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from random import Random
from typing import Any, Literal

import llguidance
import msgspec

from localspec.errors import RequestError
from localspec.text import schema

MAX_GRAMMAR_BYTES = 64 * 1024
MAX_SCHEMA_BYTES = 1024 * 1024
"""Limit without keys that only explain the schema; `schema.excess` bounds its content too."""

LIMITS = llguidance.LLParserLimits(
    max_items_in_row=10_000,  # an object may have two thousand optional properties
    initial_lexer_fuel=1_000_000,  # about 20 ms
    step_lexer_fuel=200_000,  # about 15 ms a token
    step_max_items=50_000,
    max_lexer_states=50_000,  # about 100 MB
    max_grammar_size=100_000,
    verbose_errors=False,
)

# A blank, or one or two line breaks and an indentation. Without a limit an unsure model writes
# blanks until its tokens are used up.
_WHITESPACE = r"\x20|(\x0D?\x0A){1,2}[\x20\x09]{0,32}"
_BLANKS = frozenset(b" \t\r\n")

_NOTHING = "it allows nothing, or refers to itself without end"

_WALKS = 4
_WALK_BYTES = 48

Kind = Literal["json_schema", "regex", "choice", "gbnf", "lark"]


class Source(msgspec.Struct, frozen=True, tag="grammar"):
    """A requested grammar. `strict`: nothing of a schema may be relaxed."""

    kind: Kind
    text: str
    strict: bool = False


class Compiled(msgspec.Struct, frozen=True, tag="compiled"):
    """A grammar for the compiler, and the schema's keys that were relaxed."""

    grammar: str
    relaxed: list[str] = []


def source(response_format: dict[str, Any] | None) -> Source | None:
    """The grammar of a `response_format`; None for plain text.

    Besides OpenAI's types there are {"type": "regex", "pattern": ...}, {"type": "choice",
    "choices": [...]}, {"type": "gbnf", "grammar": ...} and {"type": "lark", "grammar": ...}.
    Raises RequestError for a type or a schema that cannot be served.
    """
    if response_format is None or response_format.get("type") == "text":
        return None
    match response_format:
        case {"type": "json_object", "schema": dict(wanted)}:
            return _of_schema(wanted, strict=False)
        case {"type": "json_object"}:
            return _of_schema({"type": "object"}, strict=False)
        case {"type": "json_schema", "json_schema": {"schema": dict(wanted)} as wish}:
            return _of_schema(wanted, strict=wish.get("strict") is True)
        case {"type": "json_schema"}:
            raise refused("json_schema.schema is missing or is not an object")
    return _of_text(response_format)


def rule(response_format: dict[str, Any]) -> str:
    """The Lark rule of a `response_format`, for a grammar around it.

    "" for one that is a whole grammar itself. Raises RequestError.
    """
    match source(response_format):
        case Source("json_schema", text):
            options = {"whitespace_pattern": _WHITESPACE, "lenient": True}
            return f"%json {json.dumps({**json.loads(text), 'x-guidance': options})}"
        case Source("regex", text):
            return f"/{text.replace('/', chr(92) + '/')}/"
        case Source("choice", text):
            return " | ".join(json.dumps(one, ensure_ascii=False) for one in json.loads(text))
    return ""


def compiled(asked: Source) -> Compiled:
    """The grammar for llguidance, tried on a few random beginnings.

    Raises RequestError for one that does not compile, allows nothing, or gives up at once.
    """
    if asked.kind != "json_schema":
        grammar = _translated(asked)
        if why := _failure(grammar)[0]:
            raise refused(why)
        return Compiled(grammar)
    for wanted, dropped in schema.relaxations(json.loads(asked.text), strict=asked.strict):
        grammar = llguidance.LLMatcher.grammar_from_json_schema(
            json.dumps(wanted),
            overrides={"whitespace_pattern": _WHITESPACE, "lenient": not asked.strict},
        )
        why, warnings = _failure(grammar)
        if not why:
            ignored = (schema.keys_of(warning) for warning in warnings)
            return Compiled(grammar, sorted(dropped.union(*ignored)))
    raise refused(why)


def behind(typed: str, compiled: str) -> str:
    """The grammar of answers that begin with the half-typed text; `compiled` describes the rest."""
    literal = json.dumps(typed, ensure_ascii=False).replace("\x7f", r"\x7f")  # Lark's escape
    rule = f"start: {literal} @said"
    whole = [{"lark_grammar": compiled}]
    inner = json.loads(compiled)["grammars"] if compiled.startswith("{") else whole
    return json.dumps(
        {"grammars": [{"lark_grammar": rule}, {**inner[0], "name": "said"}, *inner[1:]]}
    )


def refused(why: str) -> RequestError:
    """The error for a grammar that cannot be used."""
    return RequestError(
        f"The grammar or schema cannot be used: {why}.",
        fix='Simplify it, or ask for {"type": "json_object"}.',
        param="response_format",
    )


def reason(error: str) -> str:
    """The first line of llguidance's error; its internal state is left out."""
    said = " ".join(re.split(r"<(?:state|non-verbose)", error)[0].split())[:300].rstrip(".")
    return _NOTHING if said == "NoExtensionBias" else said


def _of_schema(wanted: dict[str, Any], *, strict: bool) -> Source:
    """The schema as JSON, after bounding it."""
    if why := schema.too_deep(wanted):
        raise refused(why)
    wanted = schema.without_words(wanted)
    if why := schema.excess(wanted, strict=strict):
        raise refused(why)
    try:
        text = json.dumps(wanted, allow_nan=False)
        return Source("json_schema", _bounded(text, MAX_SCHEMA_BYTES), strict)
    except (TypeError, ValueError) as error:
        raise refused(f"it is not JSON: {error}") from error


_NEEDED = {
    "regex": "a pattern", "choice": "choices, at least one",
    "gbnf": "a grammar", "lark": "a grammar",
}  # fmt: skip
"""The field that a format of text needs beside its type, in words."""


def _of_text(wanted: dict[str, Any]) -> Source:
    match wanted:
        case {"type": "regex", "pattern": str(text)}:
            return Source("regex", _bounded(text))
        case {"type": "choice", "choices": [str(), *_] as choices}:
            if not all(isinstance(choice, str) for choice in choices):
                raise refused("choices holds something that is no text")
            return Source("choice", _bounded(json.dumps(choices)))
        case {"type": "gbnf" | "lark" as kind, "grammar": str(text)}:
            return Source(kind, _bounded(text))
    kind = str(wanted.get("type"))[:40]
    if needed := _NEEDED.get(kind):
        raise RequestError(
            f"The format {kind!r} needs {needed}.",
            fix=f"Send {needed} beside its type.",
            param="response_format",
        )
    raise RequestError(
        f"The format {kind!r} is not known.",
        fix='Choose "text", "json_object" or "json_schema".',
        param="response_format",
    )


def _bounded(text: str, most: int = MAX_GRAMMAR_BYTES) -> str:
    if (size := len(text.encode(errors="replace"))) > most:
        raise refused(f"it has {size} bytes, {most} are allowed")
    return text


def _translated(asked: Source) -> str:
    try:
        return llguidance.grammar_from(asked.kind, asked.text)
    except (ValueError, RecursionError) as error:
        raise refused(reason(str(error))) from error


def _failure(grammar: str) -> tuple[str, list[str]]:
    """The reason why the grammar cannot be used, "" if it can; and the compiler's warnings."""
    first = llguidance.LLMatcher(_letters(), grammar, log_level=0, limits=LIMITS)
    for seed in range(_WALKS):
        if first.is_error():
            break
        walker = first.deep_copy()
        _walk(walker, Random(seed) if seed else None)  # noqa: S311 - chance, not secrecy
        if walker.is_error():
            return reason(walker.get_error()) or _NOTHING, []
    return reason(first.get_error()), first.get_grammar_warnings()


def _walk(matcher: llguidance.LLMatcher, random: Random | None) -> None:
    """Advance some bytes into an answer; without `random`, by the smallest that is no blank."""
    for _ in range(_WALK_BYTES):
        mask = int.from_bytes(matcher.compute_bitmask(), "little")
        allowed = [byte for byte in range(256) if mask >> byte & 1]
        going = [byte for byte in allowed if byte not in _BLANKS] or allowed
        if matcher.is_error() or not going:
            return
        matcher.consume_token(random.choice(going) if random else going[0])


def _letters() -> llguidance.LLTokenizer:
    """A vocabulary of all bytes and an end, so that compiling does not depend on the model."""
    wrapped = llguidance.TokenizerWrapper(_Bytes())
    return llguidance.LLTokenizer(wrapped, n_vocab=257, eos_token=256, slices=[])


class _Bytes:
    """The 256 bytes and an end token, in the form that llguidance takes."""

    eos_token_id = 256
    bos_token_id = None
    special_token_ids: Sequence[int] = ()
    tokens: Sequence[bytes] = (*(bytes([byte]) for byte in range(256)), b"")

    def __call__(self, text: bytes) -> list[int]:
        return list(text)
