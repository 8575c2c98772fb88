"""Shows a chat's first lines: how it is used, and a prompt, before the line editor is loaded.

prompt-toolkit takes half of the time that a chat takes to open. Keys that are typed meanwhile wait
in the terminal, not echoed, until prompt-toolkit reads them.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator

import click

from localspec.cli.answer import unechoed
from localspec.cli.render import can_redraw
from localspec.cli.theme import Theme

GREETING = "localspec · /help for commands, Ctrl-D to leave"
PROMPT = ">>> "


@contextlib.contextmanager
def opened(look: Theme) -> Iterator[None]:
    """Show hint and prompt for the block; the next output overwrites the prompt."""
    quiet = look.aside and can_redraw(sys.stdout)
    with unechoed():
        sys.stdout.write(f"{click.style(GREETING, dim=True) if quiet else GREETING}\n{PROMPT}\r")
        sys.stdout.flush()
        yield
