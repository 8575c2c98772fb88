"""A planted mistake: what it changes, and the tests that must notice."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import NamedTuple

REPOSITORY = Path(__file__).resolve().parent.parent.parent


class Mutant(NamedTuple):
    """`old` occurs once in `file` and becomes `new`; then one of `tests` fails.

    `tests` are pytest's node ids below tests/, as few and as quick as will do.
    """

    what: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]

    def faults(self, root: Path = REPOSITORY) -> list[str]:
        """Why it cannot be planted, or not be noticed: the code or the tests have moved on."""
        found = []
        path = root / self.file
        times = path.read_text(encoding="utf-8").count(self.old) if path.is_file() else 0
        if times != 1:
            found.append(f"{self.what}: {self.file} has its text {times} times, not once")
        if self.old == self.new or not self.tests:
            found.append(f"{self.what}: it changes nothing, or nothing is to notice")
        for test in self.tests:
            name, _, function = test.partition("::")
            if function.partition("[")[0] not in _functions(root / "tests" / name):
                found.append(f"{self.what}: there is no test {test}")
        return found


def _functions(path: Path) -> set[str]:
    if not path.is_file():
        return set()
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return {
        node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
