"""Reads the pictures that go with a question of the chat."""

from __future__ import annotations

import base64
from pathlib import Path

from localspec import paths
from localspec.chats.transcript import Conversation
from localspec.cli.material import MAX_INPUT_BYTES, check_picture, picture
from localspec.errors import RequestError, TooLarge

_MOST_BYTES = MAX_INPUT_BYTES * 3 // 4 - 64 * 1024
"""As much as fits into one request in base64, beside some text."""


def is_picture(path: Path) -> bool:
    """Whether a file begins as a picture does; False for one that cannot be read.

    False also for a pipe, such as the shell's `<(...)`: bytes read from it could not be read again.
    """
    try:
        with paths.open_regular(path) as file:
            return bool(picture(file.read(12)))
    except OSError:
        return False


def attach(conversation: Conversation, path: Path) -> str:
    """Add a picture to the conversation. Returns the label that shows it in a question.

    Raises RequestError for what is no picture, TooLarge for one that no request holds.
    """
    data = _read(path)
    uri = f"data:image/{picture(data)};base64,{base64.b64encode(data).decode()}"
    number, label = 1, f"[image: {path.name}]"
    while conversation.images.get(label, uri) != uri:
        number += 1
        label = f"[image: {path.name} ({number})]"
    conversation.images[label] = uri
    return label


def _read(path: Path) -> bytes:
    try:
        with paths.open_regular(path) as file:
            data = file.read(_MOST_BYTES + 1)
    except OSError as error:
        raise RequestError(f"{path} cannot be read: {error.strerror}.") from error
    if not (kind := picture(data)):
        raise RequestError(
            f"{path} is no picture in PNG, JPEG, WebP, GIF or BMP.",
            fix="/file PATH attaches a text.",
        )
    check_picture(path, kind)
    if len(data) > _MOST_BYTES:
        raise TooLarge(f"{path} is larger than {_MOST_BYTES >> 20} MiB.", fix="Scale it down.")
    return data
