"""Reads the attachments of a question: files and piped text."""

from __future__ import annotations

from pathlib import Path
from typing import TextIO

from localspec import paths
from localspec.errors import RequestError, TooLarge

MAX_INPUT_BYTES = 8 * 1024 * 1024
"""As much as the daemon takes in one request by default."""

_PICTURES = {
    b"\x89PNG": "png", b"\xff\xd8\xff": "jpeg", b"GIF8": "gif", b"BM": "bmp", b"RIFF": "webp",
    b"II*\x00": "tiff", b"MM\x00*": "tiff",
}  # fmt: skip
"""First bytes of pictures, and their media types."""


def picture(data: bytes) -> str:
    """The media type's name of a picture, "" for other data."""
    found = next((name for first, name in _PICTURES.items() if data.startswith(first)), "")
    return found if found != "webp" or data[8:12] == b"WEBP" else ""


def check_picture(origin: object, kind: str) -> None:
    """Refuse the one kind that the worker does not decode. Raises RequestError."""
    if kind == "tiff":
        raise RequestError(
            f"{origin} is a picture in TIFF, which no model is shown.",
            fix="Save it as PNG or JPEG.",
        )


def gather(prompt: str | None, files: tuple[Path, ...], stdin: TextIO) -> str:
    """The question: the prompt, then what was piped in, then the files, each in a fence.

    Raises RequestError for what is not UTF-8 text, TooLarge past MAX_INPUT_BYTES.
    """
    parts = [prompt] if prompt else []
    if not stdin.isatty():
        parts.append(piped(stdin))
    parts += [fenced(path.name, read(path)) for path in files]
    return "\n\n".join(part for part in parts if part.strip())


def read(path: Path) -> str:
    """A file's text. Raises RequestError, TooLarge."""
    try:
        data = paths.read_named(path, MAX_INPUT_BYTES + 1)
    except OSError as error:
        raise RequestError(f"{path} cannot be read: {error.strerror}.") from error
    return _text(data, str(path))


def piped(stdin: TextIO) -> str:
    """The text that a pipe brings. Raises RequestError, TooLarge."""
    return _text(stdin.buffer.read(MAX_INPUT_BYTES + 1), "standard input")


def _text(data: bytes, origin: str) -> str:
    if len(data) > MAX_INPUT_BYTES:
        raise TooLarge(f"{origin} is larger than {MAX_INPUT_BYTES >> 20} MiB.")
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        _refuse_picture(data, origin)
        raise RequestError(
            f"{origin} is not UTF-8 text: {error.reason} at byte {error.start}.",
            fix="Convert it, for example with iconv -f latin1 -t utf-8.",
        ) from error
    if "\0" in text:  # text may begin with BM, but has no zero bytes
        _refuse_picture(data, origin)
    return text


def _refuse_picture(data: bytes, origin: str) -> None:
    if kind := picture(data):
        check_picture(origin, kind)
        raise RequestError(
            f"{origin} is a picture, and is no text.",
            fix="/image PATH attaches it, and so does localspec chat -f.",
        )


def fenced(name: str, text: str) -> str:
    """A file as Markdown, in a fence longer than any inside it."""
    fence = "```"
    while fence in text:
        fence += "`"
    end = "" if text.endswith("\n") else "\n"
    return f"{name}:\n{fence}\n{text}{end}{fence}"
