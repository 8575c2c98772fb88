"""Prints turns of a kept conversation, as the chat showed them."""

from __future__ import annotations

from collections.abc import Sequence

from rich.text import Text

from localspec.chats.transcript import Turn
from localspec.cli.live import MarkdownSink
from localspec.cli.opening import PROMPT
from localspec.cli.render import printable
from localspec.cli.screen import Screen
from localspec.cli.theme import Theme
from localspec.client import Piece


def show(turns: Sequence[Turn], screen: Screen, look: Theme, most_rows: int | None = None) -> None:
    """Print turns: the first rows of each question as typed, answers rendered and whole."""
    for place, turn in enumerate(turns):
        if turn["role"] == "user":
            asked = Text(PROMPT + _begun(printable(turn["content"]), most_rows), style=look.strong)
            screen.print([Text(), asked] if place else [asked])
        else:
            sink = MarkdownSink(screen, look)
            sink.write(Piece(turn["content"]))
            sink.close(None)


def _begun(text: str, most_rows: int | None) -> str:
    rows = text.strip("\n").split("\n")
    more = ["..."] if most_rows is not None and len(rows) > most_rows else []
    return "\n".join([*rows[:most_rows], *more])
