"""Projectors of images: which files are projectors, and which model each fits. Pure Python.

A projector's vectors have its model's width, but many models share a width, so its model is found
by the file's name.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from pathlib import Path

from localspec.catalog import filenames, header
from localspec.catalog.header import Header
from localspec.catalog.reader import Parsed
from localspec.errors import BadGGUF

_WORDS = re.compile(r"[a-z]+|\d+(?:\.\d+)*")
_ANY_MODEL = frozenset({"mmproj", "projector", "model", "gguf", "vision", "encoder", "fp", "16"})
"""Words of projectors' names that do not tell the model."""
_NOT_YET = frozenset({"hunyuanvl", "deepseek4v"})
"""Projectors whose rows depend on earlier images or on their place (llama.cpp, `mtmd.cpp`)."""
_ANOTHERS = "it is another model's"


def find(target: Path, directory: Path) -> tuple[str, str]:
    """The projector of the model at `target`, and why none is used; "" where there is none.

    It is looked for beside the model and in `directory`. Blocks. Results are remembered while the
    files stay unchanged. Raises BadGGUF for the target.
    """
    places = dict.fromkeys((target.parent, directory))
    why = ""
    for path in _candidates(places):
        fault = _fault(target, header.stamp(target), path, header.stamp(path))
        if not fault and not _said(path.stem) and not _alone(target, path.parent):
            fault = f"{path.name} does not say whose it is: call it mmproj-{target.name}"
        if not fault:
            return str(path), ""
        if fault != _ANOTHERS:
            why = why or fault
    return "", why


def told(path: str, why: str) -> str:
    """A note on the projector that continues a sentence about a model."""
    return f"; reads images by {Path(path).name}" if path else f"; no images: {why}" if why else ""


def beside(model: Path) -> Path:
    """The path at which the projector of a model is kept."""
    return model.with_name(f"mmproj-{model.name}")


def _candidates(places: Iterable[Path]) -> list[Path]:
    found: list[Path] = []
    for place in places:
        for path in sorted(place.glob("*.gguf")):
            read = filenames.read(path.name)
            if read is not None and read.other == filenames.PROJECTOR:
                found.append(path)
    return found


@functools.lru_cache(maxsize=256)
def _fault(target: Path, _ours: tuple[int, float], path: Path, _theirs: tuple[int, float]) -> str:
    """The reason why a projector is not used for a model; "" if it can be used."""
    ours = header.read(target)
    theirs = _said(path.stem)
    if not any(theirs <= _said(name) for name in (target.stem, ours.text("general.name"))):
        return _ANOTHERS
    try:
        parsed = header.parse(path)
    except BadGGUF as error:
        return error.message.rstrip(".")
    return _unlike(parsed, path.name, ours)


def _unlike(parsed: Parsed, name: str, ours: Header) -> str:
    """The reason why a file is no projector of images for a model; "" if it is one."""
    if parsed.metadata.get("general.architecture") != "clip":
        return f"{name} is no projector"
    if parsed.metadata.get("clip.has_vision_encoder") is not True:
        return f"{name} is a projector for sound alone"
    kinds = {parsed.metadata.get(f"clip.{where}projector_type") for where in ("", "vision.")}
    if kinds & _NOT_YET:
        return f"{name} places images by where they are in a text, which LocalSpec does not do yet"
    width, mine = ends_in(parsed), ours.number("embedding_length")
    if width and mine and width % mine:
        return f"{name} makes vectors of {width} numbers, and {ours.file} reads {mine}"
    return ""


def ends_in(parsed: Parsed) -> int:
    """The numbers in a vector that a projector makes, as its file says; 0 if it does not say.

    Some make several vectors of the model's width, for its first layers (deepstack).
    """
    width = parsed.metadata.get("clip.vision.projection_dim")
    return width if isinstance(width, int) else 0


def _said(name: str) -> frozenset[str]:
    """The words of a name that say which model it is."""
    words = _WORDS.findall(name.lower().replace(filenames.label(name).lower() or "\0", " "))
    return frozenset(words) - _ANY_MODEL


def _alone(target: Path, place: Path) -> bool:
    """Whether a model is the only one in a folder."""
    read = ((one, filenames.read(one.name)) for one in place.glob("*.gguf"))
    return [one for one, name in read if name and not name.other] == [target]
