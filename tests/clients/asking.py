"""Requests that the client tests make: text, a tool call, an object, an answer without end."""

from __future__ import annotations

from typing import Any, Literal

import pydantic
import pytest

ON_BOTH = pytest.mark.parametrize(
    "served", ["tiny", pytest.param("real", marks=pytest.mark.clients)], indirect=True
)
"""A test of what holds for any model."""

HELLO = "Say hello, and nothing else."
WHICH = "Call the function guess with the word left, and say what it told you."
FOR_EVER = "Count to a thousand, each number on a line of its own. Then go on for ever."

TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "guess",
        "description": "Guess a word.",
        "parameters": {
            "type": "object",
            "properties": {"word": {"type": "string", "enum": ["left", "right"]}},
            "required": ["word"],
            "additionalProperties": False,
        },
    },
}


class Side(pydantic.BaseModel):
    """An answer with a shape."""

    word: Literal["left", "right"]
    sure: bool


def guess(word: str) -> str:
    """Guess a word."""
    return f"it was {word}"
