"""Reads message parts that hold an image, and refuses those that hold neither text nor an image.

Each dialect has the same errors. An image comes as data; no address in a part is ever fetched.
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import Any

from localspec.errors import RequestError
from localspec.wire.values import Image

IMAGES = {"image", "image_url", "input_image"}
"""The types of parts that hold an image."""
SHOWING = {"user", "tool"}
"""The roles whose messages may have images."""
_PICTURES = ("data:image/", "image/")
"""Beginnings of an image's data URL or media type."""
_DATA = re.compile(r"data:[\w.+-]+/[\w.+-]+(?:;[\w.+=-]+)*;base64,", re.IGNORECASE)
_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]*:", re.IGNORECASE)
_SHOWN = 40


def is_image(kind: str, data: str = "") -> bool:
    """Whether a part is an image, by its type or a file's data URL or media type."""
    return kind in IMAGES or data.lower().startswith(_PICTURES)


def image(param: str, given: Any) -> Image:
    """Returns the image that a part gives: a data URL, or base64 alone.

    `given` may be an object with a `url`, as in OpenAI's chats. Raises RequestError.
    """
    if isinstance(given, dict):
        given = given.get("url")
    if not isinstance(given, str) or not given.strip():
        raise RequestError(
            f"{param} is an image without data.",
            fix="Send a data URL: data:image/png;base64,...",
            param=param,
        )
    head = _DATA.match(given)
    if head is None and given.lower().startswith("data:"):
        raise _no_base64(param)
    if head is None and _ADDRESS.match(given):
        raise RequestError(
            f"{param} is the address of an image, and the daemon fetches none: {given[:_SHOWN]!r}.",
            fix="Send the image itself, as data:image/png;base64,...",
            param=param,
        )
    return Image(param, decoded(param, given[head.end() :] if head else given))


def source(param: str, given: Any, role: str = "tool") -> Image:
    """Returns the image in the `source` of an Anthropic block. Raises RequestError."""
    if role not in SHOWING:
        raise no_image(param)
    kind = given.get("type") if isinstance(given, dict) else None
    if kind == "url":
        return image(param, given.get("url") or "url:")
    return image(param, given.get("data") if isinstance(given, dict) else None)


def decoded(param: str, text: str) -> bytes:
    """Returns the bytes that base64 text spells. Raises RequestError."""
    bare = "".join(text.split())
    standard = bare.replace("-", "+").replace("_", "/").rstrip("=")
    try:
        return base64.b64decode(standard + "=" * (-len(standard) % 4), validate=True)
    except (binascii.Error, ValueError) as error:
        raise _no_base64(param) from error


def _no_base64(param: str) -> RequestError:
    return RequestError(
        f"{param} is an image whose data is not base64.",
        fix="Encode the file's bytes by base64.",
        param=param,
    )


def no_text(param: str, kind: str) -> RequestError:
    """Returns the error for the part at `param` that holds neither text nor an image."""
    return RequestError(
        f"{param} is of type {kind[:_SHOWN]!r}; only text and images can be read.",
        fix="Send text and images alone.",
        param=param,
    )


def no_image(param: str) -> RequestError:
    """Returns the error for an image where a template takes none, as in a system prompt."""
    return RequestError(
        f"{param} is an image, and only messages of users and results of tools may have one.",
        fix="Send it in a message of the user.",
        param=param,
    )


def media_type(source: Any) -> str:
    """Returns the media type in the `source` of an Anthropic block, such as "image/png", or ""."""
    found = source.get("media_type") if isinstance(source, dict) else None
    return found if isinstance(found, str) else ""
