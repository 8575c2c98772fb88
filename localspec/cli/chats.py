"""`localspec chats`: the conversations that are kept on this machine."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict
from pathlib import Path

import click

from localspec import paths
from localspec.chats import archive
from localspec.chats.archive import Kept
from localspec.chats.transcript import Conversation
from localspec.cli import chosen, names
from localspec.cli.columns import columns, cut, folded
from localspec.cli.confirm import YES, confirm
from localspec.cli.groups import Group
from localspec.cli.render import can_redraw, emit, printable
from localspec.errors import escaped

_JSON = click.option("--json", "as_json", is_flag=True, help="JSON on stdout, for machines.")
_TITLE_COLUMNS = 40
"""Least columns of a title, the first question: in fewer it is not recognised."""
_NAME = click.argument("name", shell_complete=names.complete_chats)


@click.group(cls=Group)
def chats() -> None:
    """List, search, show, export and remove kept conversations.

    They are files of yours alone in the state directory; `chat.keep = false` in config.toml keeps
    none.
    """


@chats.command("list")
@_JSON
def list_chats(*, as_json: bool = False) -> None:
    """Show every kept conversation, the latest first.

    Example: localspec chats list
    """
    found = list(archive.listed())
    if as_json:
        emit([asdict(kept) for kept in found])
        return
    for kept in found:
        _tell(kept)
    if not found:
        click.echo("No conversation is kept yet; `localspec chat` begins one.", err=True)


@chats.command()
@click.argument("words", nargs=-1, required=True)
@_JSON
def search(words: tuple[str, ...], *, as_json: bool) -> None:
    """Show conversations in which all WORDS occur, and where.

    Example: localspec chats search monad
    """
    found = list(archive.search(" ".join(words)))
    if as_json:
        emit([{**asdict(kept), "line": line} for kept, line in found])
        return
    for kept, line in found:
        _tell(kept)
        click.echo(cut(escaped(f"    {line[:200]}"), columns()))
    if not found:
        said = "No kept conversation has all of these words; `localspec chats list` shows them."
        click.echo(said, err=True)


@chats.command()
@_NAME
@_JSON
def show(name: str, *, as_json: bool) -> None:
    """Print a conversation: in a terminal as the chat shows it, in a pipe as Markdown.

    Example: localspec chats show "$(localspec chats list --json | jq -r .[0].name)"
    """
    conversation = archive.load(name)
    if as_json:
        emit({"model": conversation.model, "messages": conversation.whole()})
        return
    if can_redraw(sys.stdout):
        _draw(conversation)
    else:
        click.echo(printable(archive.markdown(conversation)), nl=False)


@chats.command()
@_NAME
@click.option("--as", "kind", type=click.Choice(["md", "json"]), default="md", show_default=True)
@click.option(
    "-o",
    "--output",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Instead of standard output.",
)
def export(name: str, kind: str, output: Path | None) -> None:
    """Write a conversation as Markdown, or as the messages of a request.

    Example: localspec chats export plans -o plans.md
    """
    conversation = archive.load(name)
    text = archive.markdown(conversation)
    if kind == "json":
        messages = {"model": conversation.model, "messages": conversation.whole()}
        text = json.dumps(messages, ensure_ascii=False, indent=1) + "\n"
    if output is None:
        click.echo(printable(text) if sys.stdout.isatty() else text, nl=False)
        return
    paths.write_named(output, text.encode())
    click.echo(f"written: {output}", err=True)


@chats.command()
@click.argument(
    "chosen", nargs=-1, required=True, metavar="NAME...", shell_complete=names.complete_chats
)
@YES
def rm(chosen: tuple[str, ...], *, yes: bool) -> None:
    """Remove conversations, when asked and agreed.

    Example: localspec chats rm plans
    """
    what = f"{len(chosen)} conversations" if len(chosen) > 1 else f"the conversation {chosen[0]}"
    confirm(f"Remove {escaped(what)}?", yes=yes)
    for name in chosen:
        archive.remove(name)
        click.echo(f"removed: {name}")


def _draw(conversation: Conversation) -> None:
    """Draw a conversation as the chat showed it, at this terminal's width."""
    from rich.console import Console  # noqa: PLC0415  slow to import, and most are not at a terminal
    from rich.text import Text  # noqa: PLC0415  as above

    from localspec.cli import retold  # noqa: PLC0415  as above
    from localspec.cli.screen import Screen  # noqa: PLC0415  as above
    from localspec.cli.theme import theme  # noqa: PLC0415  as above

    screen, look = Screen(Console(highlight=False)), theme(chosen.chat().theme)
    if conversation.system:
        screen.print([Text(f"system: {printable(conversation.system)}", style=look.aside)])
    retold.show(conversation.turns, screen, look)


def _tell(kept: Kept) -> None:
    """Print a row of the list; in a narrow window its title stands below it."""
    moment = time.strftime("%Y-%m-%d %H:%M", time.localtime(kept.changed_at))
    row, width = escaped(f"{kept.name:24}  {moment}  {counted(kept.turns):>9}  "), columns()
    if width is None or width - len(row) >= _TITLE_COLUMNS:
        click.echo(cut(row + escaped(kept.title), width))
        return
    for line in folded(row, escaped(kept.title), width):
        click.echo(line)


def counted(turns: int) -> str:
    """`1 turn`, `3 turns`."""
    return f"{turns} turn{'s' * (turns != 1)}"
