"""Computes what a head learns from, once for each token, into files that may exceed memory.

For each token they hold the inputs of the tapped layers, the state behind the last norm, and the
likeliest next token. Numbers are bfloat16, which has the range of float32: the states of some
layers have peaks that float16 cannot hold.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from localspec import paths
from localspec.catalog.memory import show_bytes
from localspec.engine.llama.context import Context
from localspec.engine.llama.vectors import Taps
from localspec.errors import DiskFull, ModelError
from localspec.types import Floats, Row
from localspec.worker.eagle3.texts import Text

_KEPT_EVERY = 64
"""Progress is saved after this many texts; after an interrupt, later ones are read again."""
_SPARE_BYTES = 1 << 30
"""Disk space that is left free."""
Brief = NDArray[np.int16]
"""The bits of bfloat16 numbers."""


@dataclass(frozen=True, slots=True, eq=False)
class Features:
    """Files with the features of all tokens, in the order of the texts.

    taps: (tokens, 3 width) inputs of the tapped layers.
    states: (tokens, width) behind the last norm; zeros where the next token is not an answer's.
    likeliest: (tokens,) the target's likeliest next token; -1 where the next is not an answer's.
    """

    taps: Brief
    states: Brief
    likeliest: NDArray[np.int32]


def brief(numbers: Floats) -> Brief:
    """The nearest bfloat16 numbers, ties to even."""
    bits = np.ascontiguousarray(numbers, np.float32).view(np.uint32)
    rounded = bits + (0x7FFF + ((bits >> 16) & 1))
    return (rounded >> 16).astype(np.uint16).view(np.int16)


def wide(numbers: Brief) -> Floats:
    """The same numbers in float32."""
    return (numbers.view(np.uint16).astype(np.uint32) << 16).view(np.float32)


def needed_bytes(tokens: int, width: int) -> int:
    """Bytes of the files for this many tokens."""
    return tokens * (4 * width * 2 + 4)


def read(
    context: Context,
    layers: tuple[int, int, int],
    texts: Sequence[Text],
    place: Path,
    on_progress: Callable[[int], None],
) -> Features:
    """Read the texts by the model; texts that were read before are not read again.

    Args:
        context: Has empty slots and no taps yet.
        layers: The layers whose inputs are kept.
        texts: All texts; those of an earlier run come first.
        place: The directory of the files.
        on_progress: Called with the number of tokens read so far.

    Raises:
        ModelError: the model shows no states, or its layers cannot be tapped.
        DiskFull: there is no room for the files.
    """
    lengths = [len(text.tokens) for text in texts]
    starts = np.concatenate(([0], np.cumsum(lengths)))
    done = min(_done(place), len(texts))
    if done < len(texts):
        if not (context.show() and context.tap(Taps(layers))):
            raise ModelError(
                "An EAGLE-3 head needs what layers are given, which this model does not show here.",
                fix="localspec models head makes the other kind for it.",
            )
        _make_room(place, int(starts[-1]), context.model.width)
    files = _mapped(place, int(starts[-1]), context.model.width)
    for number in range(done, len(texts)):
        start, end = int(starts[number]), int(starts[number + 1])
        taps, states, likeliest = _of(context, texts[number])
        files.taps[start:end], files.states[start:end] = brief(taps), brief(states)
        files.likeliest[start:end] = likeliest
        on_progress(end)
        if (number + 1) % _KEPT_EVERY == 0 or number + 1 == len(texts):
            _mark(place, files, number + 1)
    return files


def _of(context: Context, text: Text) -> tuple[Floats, Floats, NDArray[np.int32]]:
    """Taps, states and likeliest tokens of a text. Logits are computed for answer tokens only."""
    length, width = len(text.tokens), context.model.width
    taps = np.zeros((length, 3 * width), np.float32)
    states = np.zeros((length, width), np.float32)
    likeliest = np.full(length, -1, np.int32)
    context.truncate(0, 0)
    answers, at = text.start - 1, 0
    while at < length:
        wanted = at >= answers
        end = min(at + context.n_slots, length) if wanted else min(at + context.max_rows, answers)
        rows = [Row(int(text.tokens[each]), each, 0, wanted) for each in range(at, end)]
        logits, found, tapped = context.decode(rows)
        features = tapped()
        assert features is not None  # noqa: S101 - `tap` has succeeded
        taps[at:end] = features
        if wanted:
            assert found is not None  # noqa: S101 - there for all rows with logits
            states[at:end], likeliest[at:end] = found, logits.argmax(axis=1)
        at = end
    return taps, states, likeliest


def _done(place: Path) -> int:
    """The number of texts whose features are in the files."""
    try:
        return int((place / "read").read_text("ascii"))
    except (OSError, ValueError):
        return 0


def _mark(place: Path, files: Features, texts: int) -> None:
    for each in (files.taps, files.states, files.likeliest):
        if isinstance(each, np.memmap):
            each.flush()
    paths.write_atomically(place / "read", str(texts).encode())


def _make_room(place: Path, tokens: int, width: int) -> None:
    """Raise DiskFull where the disk cannot hold the files."""
    there = sum(path.stat().st_size for path in place.glob("*.bin"))
    missing = needed_bytes(tokens, width) - there - (shutil.disk_usage(place).free - _SPARE_BYTES)
    if missing > 0:
        raise DiskFull(
            f"{place} has no room for what the model computes of its texts:"
            f" {show_bytes(missing)} are missing.",
            fix="Say --work DIRECTORY on a larger disk, or fewer --tokens.",
        )


def _mapped(place: Path, tokens: int, width: int) -> Features:
    """The files, mapped at the length that they need; their content is kept."""

    def file(name: str, kind: type[np.generic], *shape: int) -> NDArray[np.generic]:
        path = place / name
        path.touch(mode=0o600)
        size = int(np.prod(shape)) * np.dtype(kind).itemsize
        with path.open("r+b") as opened:
            opened.truncate(size)
        return np.memmap(path, kind, "r+", shape=shape)

    return Features(
        file("taps.bin", np.int16, tokens, 3 * width),  # type: ignore[arg-type]
        file("states.bin", np.int16, tokens, width),  # type: ignore[arg-type]
        file("likeliest.bin", np.int32, tokens),  # type: ignore[arg-type]
    )
