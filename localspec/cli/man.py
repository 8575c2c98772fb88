"""The manual page localspec(1): the help of every command, in the man macros of roff.

`python -m localspec.cli.man > docs/localspec.1` writes it; a test compares it. An installation puts
it where `man` looks that belongs to the `bin` of the command.
"""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Iterator

import click

from localspec.cli.help import commands
from localspec.cli.main import EPILOG

WIDTH = 72
"""Characters of a line of the file; roff fills them anew."""
VERBATIM = "\b"
"""click's mark for a paragraph that must not be wrapped."""


def page() -> str:
    """The page, with commands in the order of the table in `main.py`."""
    root, *others = commands()
    summary, *described = _paragraphs(root.command.help or "")
    lines = [
        '.TH LOCALSPEC 1 "" LocalSpec "User Commands"',
        ".ad l",
        ".SH NAME",
        *_filled(f"localspec - {summary[0].rstrip('.')}"),
        ".SH SYNOPSIS",
        ".B localspec",
        ".I COMMAND",
        '.RI [ OPTION "]... [" ARGUMENT ]...',
        ".SH EXAMPLES",
        *_body(described),
        ".SH OPTIONS",
        *_options(root),
        ".SH COMMANDS",
    ]
    for context in others:
        lines += _command(context)
    for paragraph in _paragraphs(EPILOG):
        lines += [f".SH {paragraph[1].rstrip(':').upper()}", *_text([VERBATIM, *paragraph[2:]])]
    return "\n".join(lines) + "\n"


def _command(context: click.Context) -> Iterator[str]:
    pieces = context.command.collect_usage_pieces(context)
    yield f'.SS "{_escaped(" ".join([context.command_path, *pieces]))}"'
    yield from _body(_paragraphs(context.command.help or ""))
    yield from _options(context)


def _options(context: click.Context) -> Iterator[str]:
    for parameter in context.command.get_params(context):
        names, text = parameter.get_help_record(context) or ("", "")
        if text:
            yield from (".TP", f"\\fB{_escaped(names)}\\fR", *_filled(text))


def _paragraphs(text: str) -> list[list[str]]:
    """The lines of each paragraph of a help text."""
    cleaned = inspect.cleandoc(text)
    return [paragraph.split("\n") for paragraph in cleaned.split("\n\n") if paragraph.strip()]


def _body(paragraphs: list[list[str]]) -> Iterator[str]:
    """Paragraphs with space between them."""
    for number, paragraph in enumerate(paragraphs):
        if number:
            yield ".PP"
        yield from _text(paragraph)


def _text(paragraph: list[str]) -> Iterator[str]:
    """A paragraph, filled, or line by line as it is."""
    if paragraph[0].strip(" ") == VERBATIM:
        lines = textwrap.dedent("\n".join(paragraph[1:])).split("\n")
        yield from (".RS 4", ".nf", *map(_escaped, lines), ".fi", ".RE")
    else:
        yield from _filled(" ".join(paragraph))


def _filled(text: str) -> Iterator[str]:
    for line in textwrap.wrap(text, WIDTH, break_on_hyphens=False):
        yield _escaped(line)


def _escaped(text: str) -> str:
    """What roff prints as `text`: hyphens that can be copied, and no line that is a request."""
    shown = text.replace("\\", "\\e").replace("-", "\\-").replace('"', "\\(dq")
    return f"\\&{shown}" if shown.startswith((".", "'")) else shown


if __name__ == "__main__":
    click.echo(page(), nl=False)
