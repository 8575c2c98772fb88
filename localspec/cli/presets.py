"""System prompts with names, and variables in them: `-s @translate`, `/system @translate ...`.

A preset is a text file in the configuration's directory; `$name` in it is a variable, `$$` is a $.
A few are built in; a file of the same name takes precedence.
"""

from __future__ import annotations

import re
import shlex
import string
from pathlib import Path

from localspec import paths
from localspec.errors import RequestError

MARK = "@"
_DOLLAR = "Write $$ for a dollar."
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,39}")
BUILT_IN = {
    "brief": "Answer in as few words as are clear. No preamble, no summary.",
    "code": "You are an experienced programmer. Answer with code first, whole and ready to run, "
    "then with the one thing that must be known about it.",
    "review": "Review the $language that you are given. List defects only, the gravest first, "
    "each with the line and the change that mends it.",
    "translate": "Translate everything that you are given into $language. "
    "Keep its meaning, tone and layout. Answer with the translation alone.",
}


def directory() -> Path:
    """The directory of the user's presets; it need not exist."""
    return paths.config_file().parent / "presets"


def names() -> list[str]:
    """Names of all presets, sorted."""
    found = (path.stem for path in directory().glob("*.txt"))
    return sorted({*BUILT_IN, *filter(_NAME.fullmatch, found)})


def text(name: str) -> str:
    """The preset as it was written. Raises RequestError with the names that there are."""
    try:
        return _path(name).read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        if name in BUILT_IN:
            return BUILT_IN[name]
    except UnicodeDecodeError as error:
        raise RequestError(f"{_path(name)} is not UTF-8 text.") from error
    raise RequestError(f"There is no preset {MARK}{name}.", fix=f"There are: {', '.join(names())}.")


def variables(name: str) -> list[str]:
    """Names of the variables in a preset, in order of appearance."""
    return string.Template(text(name)).get_identifiers()


def save(name: str, prompt: str) -> Path:
    """Keep a system prompt under a name. Raises RequestError, OSError."""
    template = string.Template(prompt)
    if not template.is_valid():
        raise RequestError("A $ begins a variable such as $language.", fix=_DOLLAR)
    paths.write_named(_path(name), prompt.strip().encode() + b"\n")
    return _path(name)


def remove(name: str) -> None:
    """Delete a preset's file. Raises RequestError if there is none, OSError."""
    try:
        _path(name).unlink()
    except FileNotFoundError:
        kind = "is built in" if name in BUILT_IN else "does not exist"
        raise RequestError(f"The preset {MARK}{name} {kind}.") from None


def expanded(written: str) -> str:
    """The text of `@name variable=value ...`; other text is unchanged. Raises RequestError."""
    if not written.startswith(MARK):
        return written
    try:
        name, *words = shlex.split(written.removeprefix(MARK)) or [""]
    except ValueError as error:
        raise RequestError(f"{written} cannot be read: {error}.") from error
    prompt = string.Template(text(name))
    if not prompt.is_valid():
        raise RequestError(f"{MARK}{name} has a $ that begins no variable.", fix=_DOLLAR)
    given = dict(word.partition("=")[::2] for word in words if "=" in word)
    missing = [each for each in prompt.get_identifiers() if each not in given]
    named = (word.partition("=") for word in words)
    unknown = [each for each, sign, _ in named if not (sign and each in prompt.get_identifiers())]
    if missing or unknown:
        example = " ".join(f"{each}=..." for each in prompt.get_identifiers())
        raise RequestError(
            f"{MARK}{name} "
            + (f"needs {', '.join(missing)}." if missing else f"knows no {', '.join(unknown)}."),
            fix=f"{MARK}{name} {example}".strip(),
        )
    return prompt.substitute(given)


def _path(name: str) -> Path:
    if not _NAME.fullmatch(name):
        raise RequestError(
            f'"{name}" cannot name a preset.', fix="Use letters, digits, dash, underscore."
        )
    return directory() / f"{name}.txt"
