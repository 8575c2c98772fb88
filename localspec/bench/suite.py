"""The prompts of a measurement: the suite written for this project, or a Spec-Bench file."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from importlib import resources
from pathlib import Path

import msgspec

from localspec.errors import RequestError

MAX_FILE_BYTES = 64 * 1024 * 1024


class Prompt(msgspec.Struct, frozen=True):
    """One conversation: the user's turns, each answered before the next one is sent."""

    name: str
    slice: str
    turns: tuple[str, ...]


class _Question(msgspec.Struct, frozen=True):
    """One line of Spec-Bench's question.jsonl, without the fields that are not used here."""

    question_id: int | str
    category: str
    turns: tuple[str, ...]


class _Written(msgspec.Struct, frozen=True):
    """One prompt of suite.toml."""

    name: str
    turns: tuple[str, ...]


def builtin() -> list[Prompt]:
    """The suite that is part of the package, slice by slice."""
    data = (resources.files("localspec.bench") / "suite.toml").read_bytes()
    slices = msgspec.toml.decode(data, type=dict[str, list[_Written]])
    return [
        Prompt(f"{slice_name}/{written.name}", slice_name, written.turns)
        for slice_name, prompts in slices.items()
        for written in prompts
    ]


def spec_bench(path: Path) -> list[Prompt]:
    """The prompts of a file of JSON lines as in Spec-Bench; a category is a slice.

    Raises RequestError, which names the faulty line.
    """
    try:
        with path.open("rb") as file:
            data = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise RequestError(f"{path} cannot be read: {error.strerror}.") from error
    if len(data) > MAX_FILE_BYTES:
        raise RequestError(f"{path} is larger than {MAX_FILE_BYTES >> 20} MiB.")
    lines = [(number, line) for number, line in enumerate(data.splitlines(), 1) if line.strip()]
    prompts = [_prompt(path, number, line) for number, line in lines]
    if not prompts:
        raise RequestError(f"{path} holds no prompts.")
    names = [prompt.name for prompt in prompts]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise RequestError(f"{path} holds {twice[0]} more than once.")
    return prompts


def _prompt(path: Path, number: int, line: bytes) -> Prompt:
    try:
        question = msgspec.json.decode(line, type=_Question)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise RequestError(
            f"Line {number} of {path} is not a Spec-Bench question: {error}.",
            fix='A line is {"question_id": 1, "category": "qa", "turns": ["..."]}.',
        ) from error
    if not question.turns or not all(turn.strip() for turn in question.turns):
        raise RequestError(f"Line {number} of {path} has a turn that says nothing.")
    name = f"{question.category}/{question.question_id}"
    return Prompt(name, question.category, question.turns)


def choose(
    prompts: Sequence[Prompt], slices: Iterable[str] = (), limit: int | None = None
) -> list[Prompt]:
    """At most `limit` prompts of each of these slices, or of all if none is named, in file order.

    Raises RequestError for an unknown slice.
    """
    known = list(dict.fromkeys(prompt.slice for prompt in prompts))
    wanted = list(slices) or known
    for name in wanted:
        if name not in known:
            raise RequestError(
                f"There is no slice {name!r}.", fix=f"Slices here: {', '.join(known)}."
            )
    chosen: list[Prompt] = []
    for name in known:
        if name in wanted:
            chosen += [prompt for prompt in prompts if prompt.slice == name][:limit]
    return chosen
