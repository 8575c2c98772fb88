"""`localspec web`: the daemon's page, in a browser."""

from __future__ import annotations

import sys
import webbrowser

import click

from localspec.cli import waiting


@click.command()
@click.option("--print", "only_print", is_flag=True, help="Print the address and open nothing.")
def web(*, only_print: bool) -> None:
    """Open the page: chat, conversations, and what the machine does.

    The daemon serves it itself, on a loopback port, and starts when needed. The printed address is
    good for one visit within a minute; the browser then may speak until it is closed.

    Example: localspec web
    """
    client = waiting.running_daemon()
    address = client.page()
    if only_print or not sys.stdout.isatty() or not webbrowser.open(address):
        click.echo(address)
