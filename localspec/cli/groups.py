"""Groups of commands, which show their help when called alone, and a type of number options."""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterator
from typing import Any

import click

_OTHER_WORDS = {
    "ls": "list",
    "remove": "rm",
    "delete": "rm",
    "del": "rm",
    "download": "pull",
    "fetch": "pull",
    "install": "pull",
    "add": "import",
    "info": "show",
    "inspect": "show",
    "ask": "chat",
    "kill": "stop",
    "log": "logs",
    "validate": "check",
    "edit": "set",
}
"""Other programs' names of commands, and ours."""
_LIKE = 0.6


class Number(click.FloatRange):
    """A number in a range; "nan", which is neither below nor above a bound, is refused."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """The number of a text."""
        found = float(super().convert(value, param, ctx))
        if math.isnan(found):
            self.fail(f"{value} is not a number.", param, ctx)
        return found


class Group(click.Group):
    """A group that shows its help without a subcommand, with exit code 0."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the arguments; without any, show the help."""
        if not args and not ctx.resilient_parsing:
            click.echo(ctx.get_help(), color=ctx.color)
            ctx.exit()
        return super().parse_args(ctx, args)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that the first argument names. Raises UsageError with similar names."""
        name = args[0]
        known = self.get_command(ctx, name) or ctx.resilient_parsing or name.startswith("-")
        if not known:
            ctx.fail(f"No such command '{name}'. {self._advice(ctx, name)}")
        return super().resolve_command(ctx, args)

    def _advice(self, ctx: click.Context, name: str) -> str:
        meant = list(dict.fromkeys(self._meant(ctx, name)))
        if meant:
            return f"Did you mean {' or '.join(f'`{command}`' for command in meant)}?"
        return f"`{ctx.command_path} --help` lists all."

    def _meant(self, ctx: click.Context, name: str) -> Iterator[str]:
        """Commands of that name, here or else in groups below; without one, of similar names."""
        names = self.list_commands(ctx)
        below = [(group, each) for group in self._groups(ctx) for each in self._names(ctx, group)]
        word = _OTHER_WORDS.get(name.lower(), name.lower())
        here = [word] if word in names else []
        found = here or [f"{group} {each}" for group, each in below if each == word]
        found = found or difflib.get_close_matches(word, names, 2, _LIKE)
        near = difflib.get_close_matches(word, {each for _, each in below}, 2, _LIKE)
        found = found or [f"{group} {each}" for group, each in below if each in near]
        yield from (f"{ctx.command_path} {each}" for each in found)

    def _groups(self, ctx: click.Context) -> list[str]:
        """Groups below this one; first `models`, whose commands are looked for most."""
        below = ((name, self.get_command(ctx, name)) for name in self.list_commands(ctx))
        found = [name for name, command in below if isinstance(command, click.Group)]
        return sorted(found, key=lambda name: name != "models")

    def _names(self, ctx: click.Context, group: str) -> list[str]:
        command = self.get_command(ctx, group)
        return command.list_commands(ctx) if isinstance(command, click.Group) else []
