"""Defines a recipe: which file of a tool names its server, and what to write there."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

Json: TypeAlias = dict[str, Any]
Form: TypeAlias = Literal["json", "block", "shell"]
"""How a recipe gets into its file: merged into a JSON object, as a marked block of text, or not at
all, because the tool is configured by environment variables."""


OUTPUT_SHARE = 4
"""The context over the part of it that is kept for an answer: an agent that keeps a larger part
forgets too soon what it has read."""


@dataclass(frozen=True, slots=True)
class Daemon:
    """The daemon's address, and the model that a tool is to use.

    `url` is the address without a path: over TCP with `token`, or, for a tool that can use a Unix
    socket, http://localspec with `socket`. A conversation may have `context` tokens; 0 where that
    is not known.
    """

    model: str
    socket: str
    url: str = "http://localspec"
    token: str = "none"  # noqa: S105 - the placeholder where no token is needed
    context: int = 0

    @property
    def output(self) -> int:
        """Tokens to keep for one answer of an agent; 0 where the context is not known."""
        return self.context // OUTPUT_SHARE


@dataclass(frozen=True, slots=True)
class Recipe:
    """The configuration of one tool.

    Args:
        title: The tool's own name.
        form: How the text gets into the file.
        text: The configuration; JSON for the form "json".
        file: Where it belongs, below the home directory; None where that is the user's business.
        tcp: Whether the tool cannot speak through a Unix socket.
        comment: What begins a comment in the file.
        then: What the user does next.
        redirects: What else changes for the user: a sentence, where every later use of the tool
            goes to the daemon.
        places: Where the file may be instead, in the order in which the tool looks.
    """

    title: str
    form: Form
    text: Callable[[Daemon], str]
    file: str | None = None
    tcp: bool = True
    comment: str = "#"
    then: str = ""
    redirects: str = ""
    places: tuple[str, ...] = ()

    def path(self, home: Path, variables: Mapping[str, str]) -> Path | None:
        """The tool's file: an existing one, else the usual path; `variables` are the environment's.

        Links are followed, so that a link into a directory of dotfiles is not replaced by a file.
        """
        if self.file is None:
            return None
        there = (_moved(home, place, variables) for place in self.places)
        found = next((place for place in there if place.exists()), None)
        return (found or _moved(home, self.file, variables)).resolve()


_MOVED_BY = {
    ".config": "XDG_CONFIG_HOME",
    ".codex": "CODEX_HOME",
    ".claude": "CLAUDE_CONFIG_DIR",
}
"""Directories in the home, and the variable that moves each to another place."""
_ON_MACOS = {
    ".config/Code": "Library/Application Support/Code",
    ".config/io.datasette.llm": "Library/Application Support/io.datasette.llm",
}
"""Directories of programs that follow the platform's conventions on macOS."""


def _moved(home: Path, file: str, variables: Mapping[str, str]) -> Path:
    if sys.platform == "darwin":
        for ours, theirs in _ON_MACOS.items():
            if file.startswith(f"{ours}/"):
                return home / theirs / file.removeprefix(f"{ours}/")
    first, _, rest = file.partition("/")
    chosen = Path(variables.get(_MOVED_BY.get(first, ""), ""))
    return chosen / rest if chosen.is_absolute() else home / file  # XDG's are absolute or ignored


def as_json(make: Callable[[Daemon], Json]) -> Callable[[Daemon], str]:
    """The function of a recipe's text, by one that makes a JSON object."""
    return lambda daemon: json.dumps(make(daemon), indent=2) + "\n"
