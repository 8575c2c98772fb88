"""Renders chat templates of GGUF files like Hugging Face does, with hard limits.

A template is a program from an untrusted file. It runs in Jinja's sandbox, with limits on its
source and its output, and in a process of its own (`worker/sandbox.py`) with limited time and
memory.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from datetime import datetime
from functools import lru_cache
from typing import Any, NoReturn

import jinja2
import msgspec
from jinja2 import nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import SandboxedEnvironment

from localspec.errors import TemplateError

MAX_SOURCE_CHARS = 256 * 1024
MAX_OUTPUT_CHARS = 8 * 1024 * 1024
_MAX_INTEGER_BITS = 4096  # larger ones only cost time

CHATML = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""A common format, for tests of templates."""

RAW = (
    "{% for message in messages %}{{ message.content }}"
    "{% if not loop.last %}{{ '\\n\\n' }}{% endif %}{% endfor %}"
)
"""The template for models without one: the messages' text, to be continued."""

_RESERVED = frozenset(
    {
        "messages",
        "bos_token",
        "eos_token",
        "add_generation_prompt",
        "raise_exception",
        "strftime_now",
    }
)


class _TooLong(Exception):
    """The template's output is too long."""


class _Generation(Extension):
    """`{% generation %}` marks the assistant's words for training; here it prints its body."""

    tags = {"generation"}  # noqa: RUF012 - Jinja reads this name from the class

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class _Missing(jinja2.Undefined):
    """A missing value: adding it to a text adds nothing, as in llama.cpp."""

    __slots__ = ()

    def __add__(self, other: Any) -> Any:
        return other if isinstance(other, (str, jinja2.Undefined)) else super().__add__(other)

    def __radd__(self, other: Any) -> Any:
        return other if isinstance(other, (str, jinja2.Undefined)) else super().__radd__(other)


class _Sandbox(SandboxedEnvironment):
    """Hugging Face's environment without arithmetic of unbounded cost.

    Templates may change lists and objects, as some need to: these are copies.
    """

    intercepted_binops = frozenset({"*", "**"})

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        if isinstance(left, int) and isinstance(right, int):
            bits = left.bit_length() * right if operator == "**" else right.bit_length()
            if left.bit_length() + bits > _MAX_INTEGER_BITS:
                raise SecurityError("a number becomes too large")
        return super().call_binop(context, operator, left, right)


class Conversation(msgspec.Struct, frozen=True):
    """Messages, and the template that makes a prompt of them.

    Args:
        source: The Jinja source.
        bos: Text of the token that begins a text; "" if there is none.
        eos: Text of the token that ends one.
        messages: Each with role, content and the client's other fields.
        variables: The request's own, such as `enable_thinking`.
        generation: Whether the prompt ends where the assistant's message begins.
    """

    source: str
    bos: str
    eos: str
    messages: list[dict[str, Any]]
    variables: dict[str, Any] = {}
    generation: bool = True


class Rendered(msgspec.Struct, frozen=True, tag="rendered"):
    """The rendered prompt."""

    text: str


def rendered(asked: Conversation, now: Callable[[], datetime] = datetime.now) -> Rendered:
    """The prompt rendered by the template. Raises TemplateError.

    `now` is the clock that `strftime_now` reads. Variables that the request does not set have
    llama-server's defaults: thinking is on, and the date is today. The time is not limited here.
    """
    if reserved := sorted(_RESERVED.intersection(asked.variables)):
        raise TemplateError(
            f"Variables of the template may not set {reserved[0]}: LocalSpec sets it.",
            param="template_kwargs",
        )
    day = now()
    variables = {
        "tools": None,
        "documents": None,
        "enable_thinking": True,
        "date_string": day.strftime("%d %b %Y"),
        "datetime": day.strftime("%b %d %Y"),
        "functions": _functions(asked.variables.get("tools")),
        **copy.deepcopy(asked.variables),
        "bos_token": asked.bos,
        "eos_token": asked.eos,
        "raise_exception": _refuse,
        "strftime_now": lambda form: now().strftime(form),
        "messages": copy.deepcopy(asked.messages),
        "add_generation_prompt": asked.generation,
    }
    try:
        try:
            text = _joined(_compiled(asked.source).generate(variables))
        except TypeError:
            if variables["tools"] is not None:
                raise
            variables |= {"tools": [], "messages": copy.deepcopy(asked.messages)}
            text = _joined(_compiled(asked.source).generate(variables))
        text.encode()
    except TemplateError:
        raise
    except Exception as error:
        raise _explained(error) from error
    return Rendered(text)


@lru_cache(maxsize=1)
def _compiled(source: str) -> jinja2.Template:
    if len(source) > MAX_SOURCE_CHARS:
        raise TemplateError(
            f"The model's chat template has {len(source)} characters; "
            f"{MAX_SOURCE_CHARS} are allowed.",
            fix="Use /v1/completions with a prompt of your own.",
        )
    environment = _Sandbox(
        trim_blocks=True,
        lstrip_blocks=True,
        optimized=False,  # no template code runs during compilation
        extensions=[loopcontrols, _Generation],
        undefined=_Missing,
    )
    environment.filters["tojson"] = _to_json
    environment.filters["from_json"] = json.loads
    environment.globals["from_json"] = json.loads
    return environment.from_string(source)


def _joined(pieces: Any) -> str:
    """The whole output, up to its limit."""
    out: list[str] = []
    size = 0
    for piece in pieces:
        size += len(piece)
        if size > MAX_OUTPUT_CHARS:
            raise _TooLong(f"it writes more than {MAX_OUTPUT_CHARS} characters")
        out.append(piece)
    return "".join(out)


def _functions(tools: Any) -> str:
    """The functions of `tools` as JSON, for templates that insert them as text."""
    listed = tools if isinstance(tools, list) else ()
    shapes = [tool.get("function", tool) for tool in listed if isinstance(tool, dict)]
    return json.dumps(shapes, ensure_ascii=False)


def _refuse(reason: object) -> NoReturn:
    """The `raise_exception` of templates. Raises TemplateError with the template's reason."""
    raise TemplateError(
        f"The model's chat template refuses these messages: {reason}.", param="messages"
    )


def _explained(error: Exception) -> TemplateError:
    """The TemplateError that describes a failure."""
    fix = "Use /v1/completions with a prompt of your own."
    match error:
        case _TooLong() | MemoryError() | RecursionError():
            what = "was stopped: " + (str(error) or "it needs too much memory")
        case jinja2.TemplateSyntaxError():
            what = f"is not valid Jinja: line {error.lineno}: {error.message}"
        case SecurityError():
            what = f"does something that the sandbox forbids: {error}"
        case jinja2.UndefinedError():
            what = f"needs a value that the messages do not have: {error}"
        case UnicodeEncodeError():
            what = "writes text that is not Unicode"
        case _:
            what = f"failed: {type(error).__name__}: {error}"
    said = f"The model's chat template {what[:500].rstrip('.')}."
    return TemplateError(said, fix=fix, param="messages")


def _as_json(value: object) -> object:
    """A JSON value for what Jinja adds to JSON: undefined values and iterators."""
    if isinstance(value, jinja2.Undefined):
        return None
    if isinstance(value, Iterator):
        return list(value)
    raise TypeError(f"{type(value).__name__} is not JSON")


def _to_json(
    value: object,
    ensure_ascii: bool = False,  # noqa: FBT001, FBT002 - the same
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,  # noqa: FBT001, FBT002 - the same
) -> str:
    """JSON without the HTML escapes of Jinja's own filter."""
    return json.dumps(
        value,
        default=_as_json,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )
