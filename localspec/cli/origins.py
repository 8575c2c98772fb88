"""The sink that shows the source of each token."""

from __future__ import annotations

from rich.text import Text

from localspec.cli.markdown import folded
from localspec.cli.render import printable
from localspec.cli.screen import Screen
from localspec.client import End, Piece

_COLOURS = {
    "lookup": "cyan",
    "lookahead": "bright_cyan",
    "model": "bright_blue",
    "feature_head": "bright_green",
    "eagle3": "bright_yellow",
    "mtp": "orange3",
    "early_exit": "medium_purple",
    "corpus": "bright_magenta",
    "grammar": "green",
    "prediction": "magenta",
}
_OTHERS = "yellow"
"""The colour of other sources. No colour is plain blue, unreadable on many dark terminals."""


class OriginSink:
    """Shows each token in the colour of its source; no Markdown, whose colours would clash."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._open = Text()
        """The last row, which is drawn and not printed yet."""
        self._seen: dict[str, None] = {}

    def write(self, piece: Piece) -> None:
        """Show the piece token by token; text without an origin stays plain."""
        start = 0
        for length, source in piece.origins:
            self._seen[source] = None
            token = printable(piece.text[start : start + length])
            self._open.append(token, style=origin_style(source))
            start += length
        self._open.append(printable(piece.text[start:]))
        apart = self._open.plain.endswith(" ")
        *whole, self._open = folded(self._open, self._screen.width)
        if apart and not self._open.plain.endswith(" "):  # folding drops a blank behind a full row
            self._open.append(" ")
        if whole:
            self._screen.print(whole)
        self._screen.draw([self._open])

    def close(self, end: End | None) -> None:  # noqa: ARG002  every sink is told
        """Print the last row, and the legend of the colours that occurred."""
        words = [Text(source, style=origin_style(source)) for source in self._seen]
        legend = Text(" ").join([Text("by", style="dim"), *words])
        self._screen.print([self._open, *([legend] if words else [])])


def origin_style(source: str) -> str:
    """The colour of a source, always the same; tokens of the target itself are plain."""
    return "" if source == "target" else _COLOURS.get(source, _OTHERS)
