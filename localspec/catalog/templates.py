"""Chat templates that a user gives to models, by `[models.templates]`.

A file of a model may have none, as those of base models, or a wrong one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase
from pathlib import Path

from localspec.errors import ConfigError, escaped

MAX_BYTES = 1024 * 1024
"""Of a file; the sandbox that a template runs in allows a quarter of that as characters."""

CHATML = "chatml"
"""A word instead of a file: the format that models without a template were most often taught in."""

_CHATML = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)

NONE = "none: messages are continued as plain text, one behind the other"
"""The note on a model without a template."""
REMEDY = "[models.templates] in config.toml can give it one"


def given(names: Iterable[str], table: Mapping[str, str], folder: Path) -> str | None:
    """The template for a model of these names; None where the table has no line for it.

    A line is a name or a pattern, in which * is any text, and the path of a file, from `folder` on;
    an exact line goes before patterns. Raises ConfigError.
    """
    spelled = [name.lower() for name in names]
    lines = sorted(table.items(), key=lambda line: "*" in line[0])
    for pattern, file in lines:
        if any(fnmatchcase(name, pattern.lower()) for name in spelled):
            return _CHATML if file.lower() == CHATML else _read(pattern, file, folder)
    return None


def _read(pattern: str, file: str, folder: Path) -> str:
    path = folder / Path(file).expanduser()
    param = f"models.templates.{pattern}"
    try:
        with path.open("rb") as opened:
            data = opened.read(MAX_BYTES + 1)
        text = data.decode("utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8"
        raise ConfigError(
            escaped(f"The chat template {path} cannot be read: {reason}."),
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
