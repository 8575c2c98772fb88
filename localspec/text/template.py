"""Chat templates of GGUF files, rendered as Hugging Face renders them, under hard bounds.

A template is a program that came with a file. It runs sandboxed, and it may use only so much
source, output, memory and time; exceeding any of them is a `TemplateError`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, NoReturn

import jinja2
from jinja2 import nodes
from jinja2.exceptions import SecurityError
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

from localspec.errors import TemplateError
from localspec.protocol import Message
from localspec.text.bounds import Exceeded, bounded

MAX_SOURCE_CHARS = 256 * 1024
MAX_OUTPUT_CHARS = 8 * 1024 * 1024
MAX_SECONDS = 1.0
MAX_MEMORY_BYTES = 256 * 1024 * 1024
_MAX_INTEGER_BITS = 4096  # larger ones are a way to burn time, never a prompt

CHATML = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
"""For files without a template of their own."""

_RESERVED = frozenset(
    {"messages", "bos_token", "eos_token", "add_generation_prompt", "raise_exception"}
)


class _Generation(Extension):
    """`{% generation %}` marks the assistant's words for training; here it prints its body."""

    tags = {"generation"}  # noqa: RUF012 - Jinja reads this name from the class

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class _Sandbox(ImmutableSandboxedEnvironment):
    """Hugging Face's environment; arithmetic that could run for ever is refused."""

    intercepted_binops = frozenset({"*", "**"})

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        if isinstance(left, int) and isinstance(right, int):
            bits = left.bit_length() * right if operator == "**" else right.bit_length()
            if left.bit_length() + bits > _MAX_INTEGER_BITS:
                raise SecurityError("a number becomes too large")
        return super().call_binop(context, operator, left, right)


class ChatTemplate:
    """How one model wants a conversation written. Model lifetime.

    A source that does not compile is an error of each `render`, not of the construction: the model
    can still complete plain text.

    Args:
        source: The Jinja source in the file; None for ChatML.
        bos: Text of the token that begins a text; "" where there is none.
        eos: Text of the token that ends one.
        now: The clock that `strftime_now` reads.
    """

    def __init__(
        self, source: str | None, *, bos: str, eos: str, now: Callable[[], datetime] = datetime.now
    ) -> None:
        self.source = CHATML if source is None else source
        self.built_in = source is None
        """True when the file has no template; then nothing has put BOS into the text."""
        self._fixed = {"bos_token": bos, "eos_token": eos, "raise_exception": _refuse}
        self._now = now
        self._compiled: jinja2.Template | None = None

    def render(self, messages: Sequence[Message], extra: Mapping[str, Any] | None = None) -> str:
        """The prompt, ending where the assistant begins to speak. Raises TemplateError.

        `extra` are the request's own variables for the template, such as `enable_thinking`.
        """
        if reserved := sorted(_RESERVED.intersection(extra or ())):
            raise TemplateError(
                f"template_kwargs may not set {reserved[0]}: LocalSpec sets it.",
                param="template_kwargs",
            )
        variables = {
            "tools": None,
            "documents": None,
            **(extra or {}),
            **self._fixed,
            "messages": [_as_dict(message) for message in messages],
            "add_generation_prompt": True,
        }
        try:
            with bounded(seconds=MAX_SECONDS, memory_bytes=MAX_MEMORY_BYTES):
                text = _joined(self._compile().generate(variables))
            text.encode()
        except TemplateError:
            raise
        except Exception as error:
            raise _explained(error) from error
        return text

    def _compile(self) -> jinja2.Template:
        if self._compiled is None:
            if len(self.source) > MAX_SOURCE_CHARS:
                raise TemplateError(
                    f"The model's chat template has {len(self.source)} characters; "
                    f"{MAX_SOURCE_CHARS} are allowed.",
                    fix="Use /v1/completions with a prompt of your own.",
                )
            self._compiled = self._environment().from_string(self.source)
        return self._compiled

    def _environment(self) -> _Sandbox:
        environment = _Sandbox(
            trim_blocks=True,
            lstrip_blocks=True,
            optimized=False,  # nothing of a template runs while it is compiled
            extensions=[loopcontrols, _Generation],
        )
        environment.filters["tojson"] = _to_json
        environment.globals["strftime_now"] = lambda form: self._now().strftime(form)
        return environment


def _joined(pieces: Any) -> str:
    """All the output, as long as it stays under its cap."""
    out: list[str] = []
    size = 0
    for piece in pieces:
        size += len(piece)
        if size > MAX_OUTPUT_CHARS:
            raise Exceeded(f"it writes more than {MAX_OUTPUT_CHARS} characters")
        out.append(piece)
    return "".join(out)


def _as_dict(message: Message) -> dict[str, Any]:
    return {**message.extra, "role": message.role, "content": message.content}


def _refuse(reason: object) -> NoReturn:
    """`raise_exception` of templates: the template's own word on what it does not accept."""
    raise TemplateError(
        f"The model's chat template refuses these messages: {reason}.", param="messages"
    )


def _explained(error: Exception) -> TemplateError:
    """What failed, in a sentence."""
    fix = "Use /v1/completions with a prompt of your own."
    match error:
        case Exceeded() | MemoryError() | RecursionError():
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
    return TemplateError(f"The model's chat template {what[:500]}.", fix=fix, param="messages")


def _to_json(
    value: object,
    ensure_ascii: bool = False,  # noqa: FBT001, FBT002 - the same
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,  # noqa: FBT001, FBT002 - the same
) -> str:
    """JSON as it is, where Jinja's own filter would escape HTML's letters."""
    return json.dumps(
        value,
        ensure_ascii=ensure_ascii,
        indent=indent,
        separators=separators,
        sort_keys=sort_keys,
    )
