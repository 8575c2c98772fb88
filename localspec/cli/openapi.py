"""`localspec openapi`: the daemon's API as an OpenAPI document."""

from __future__ import annotations

import subprocess
import sys

import click


@click.command()
@click.pass_context
def openapi(ctx: click.Context) -> None:
    """Print the API as an OpenAPI document.

    A running daemon serves the same at /openapi.json; none is needed here.

    Example: localspec openapi > localspec.json
    """
    command = [sys.executable, "-P", "-m", "localspec_daemon", "--openapi"]
    ctx.exit(subprocess.run(command, check=False).returncode)  # noqa: S603 - a program of our own
