"""Refuses message parts that hold no text, with the same error in every dialect."""

from __future__ import annotations

from typing import Any

from localspec.errors import RequestError
from localspec_daemon.api.bodies import IMAGES

NO_IMAGES = "LocalSpec's APIs take no images yet"
_PICTURES = ("data:image/", "image/")
"""Beginnings of an image's data URL or media type."""


def no_text(param: str, kind: str, data: str = "") -> RequestError:
    """Returns the error for the part at `param`: its kind, the reason and the fix.

    `data` is a file's data URL or media type. No address in it is ever fetched.
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
    """Returns the media type in the `source` of an Anthropic block, such as "image/png", or ""."""
    found = source.get("media_type") if isinstance(source, dict) else None
    return found if isinstance(found, str) else ""
