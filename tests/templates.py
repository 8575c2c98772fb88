"""The chat templates of llama.cpp, out of the source of the pinned llama-cpp-python.

They are downloaded once, by pip, into the user's cache, and never become part of this repository.
"""

from __future__ import annotations

import fcntl
import json
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import platformdirs

from localspec.text.dialogue import Dialogue
from localspec.text.template import Conversation, rendered
from localspec.types import SamplingParams, SpeculationParams
from localspec.wire.messages import Generate, Message

_CACHE: Path = Path(platformdirs.user_cache_dir("localspec"))
"""Of the user, and not of a test."""
HERE = Path(__file__).resolve().parent
RECORDS = HERE / "text" / "formats"
STAND_INS = RECORDS / "stand-ins"
_INSIDE = "/vendor/llama.cpp/models/templates/"
FEWEST = 70
"""Templates in llama-cpp-python 0.3.36."""


def directory() -> Path:
    """Where the templates are, after a download if they were not."""
    wanted = _requirement()
    place: Path = _CACHE / "templates" / wanted.replace("==", "-")
    with _alone(place):
        if not place.exists():
            _download(wanted, place)
    return place


def _requirement() -> str:
    project = tomllib.loads((HERE.parent / "pyproject.toml").read_text())["project"]
    return str(next(one for one in project["dependencies"] if one.startswith("llama-cpp-python")))


def _download(wanted: str, place: Path) -> None:
    """Unpack the templates of the source, all of them or nothing."""
    with tempfile.TemporaryDirectory(dir=place.parent) as work:
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps"]
        command += ["--no-binary", "llama-cpp-python", "-d", work, wanted]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        unpacked = Path(work) / "templates"
        unpacked.mkdir()
        with tarfile.open(next(Path(work).glob("*.tar.gz"))) as source:
            for member in source:
                if _INSIDE in member.name and member.name.endswith(".jinja"):
                    file = source.extractfile(member)
                    assert file is not None
                    (unpacked / Path(member.name).name).write_bytes(file.read())
        assert len(list(unpacked.iterdir())) >= FEWEST
        shutil.move(unpacked, place)


@contextmanager
def _alone(place: Path) -> Iterator[None]:
    """One process at a time."""
    place.parent.mkdir(parents=True, exist_ok=True)
    with (place.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def everything() -> list[Path]:
    """Every template there is, and our stand-ins."""
    return [*sorted(directory().glob("*.jinja")), *sorted(STAND_INS.glob("*.jinja"))]


@cache
def dialogue(path: Path, control: tuple[tuple[str, int], ...] = ()) -> Dialogue:
    """The dialogue of a file with this template; `control` are its control tokens."""
    source = path.read_text(encoding="utf-8")

    def render(messages: Sequence[Message], variables: Mapping[str, Any]) -> str:
        turns = [{**one.extra, "role": one.role, "content": one.content} for one in messages]
        return rendered(Conversation(source, "<BOS>", "<EOS>", turns, dict(variables))).text

    return Dialogue(source, render, dict(control).get)


def chat(messages: Sequence[Message], tools: Sequence[Any] = (), **more: Any) -> Generate:
    """A chat with functions."""
    shown = [{"type": "function", "function": one} for one in tools]
    return Generate(
        "r",
        "chat",
        "c",
        SamplingParams(),
        SpeculationParams(),
        messages=list(messages),
        tools=shown,
        **more,
    )


def records() -> list[dict[str, Any]]:
    """All records of what models write."""
    files = sorted(RECORDS.glob("*.jsonl"))
    return [json.loads(line) for file in files for line in file.read_text().splitlines()]


def template_of(record: Mapping[str, Any]) -> Path:
    """The template of a record."""
    if record["template"]:
        return directory() / str(record["template"])
    return STAND_INS / f"{record['family']}.jinja"
