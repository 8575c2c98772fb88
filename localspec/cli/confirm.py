"""Asking before something is lost or opened; who cannot be asked has to say so: --yes."""

from __future__ import annotations

import click

from localspec.errors import RequestError

YES = click.option("-y", "--yes", is_flag=True, help="Do not ask.")


def confirm(question: str, *, yes: bool) -> None:
    """Go on where `yes` was said before or is said now. Raises RequestError."""
    if yes:
        return
    try:
        agreed = click.confirm(question, err=True)
    except click.Abort:
        click.echo(err=True)
        raise RequestError("Nobody answered, so nothing was done.", fix="Add --yes.") from None
    if not agreed:
        raise RequestError("Nothing was done.")
