"""What the clients are asked to do: words, a function, an object, more than there is time for."""

from __future__ import annotations

from typing import Any, Literal

import pydantic
import recital

SPEECH = "".join(recital.SPEECH)
RESULT = "".join(recital.RESULT)
"""What the model makes of `guess`."""
FOR_EVER = "Go on for ever."

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
