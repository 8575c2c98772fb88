"""Asks before something is lost or opened; without a terminal the option --yes answers."""

from __future__ import annotations

import click

from localspec.errors import RequestError

YES = click.option("-y", "--yes", is_flag=True, help="Do not ask.")


def confirm(question: str, *, yes: bool) -> None:
    """Return if `yes` is set or the user agrees now. Raises RequestError otherwise."""
    if yes:
        return
    try:
        agreed = click.confirm(question, err=True)
    except click.Abort:
        click.echo(err=True)
        raise RequestError("No answer came, so nothing was done.", fix="Add --yes.") from None
    if not agreed:
        raise RequestError("Nothing was done.")
