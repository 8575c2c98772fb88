"""Chat templates from the user's `[models.templates]`.

The file of a model may have no template, as with base models, or a wrong one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from pathlib import Path

from localspec import paths
from localspec.errors import ConfigError, escaped, unreadable

MAX_BYTES = 1024 * 1024
"""Limit of a template file in bytes; the sandbox allows a quarter of it in characters."""

CHATML = "chatml"
"""The word that selects the built-in ChatML template, the most common format, instead of a file."""

_CHATML = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

NONE = "none: messages are continued as plain text, one behind the other"
"""The note about a model without a template."""
REMEDY = "[models.templates] in config.toml can give it one"


def given(names: Iterable[str], table: Mapping[str, str], folder: Path) -> str | None:
    """The template for a model with these names; None if no line of the table matches.

    A line maps a name or a pattern (* is any text) to a file's path relative to `folder`; exact
    names go before patterns. Raises ConfigError.
    """
    spelled = [name.lower() for name in names]
    lines = sorted(table.items(), key=lambda line: "*" in line[0])
    for pattern, file in lines:
        if any(fnmatchcase(name, pattern.lower()) for name in spelled):
            return _CHATML if file.lower() == CHATML else _read(pattern, file, folder)
    return None


def _read(pattern: str, file: str, folder: Path) -> str:
    path = folder / paths.expanded(file)
    param = f"models.templates.{pattern}"
    try:
        with paths.open_regular(path) as opened:
            data = opened.read(MAX_BYTES + 1)
        text = data.decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(
            escaped(f"The chat template {path} cannot be read: {unreadable(error)}."),
            fix=f'Correct {param} in the configuration, or write "{CHATML}" there.',
            param=param,
        ) from error
    if len(data) > MAX_BYTES:
        raise ConfigError(
            escaped(f"The chat template {path} has more than {MAX_BYTES} bytes."),
            fix=f"Correct {param} in the configuration.",
            param=param,
        )
    return text
