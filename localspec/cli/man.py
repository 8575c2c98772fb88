"""The manual pages: localspec(1), one of each command, and localspec-config(5).

Commands are described by their help, the configuration by the comments of `config.toml`.
`python -m localspec.cli.man docs/man` writes them all; a test compares them. An installation puts
them where `man` looks for the pages of the command's `bin` directory.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import click

from localspec import paths
from localspec.cli.help import commands
from localspec.cli.main import EPILOG
from localspec.cli.roff import escaped, filled, item, verbatim

VERBATIM = "\b"
"""click's mark for a paragraph that must not be wrapped."""
CODE = " " * 4
"""The beginning of a comment's line that must not be wrapped."""
PARTS = {"1": "User Commands", "5": "File Formats"}


def pages() -> dict[str, str]:
    """The text of each page by the name of its file."""
    root, *others = commands()
    families = itertools.groupby(others, lambda context: context.command_path.split()[1])
    every = [(name, list(family)) for name, family in families]
    config = paths.shipped("config.toml").read_text(encoding="utf-8")
    made = {
        "localspec.1": _overview(root, [family[0] for _, family in every]),
        **{f"localspec-{name}.1": _command(*family) for name, family in every},
        "localspec-config.5": _configuration(config.splitlines()),
    }
    return {name: "\n".join([*_title(name), *lines]) + "\n" for name, lines in made.items()}


def _title(name: str) -> tuple[str, str]:
    page, _, part = name.rpartition(".")
    return f'.TH {escaped(page.upper())} {part} "" LocalSpec "{PARTS[part]}"', ".ad l"


def _overview(root: click.Context, others: Sequence[click.Context]) -> Iterator[str]:
    """The list of commands, and the options of all."""
    summary, *described = _paragraphs(root.command.help or "")
    yield from _name("localspec", summary)
    yield from (".SH SYNOPSIS", ".B localspec", ".I COMMAND", '.RI [ OPTION "]... [" ARGUMENT ]...')
    yield from (".SH EXAMPLES", *_body(described))
    yield from (".SH OPTIONS", *_options(root))
    yield from (".SH COMMANDS", "Each has a page of its own, such as localspec\\-chat(1).")
    for context in others:
        yield from item(context.info_name or "", _paragraphs(context.command.help or "")[0][0])
    for paragraph in _paragraphs(EPILOG):
        yield f".SH {paragraph[1].rstrip(':').upper()}"
        yield from _text([VERBATIM, *paragraph[2:]])
    yield from _see("localspec-config(5)")


def _command(first: click.Context, *below: click.Context) -> Iterator[str]:
    """The page of one command and its subcommands."""
    summary, *described = _paragraphs(first.command.help or "")
    yield from _name(first.command_path.replace(" ", "-"), summary)
    yield from (".SH SYNOPSIS", f".B {_usage(first)}")
    if described:
        yield from (".SH DESCRIPTION", *_body(described))
    yield from (".SH OPTIONS", *_options(first))
    if below:
        yield ".SH COMMANDS"
    for context in below:
        yield f'.SS "{_usage(context)}"'
        yield from _body(_paragraphs(context.command.help or ""))
        yield from _options(context)
    yield from _see("localspec(1)", "localspec-config(5)")


def _configuration(lines: Iterable[str]) -> Iterator[str]:
    """The page of config.toml: a comment describes the lines below it, the first one the file."""
    yield from _name("localspec-config", ["the configuration of LocalSpec"])
    yield from (".SH SYNOPSIS", ".I ~/.config/localspec/config.toml")
    yield ".SH DESCRIPTION"
    comment: list[str] = []
    for line in lines:
        if line.startswith("#"):
            comment.append(line.removeprefix("#").removeprefix(" "))
            continue
        if line.startswith("["):
            yield f'.SH "{line}"'
            yield from _comment(comment)
        elif line and comment:
            yield from item(line, " ".join(comment))
        elif line:
            yield from verbatim([line])
        else:
            yield from _comment(comment)
        comment = []
    yield from _see("localspec(1)", "localspec-config(1)")


def _comment(lines: Iterable[str]) -> Iterator[str]:
    for code, part in itertools.groupby(lines, lambda line: line.startswith(CODE)):
        text = list(part)
        yield from verbatim(text) if code else filled(" ".join(text))


def _name(name: str, summary: Sequence[str]) -> Iterator[str]:
    yield from (".SH NAME", *filled(f"{name} - {' '.join(summary).rstrip('.')}"))


def _see(*others: str) -> Iterator[str]:
    yield from (".SH SEE ALSO", escaped(", ".join(others)))


def _usage(context: click.Context) -> str:
    pieces = context.command.collect_usage_pieces(context)
    return escaped(" ".join([context.command_path, *pieces]))


def _options(context: click.Context) -> Iterator[str]:
    for parameter in context.command.get_params(context):
        if record := parameter.get_help_record(context):
            yield from item(*record)


def _paragraphs(text: str) -> list[list[str]]:
    """The lines of each paragraph of a help text."""
    cleaned = inspect.cleandoc(text)
    return [paragraph.split("\n") for paragraph in cleaned.split("\n\n") if paragraph.strip()]


def _body(paragraphs: list[list[str]]) -> Iterator[str]:
    """Paragraphs separated by blank lines."""
    for number, paragraph in enumerate(paragraphs):
        if number:
            yield ".PP"
        yield from _text(paragraph)


def _text(paragraph: list[str]) -> Iterator[str]:
    """A paragraph, filled; one with click's mark stays line by line as it is."""
    if paragraph[0].strip(" ") == VERBATIM:
        yield from verbatim(paragraph[1:])
    else:
        yield from filled(" ".join(paragraph))


@click.command()
@click.argument("directory", type=click.Path(file_okay=False, path_type=Path))
def write(directory: Path) -> None:
    """Write every page into DIRECTORY, below man1 and man5; pages of commands that went, go."""
    for old in directory.glob("man*/localspec*"):
        old.unlink()
    for name, text in pages().items():
        path = directory / f"man{name[-1]}" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write()
