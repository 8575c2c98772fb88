"""A conversation in memory: its turns and its settings."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, TypeAlias

Turn: TypeAlias = dict[str, str]
MODES = {"on": "always", "off": "off", "auto": "auto"}
"""The words of `/draft`, each with the request's speculation.mode."""


@dataclass(slots=True)
class Conversation:
    """Turns of user and assistant in order, the system prompt apart from them.

    `draft` is a key of MODES; `params` are further request fields (temperature, seed, max_tokens).
    The first `trimmed` turns are not sent any more. `name` is the name of the conversation's file,
    and `stamp` a hash of this file as it was last read or written for the conversation. `images`
    are pictures as data: URIs by the labels that stand for them in questions; they are not kept.
    `prediction` is a text that much of the next answer will be like; it is not kept either.
    """

    model: str | None = None
    system: str = ""
    turns: list[Turn] = field(default_factory=list)
    draft: str = "auto"
    show_origins: bool = False
    params: dict[str, Any] = field(default_factory=dict)
    trimmed: int = 0
    name: str = ""
    stamp: str = ""
    images: dict[str, str] = field(default_factory=dict)
    prediction: str = ""

    def messages(self) -> list[dict[str, Any]]:
        """The turns that are sent, as the API wants them, the system prompt first."""
        return [*self._head(), *map(self._sent, self.turns[self.trimmed :])]

    def _sent(self, turn: Turn) -> dict[str, Any]:
        """The message of a turn; a text with labels becomes parts, each image before its label."""
        labels = [label for label in self.images if label in turn["content"]]
        if not labels or turn["role"] != "user":
            return dict(turn)
        return {"role": turn["role"], "content": [*self._parts(turn["content"], labels)]}

    def _parts(self, text: str, labels: list[str]) -> Iterator[dict[str, Any]]:
        for piece in re.split(f"({'|'.join(map(re.escape, labels))})", text):
            if piece in labels:
                yield {"type": "image_url", "image_url": {"url": self.images[piece]}}
            if piece.strip():
                yield {"type": "text", "text": piece}

    def whole(self) -> list[Turn]:
        """All messages, including those that are not sent any more."""
        return self._head() + self.turns

    def _head(self) -> list[Turn]:
        return [{"role": "system", "content": self.system}] if self.system else []

    def request(self) -> dict[str, Any]:
        """The request's fields beside the messages."""
        fields: dict[str, Any] = dict(self.params)
        if self.model:
            fields["model"] = self.model
        if self.prediction:
            fields["prediction"] = self.prediction
        if self.draft != "auto":
            fields["speculation"] = {"mode": MODES[self.draft]}
        if self.show_origins:
            fields["return_origins"] = True
        return fields

    @property
    def count(self) -> int:
        """The number of turns; a question and its answer are one."""
        return sum(map(self._asks, range(len(self.turns))))

    def say(self, role: str, text: str) -> None:
        """Add a turn."""
        self.turns.append({"role": role, "content": text})

    def take_back(self, role: str) -> str | None:
        """Remove the last message if it is of `role`, and return its text."""
        if not self.turns or self.turns[-1]["role"] != role:
            return None
        said = self.turns.pop()["content"]
        self.trimmed = min(self.trimmed, len(self.turns))
        return said

    def last(self, role: str) -> str:
        """The latest message of `role`; "" if none."""
        said = (turn["content"] for turn in reversed(self.turns) if turn["role"] == role)
        return next(said, "")

    def forget(self) -> None:
        """Begin anew, with the same settings."""
        self.turns.clear()
        self.images.clear()
        self.trimmed, self.name, self.stamp = 0, "", ""

    def trim(self, pairs: int) -> int:
        """Leave out the oldest questions and their answers. Returns how many questions.

        The last question is always sent, and what is sent begins with a question.
        """
        questions = [place for place in range(self.trimmed, len(self.turns)) if self._asks(place)]
        if len(questions) < 2:  # noqa: PLR2004  the last one stays
            return 0
        left_out = min(pairs, len(questions) - 1)
        self.trimmed = questions[left_out]
        return left_out

    def make_room(self, share: float) -> int:
        """Leave out the oldest turns until at most this share of the text is left.

        Returns how many questions were left out. The last question always stays.
        """
        most = share * sum(len(turn["content"]) for turn in self.turns[self.trimmed :])
        left_out = 0
        while gone := self.trim(1):
            left_out += gone
            if sum(len(turn["content"]) for turn in self.turns[self.trimmed :]) <= most:
                break
        return left_out

    def _asks(self, place: int) -> bool:
        return self.turns[place]["role"] == "user"
