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
    sections = [f"## {path}\n\n```\n{text}\n```\n" for path, text in _helps(cli, None, "localspec")]
    return "# Commands\n\nWritten by `python -m localspec.cli.help`.\n\n" + "\n".join(sections)


def _helps(
    command: click.Command, parent: click.Context | None, name: str
) -> Iterator[tuple[str, str]]:
    context = click.Context(
        command,
        info_name=name,
        parent=parent,
        terminal_width=WIDTH,
        max_content_width=WIDTH,
        **command.context_settings,
    )
    yield context.command_path, command.get_help(context).rstrip()
    if isinstance(command, click.Group):
        for child in command.list_commands(context):
            found = command.get_command(context, child)
            if found and not found.hidden:
                yield from _helps(found, context, child)


if __name__ == "__main__":
    click.echo(page(), nl=False)
