"""A conversation: what was said and with which settings, in memory and as a saved file."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from localspec import paths
from localspec.errors import LocalSpecError, RequestError

Turn: TypeAlias = dict[str, str]
FORMAT = 1
MODES = {"on": "always", "off": "off", "auto": "auto"}
"""What people type -> the request's speculation.mode."""


@dataclass(slots=True)
class Conversation:
    """Turns of user and assistant in order, the system prompt apart from them.

    `draft` is a key of MODES; `params` are further request fields (temperature, seed, max_tokens).
    """

    model: str | None = None
    system: str = ""
    turns: list[Turn] = field(default_factory=list)
    draft: str = "auto"
    show_origins: bool = False
    params: dict[str, Any] = field(default_factory=dict)

    def messages(self) -> list[Turn]:
        """The turns as the API wants them, the system prompt first."""
        head = [{"role": "system", "content": self.system}] if self.system else []
        return head + self.turns

    def request(self) -> dict[str, Any]:
        """The request's fields beside the messages."""
        fields: dict[str, Any] = dict(self.params)
        if self.model:
            fields["model"] = self.model
        if self.draft != "auto":
            fields["speculation"] = {"mode": MODES[self.draft]}
        if self.show_origins:
            fields["return_origins"] = True
        return fields

    def say(self, role: str, text: str) -> None:
        """Add a turn."""
        self.turns.append({"role": role, "content": text})

    def take_back(self, role: str) -> str | None:
        """Remove the last turn if `role` said it, and return its text."""
        if self.turns and self.turns[-1]["role"] == role:
            return self.turns.pop()["content"]
        return None

    def save(self, name: str) -> Path:
        """Write to the state directory under `name`, replacing what had that name."""
        path = _path(name)
        kept = {"version": FORMAT, "model": self.model, "system": self.system, "turns": self.turns}
        paths.make_private(path.parent)
        paths.write_atomically(path, json.dumps(kept, ensure_ascii=False, indent=1).encode())
        return path

    def load(self, name: str) -> None:
        """Replace turns, system prompt and model by those saved under `name`.

        Raises RequestError when there are none, LocalSpecError when the file is damaged.
        """
        path = _path(name)
        try:
            kept = json.loads(path.read_bytes())
            turns = [{"role": t["role"], "content": t["content"]} for t in kept["turns"]]
            model, system = kept["model"], kept["system"]
        except FileNotFoundError as error:
            known = ", ".join(saved()) or "none yet"
            raise RequestError(
                f'There is no saved chat "{name}".', fix=f"Saved: {known}."
            ) from error
        except (ValueError, KeyError, TypeError) as error:
            raise LocalSpecError(f"{path} is not a saved chat: {error!r}.") from error
        self.turns, self.model, self.system = turns, model, system


def saved() -> list[str]:
    """Names of the saved chats."""
    return sorted(path.stem for path in _directory().glob("*.json"))


def _directory() -> Path:
    return paths.state_dir() / "chats"


def _path(name: str) -> Path:
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", name):
        raise RequestError(
            f'"{name}" cannot name a saved chat.', fix="Use letters, digits, dot, dash, underscore."
        )
    return _directory() / f"{name}.json"
