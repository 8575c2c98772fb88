"""`localspec presets`: system prompts with names."""

from __future__ import annotations

import sys

import click

from localspec.cli import names
from localspec.cli import presets as kept
from localspec.cli.columns import columns, cut
from localspec.cli.confirm import YES, confirm
from localspec.cli.groups import Group
from localspec.cli.material import piped
from localspec.cli.render import printable
from localspec.errors import RequestError

_NAME = click.argument("name", shell_complete=names.complete_presets)


@click.group(cls=Group)
def presets() -> None:
    """List, show, save and remove system prompts with names.

    A chat takes one by `-s "@translate language=French"`, or by /system and the same.
    """


@presets.command("list")
def list_presets() -> None:
    """Show every preset, the variables that it needs, and how it begins.

    Example: localspec presets list
    """
    for name in kept.names():
        try:
            needs = " ".join(f"{variable}=..." for variable in kept.variables(name))
            begins = kept.text(name).split("\n")[0]
        except RequestError as error:  # one bad file hides no others
            needs, begins = "", error.message
        click.echo(cut(printable(f"@{name:12} {needs:14} {begins}"), columns()))


@presets.command()
@_NAME
def show(name: str) -> None:
    """Print a preset.

    Example: localspec presets show translate
    """
    click.echo(printable(kept.text(name)))


@presets.command()
@click.argument("name")
@click.argument("prompt", required=False)
def save(name: str, prompt: str | None) -> None:
    """Save PROMPT, or what comes through a pipe, under NAME; $word in it is a variable.

    Example: localspec presets save polite 'Answer kindly, in $language.'
    """
    text = prompt if prompt is not None else "" if sys.stdin.isatty() else piped(sys.stdin)
    if not text.strip():
        raise RequestError("There is no text to save.", fix=f"localspec presets save {name} PROMPT")
    click.echo(f"saved: {kept.save(name, text)}")


@presets.command()
@_NAME
@YES
def rm(name: str, *, yes: bool) -> None:
    """Remove a preset of yours, when asked and agreed.

    Example: localspec presets rm polite
    """
    kept.text(name)
    confirm(f"Remove the preset {printable(name)}?", yes=yes)
    kept.remove(name)
    click.echo(f"removed: {name}")
