"""The help of every command as one Markdown page.

`python -m localspec.cli.help > docs/help.md` writes it; a test compares it.
"""

from __future__ import annotations

from collections.abc import Iterator

import click

from localspec.cli.main import cli

WIDTH = 88


def page() -> str:
    """The page, with commands in the order of the table in `main.py`."""
    sections = [
        f"## {context.command_path}\n\n```\n{context.get_help().rstrip()}\n```\n"
        for context in commands()
    ]
    return "# Commands\n\nWritten by `python -m localspec.cli.help`.\n\n" + "\n".join(sections)


def commands() -> Iterator[click.Context]:
    """Every command that is not hidden, each in the context of its group, groups first."""
    yield from _below(cli, None, "localspec")


def _below(
    command: click.Command, parent: click.Context | None, name: str
) -> Iterator[click.Context]:
    context = click.Context(
        command,
        info_name=name,
        parent=parent,
        terminal_width=WIDTH,
        max_content_width=WIDTH,
        **command.context_settings,
    )
    yield context
    if isinstance(command, click.Group):
        for child in command.list_commands(context):
            found = command.get_command(context, child)
            if found and not found.hidden:
                yield from _below(found, context, child)


if __name__ == "__main__":
    click.echo(page(), nl=False)
