"""`localspec cache`: shows and clears what is kept of prompts, so that they are not read again."""

from __future__ import annotations

import time

import click
import msgspec

from localspec.cli import chosen
from localspec.cli.columns import columns, hung
from localspec.cli.groups import Group
from localspec.cli.status import share, size, span
from localspec.client import Json
from localspec.errors import NotRunning, escaped
from localspec.prefixes import overview as prefixes

_JSON = click.option("--json", "as_json", is_flag=True, help="JSON on stdout, for machines.")


@click.group(cls=Group)
def cache() -> None:
    """Show and clear what is kept of prompts that were read.

    Keys and values of conversations stay in files of yours alone, so that no prompt is read twice,
    also after a restart; `[cache]` in config.toml says how much.
    """


@cache.command("list")
@_JSON
def list_kept(*, as_json: bool = False) -> None:
    """Show what is kept, of which models, and what that has saved.

    Example: localspec cache list
    """
    found = _found()
    if as_json:
        click.echo(msgspec.json.encode(found).decode())
        return
    width = columns()
    for model in found["models"]:
        moment = time.strftime("%Y-%m-%d %H:%M", time.localtime(model["used_at"]))
        texts = f"{model['texts']} text{'s' * (model['texts'] != 1)}"
        held = f"{texts}, {model['tokens']} tokens, {size(model['bytes'])}, used {moment}"
        click.echo(hung(f"{escaped(model['model'])}: ", held, width))
    part = share(found["bytes"], found["most_bytes"])
    click.echo(
        hung("disk: ", f"{size(found['bytes'])} of {size(found['most_bytes'])}{part}", width)
    )
    click.echo(hung("where: ", escaped(found["directory"]), width))
    saved = found["saved"]
    said = f"{saved['tokens']} tokens of {saved['hits']} prompts were not read again"
    click.echo(hung("saved: ", f"{said}, which had taken {span(saved['seconds'])}", width))


@cache.command()
@_JSON
def clear(*, as_json: bool) -> None:
    """Delete all of it, on disk and in the memory of loaded models.

    The conversations that `localspec chats` lists stay: their next question is read anew.

    Example: localspec cache clear
    """
    try:
        found = chosen.client().clear_cache()
    except NotRunning:
        found = msgspec.to_builtins(prefixes.clear())
    if as_json:
        click.echo(msgspec.json.encode(found).decode())
        return
    files = f"{found['files']} file{'s' * (found['files'] != 1)}"
    click.echo(f"cleared: {files}, {size(found['bytes'])}")


def _found() -> Json:
    """The daemon's overview of what is kept; where none runs, that of the files on disk."""
    try:
        return chosen.client().cache()
    except NotRunning:
        found: Json = msgspec.to_builtins(prefixes.overview(chosen.settings().cache.disk_bytes))
        return found
