"""Parts of messages that hold no text: what is said of them, in every dialect alike."""

from __future__ import annotations

from typing import Any

from localspec.errors import RequestError
from localspec_daemon.api.bodies import IMAGES

NO_IMAGES = "LocalSpec is built without mtmd, the part of llama.cpp that reads images"
"""What is missing. To compile it takes a minute; what is not written is the engine's side of it:
rows that carry a vector and no token, and positions that do not count tokens."""
_PICTURES = ("data:image/", "image/")
"""How the data or the type of a file begins that is a picture."""


def no_text(param: str, kind: str, data: str = "") -> RequestError:
    """The error for a part at that place: what it is, why it is not read, what to do.

    `data` is what a file holds, or the type of that. No address in it is ever fetched.
    """
    if kind in IMAGES or data.lower().startswith(_PICTURES):
        return RequestError(
            f"{param} is an image, and {NO_IMAGES}.",
            fix="Leave it out, or describe in words what it shows.",
            param=param,
        )
    return RequestError(
        f"{param} is of type {kind[:40]!r}; only text can be read.",
        fix="Send text parts alone.",
        param=param,
    )


def media_type(source: Any) -> str:
    """The type of data that the source of one of Anthropic's blocks tells, such as "image/png"."""
    found = source.get("media_type") if isinstance(source, dict) else None
    return found if isinstance(found, str) else ""
