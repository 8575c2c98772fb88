"""Reads the attachments of a question: files and piped text."""

from __future__ import annotations

from pathlib import Path
from typing import TextIO

from localspec.errors import RequestError, TooLarge

MAX_INPUT_BYTES = 8 * 1024 * 1024
"""As much as the daemon takes in one request by default."""

_PICTURES = (b"\x89PNG", b"\xff\xd8\xff", b"GIF87a", b"GIF89a", b"II*\x00", b"MM\x00*")


def gather(prompt: str | None, files: tuple[Path, ...], stdin: TextIO) -> str:
    """The question: the prompt, then what was piped in, then the files, each in a fence.

    Raises RequestError for what is not UTF-8 text, TooLarge past MAX_INPUT_BYTES.
    """
    parts = [prompt] if prompt else []
    if not stdin.isatty():
        parts.append(_text(stdin.buffer.read(MAX_INPUT_BYTES + 1), "standard input"))
    parts += [fenced(path.name, read(path)) for path in files]
    return "\n\n".join(part for part in parts if part.strip())


def read(path: Path) -> str:
    """A file's text. Raises RequestError, TooLarge."""
    try:
        with path.open("rb") as file:
            return _text(file.read(MAX_INPUT_BYTES + 1), str(path))
    except OSError as error:
        raise RequestError(f"{path} cannot be read: {error.strerror}.") from error


def _text(data: bytes, origin: str) -> str:
    if len(data) > MAX_INPUT_BYTES:
        raise TooLarge(f"{origin} is larger than {MAX_INPUT_BYTES >> 20} MiB.")
    if data.startswith(_PICTURES) or data[8:12] == b"WEBP":
        raise RequestError(
            f"{origin} is a picture, and is no text.",
            fix="/image PATH attaches it, and so does localspec chat -f.",
        )
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise RequestError(
            f"{origin} is not UTF-8 text: {error.reason} at byte {error.start}.",
            fix="Convert it, for example with iconv -f latin1 -t utf-8.",
        ) from error


def fenced(name: str, text: str) -> str:
    """A file as Markdown, in a fence longer than any inside it."""
    fence = "```"
    while fence in text:
        fence += "`"
    end = "" if text.endswith("\n") else "\n"
    return f"{name}:\n{fence}\n{text}{end}{fence}"
