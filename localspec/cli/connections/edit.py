"""Puts a configuration into the file of another tool, and takes it out. Pure: text in, text out.

What a user wrote is never lost: a JSON file is only changed in the keys that are ours, a text file
only in a marked block, and both remember what was there before.
"""

from __future__ import annotations

import json
from typing import Any

from localspec.cli.connections.recipe import Json
from localspec.errors import ConfigError

BEGIN, END = "localspec connect: begin", "localspec connect: end"


def merged(text: str, ours: Json) -> tuple[str, Json]:
    """Put our values into a JSON file; returns it and the values they replaced, for `unmerged`.

    Raises ConfigError for a file that is no plain JSON object: one with comments would lose them.
    """
    theirs = _object(text)
    before = _put(theirs, ours)
    return json.dumps(theirs, indent=2, ensure_ascii=False) + "\n", before


def unmerged(text: str, ours: Json, before: Json) -> str:
    """Remove from the file those of our values that are still as we set them."""
    theirs = _object(text)
    _take(theirs, ours, before)
    return json.dumps(theirs, indent=2, ensure_ascii=False) + "\n" if theirs else ""


def blocked(text: str, ours: str, comment: str) -> str:
    """A text file with our block at its end, in the place of an earlier one."""
    rest = unblocked(text, comment)
    if rest and not rest.endswith("\n"):
        rest += "\n"
    return f"{rest}{comment} {BEGIN}\n{ours}{comment} {END}\n"


def unblocked(text: str, comment: str) -> str:
    """The file without our block. Raises ConfigError where only half of it is there."""
    begin, end = f"{comment} {BEGIN}\n", f"{comment} {END}\n"
    if (begin in text) != (end in text):
        raise ConfigError(
            "Of the block that LocalSpec wrote only a part is left.",
            fix=f'Remove what is left of it, between "{BEGIN}" and "{END}".',
        )
    if begin not in text:
        return text
    before, _, behind = text.partition(begin)
    return before + behind.partition(end)[2]


def _object(text: str) -> Json:
    try:
        found = json.loads(text or "{}")
    except ValueError as error:
        raise ConfigError(
            f"The file is not plain JSON ({error}), and comments in it would be lost.",
            fix="Put the keys that are printed without --write into it.",
        ) from error
    if not isinstance(found, dict):
        raise ConfigError("The file is no JSON object.", fix="Look at it: nothing was changed.")
    return found


def _put(theirs: Json, ours: Json) -> Json:
    """Set our values; returns the replaced ones."""
    before: Json = {}
    for key, value in ours.items():
        there: Any = theirs.get(key)
        if isinstance(value, dict) and isinstance(there, dict):
            before[key] = _put(there, value)
        else:
            if key in theirs:
                before[key] = there
            theirs[key] = value
    return before


def _take(theirs: Json, ours: Json, before: Json) -> None:
    for key, value in ours.items():
        there, was = theirs.get(key), before.get(key, {})
        if isinstance(value, dict) and isinstance(there, dict) and isinstance(was, dict):
            _take(there, value, was)
            if not there and key not in before:
                del theirs[key]
        elif key in theirs and there == value:
            if key in before:
                theirs[key] = before[key]
            else:
                del theirs[key]
