"""Finds files that git ignores: by the `.gitignore` files of a repository, from its root down."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from pathspec import GitIgnoreSpec

_FILE_BYTES = 1 << 18
_LINES = 2000
_LINE_CHARS = 200
_STARS = re.compile(r"[^/]*\*[^/]*\*[^/]*\*[^/]*\*")
"""Lines with four stars in one part of a path, which are left out. A pattern becomes a regular
expression, which takes seconds for a name that nearly fits many stars; no project writes four."""


class Ignored:
    """The patterns of a walk that begins at `root`, which may lie inside a repository."""

    def __init__(self, root: Path) -> None:
        self._specs: dict[str, GitIgnoreSpec] = {}
        top = next((each for each in (root, *root.parents) if (each / ".git").exists()), None)
        self._top = str(top or root)
        if top is None:
            return
        between = [each for each in root.parents if each.is_relative_to(top)]
        for directory in between:
            self.read(directory)
        self._take(
            str(top), [*_lines(top / ".git" / "info" / "exclude"), *_lines(top / ".gitignore")]
        )

    def read(self, directory: Path) -> None:
        """Read the patterns of a directory, before its entries are looked at."""
        if str(directory) not in self._specs:
            self._take(str(directory), [*_lines(directory / ".gitignore")])

    def names(self, path: str, *, directory: bool) -> bool:
        """Whether git ignores a path in a directory whose patterns, and those above, were read.

        The nearest `.gitignore` with a pattern that fits decides, by its last such pattern.
        """
        place = path.rpartition("/")[0] or "/"
        while True:
            if (spec := self._specs.get(place)) is not None:
                inside = path[len(place.rstrip("/")) + 1 :] + "/" * directory
                if (verdict := spec.check_file(inside).include) is not None:
                    return verdict
            above = place.rpartition("/")[0] or "/"
            if place in {self._top, above}:
                return False
            place = above

    def _take(self, directory: str, lines: list[str]) -> None:
        if lines:
            self._specs[directory] = GitIgnoreSpec.from_lines(lines)


def _lines(path: Path) -> Iterator[str]:
    """The patterns of a file that can be used; none of one that cannot be read."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(handle, "rb") as file:
            text = file.read(_FILE_BYTES).decode("utf-8", "replace")
    except OSError:
        return
    for line in text.splitlines()[:_LINES]:
        if len(line) > _LINE_CHARS or _STARS.search(line):
            continue
        try:
            GitIgnoreSpec.from_lines([line])
        except ValueError:  # git takes no notice of a pattern that is none
            continue
        yield line
