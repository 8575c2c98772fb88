"""What a recipe is: which file of a tool says where its models are, and what to say there."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

Json: TypeAlias = dict[str, Any]
Form: TypeAlias = Literal["json", "block", "shell"]
"""How a recipe gets into its file: merged into a JSON object, as a marked block of text, or not at
all, because what is to be set is the environment."""


OUTPUT_SHARE = 4
"""An agent that reserves more of a context for an answer forgets what it has read too soon."""


@dataclass(frozen=True, slots=True)
class Daemon:
    """Where the daemon answers, and which model is meant.

    `url` is the address without a path: over TCP with `token`, or, where the tool can be told a
    socket, http://localspec with `socket`. A conversation may have `context` tokens; 0 where that
    is not known.
    """

    model: str
    socket: str
    url: str = "http://localspec"
    token: str = "none"  # noqa: S105 - what stands where none is needed
    context: int = 0

    @property
    def output(self) -> int:
        """Tokens to keep for one answer of an agent; 0 where the context is not known."""
        return self.context // OUTPUT_SHARE


@dataclass(frozen=True, slots=True)
class Recipe:
    """One tool.

    Args:
        title: The tool's own name.
        form: How the text gets into the file.
        text: The configuration; JSON for the form "json".
        file: Where it belongs, below the home directory; None where that is the user's business.
        tcp: Whether the tool cannot speak through a Unix socket.
        comment: What begins a comment in the file.
        then: What the user does next.
    """

    title: str
    form: Form
    text: Callable[[Daemon], str]
    file: str | None = None
    tcp: bool = True
    comment: str = "#"
    then: str = ""

    def path(self, home: Path) -> Path | None:
        """The file, with links followed: a link to dotfiles must stay one."""
        return (home / self.file).resolve() if self.file else None


def as_json(make: Callable[[Daemon], Json]) -> Callable[[Daemon], str]:
    """A recipe's text from an object."""
    return lambda daemon: json.dumps(make(daemon), indent=2) + "\n"
