"""`localspec completion`: the script that makes a shell complete our commands."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from localspec.errors import LocalSpecError


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the completion script of a shell.

    \b
    localspec completion bash >> ~/.bashrc
    localspec completion zsh >> ~/.zshrc          # after compinit
    localspec completion fish > ~/.config/fish/completions/localspec.fish
    """  # noqa: D301  \b is click's mark for a paragraph that must not be wrapped
    kind = get_completion_class(shell)
    if kind is None:
        raise LocalSpecError(f"There is no completion for {shell}.")
    root = ctx.find_root()
    click.echo(kind(root.command, {}, "localspec", "_LOCALSPEC_COMPLETE").source())
