"""Record of long fault programs: lines of JSON, appended by many runs at once.

A run that shall go on where others stopped names their file: LOCALSPEC_STORM_RECORDS. Without
one it knows itself alone.
"""

from __future__ import annotations

import json
import os
import secrets
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import NamedTuple

SEED = int(os.environ.get("LOCALSPEC_STORM_SEED", secrets.randbits(32)))
"""Of this run."""


def dice(turn: int) -> Random:
    """Random generator of one turn, independent of earlier turns."""
    return Random(f"{SEED} {turn}")


class Entry(NamedTuple):
    """One turn of a program, after which nothing had fallen; what was counted, and what is held."""

    program: str
    seed: int
    turn: int
    counts: dict[str, int]
    held: dict[str, int]


class Records:
    """Sums of what runs have written down."""

    def __init__(self, path: str | None) -> None:
        self._path = Path(path) if path else None
        self._own: list[Entry] = []

    def add(self, program: str, counts: Counter[str], held: dict[str, int]) -> None:
        """One more turn of this run."""
        entry = Entry(program, SEED, self.turns(program), dict(counts), held)
        self._own.append(entry)
        if self._path:
            with self._path.open("a") as file:  # one small write: whole beside those of others
                file.write(json.dumps(entry) + "\n")

    def turns(self, program: str) -> int:
        """How many turns of it runs of this seed have played."""
        return sum((entry.program, entry.seed) == (program, SEED) for entry in self._entries())

    def total(self, program: str, what: str) -> int:
        """How much of it all runs together have counted."""
        return sum(one.counts.get(what, 0) for one in self._entries() if one.program == program)

    def report(self) -> str:
        """A table of all programs; of what is held, the figures of the first turn and the last."""
        sums: dict[str, Counter[str]] = {}
        held: dict[tuple[str, int], list[dict[str, int]]] = {}
        for entry in self._entries():
            sums.setdefault(entry.program, Counter()).update(entry.counts)
            held.setdefault((entry.program, entry.seed), []).append(entry.held)
        lines = [
            f"| {program} | {what} | {count} |"
            for program, counts in sorted(sums.items())
            for what, count in sorted(counts.items())
        ]
        for (program, seed), sizes in sorted(held.items()):
            first, last = sizes[0], sizes[-1]
            figures = ", ".join(f"{what} {first.get(what, 0)} to {last[what]}" for what in last)
            lines.append(f"| {program} | held, seed {seed}, {len(sizes)} turns | {figures} |")
        return "\n".join(["| program | what | how often |", "|---|---|---|", *lines])

    def _entries(self) -> Iterator[Entry]:
        if self._path is None:
            yield from self._own
        elif self._path.exists():
            yield from (Entry(*json.loads(line)) for line in self._path.read_text().splitlines())


RECORDS = Records(os.environ.get("LOCALSPEC_STORM_RECORDS"))
"""That of this process."""
