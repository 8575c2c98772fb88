"""Themes: how the parts of an answer look, and which theme fits this terminal."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args

Name: TypeAlias = Literal["auto", "dark", "light", "none"]
NAMES: tuple[str, ...] = get_args(Name)


@dataclass(frozen=True, slots=True)
class Theme:
    """rich's styles of the parts of an answer; `pygments` colours code, "" leaves it plain."""

    heading: str = ""
    strong: str = ""
    emphasis: str = ""
    code: str = ""
    aside: str = ""
    """Labels, thinking, figures: what is not the answer itself."""
    trouble: str = ""
    pygments: str = ""


_PLAIN = Theme()
_THEMES = {
    "dark": Theme("bold bright_white", "bold", "italic", "bright_cyan", "dim", "red", "ansi_dark"),
    "light": Theme("bold", "bold", "italic", "blue", "bright_black", "red", "ansi_light"),
    "none": _PLAIN,
}
_LIGHT_BACKGROUNDS = {"7", "15"}


def theme(name: str) -> Theme:
    """The theme of that name; "auto" asks the environment. With NO_COLOR always "none"."""
    if os.environ.get("NO_COLOR"):
        return _PLAIN
    if name == "auto":  # some terminals say "foreground;background" in numbers of their palette
        background = os.environ.get("COLORFGBG", "").rpartition(";")[2]
        name = "light" if background in _LIGHT_BACKGROUNDS else "dark"
    return _THEMES[name]
