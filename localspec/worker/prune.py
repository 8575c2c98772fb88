"""Makes a draft of some of a model's layers: `python -m localspec.worker.prune TARGET DRAFT`.

The model writes texts, as for a draft head. A draft of some layers reads them; its agreement is how
often its likeliest token is the target's. The layers left out are consecutive: leaving out some in
the middle costs least agreement, and without the last ones a draft is an early exit (Gromov et al.,
2024; LayerSkip, Elhoushi et al., 2024). Native code may crash on a malformed file, so this process
does nothing else.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from localspec import config, paths
from localspec.catalog import header, partner, prune
from localspec.config import Placement
from localspec.engine.llama.context import Context
from localspec.engine.llama.model import Model
from localspec.errors import ModelError
from localspec.types import Row, Token
from localspec.worker import command, train_head

_SHARES = (0.25, 0.5, 0.75, 0.9)
"""Shares of a model's layers that are tried. Fewer are hardly more than an n-gram model, and more
are nearly the whole model."""
_ROWS = 64
_ENOUGH = 0.97
"""The most agreement that is believed: a draft that is nearly the target saves no time."""


class Read(NamedTuple):
    """A text of the target: its tokens, where the answer begins, and the likeliest tokens there.

    `likeliest[i]` is the target's likeliest token in the place of token `start + i`.
    """

    tokens: Sequence[Token]
    start: int
    likeliest: NDArray[np.int64]


class Measured(NamedTuple):
    """Layers, the share of the target's bytes that they are, and how often they agree."""

    layers: Sequence[int]
    share: float
    agreement: float

    @property
    def gain(self) -> float:
        """The expected speed-up at the best depth."""
        return partner.gain(self.share, min(self.agreement, _ENOUGH))

    def __str__(self) -> str:
        return (
            f"{prune.spoken(self.layers)}: agreement {self.agreement:.3f} at {self.share:.2f} of "
            f"the target's bytes, speed-up to expect {self.gain:.2f}"
        )


def main() -> int:
    """Write texts, choose, write the draft; the exit code is 0, the error's, or 130."""
    parser = argparse.ArgumentParser(prog="python -m localspec.worker.prune")
    parser.add_argument("target", type=Path)
    parser.add_argument("draft", type=Path)
    parser.add_argument("--layers")
    parser.add_argument("--tokens", type=int, default=1000)
    return command.run(parser, _make)


def _make(asked: argparse.Namespace) -> None:
    """Write the draft. Raises LocalSpecError, OSError."""
    target, draft, layers = asked.target, asked.draft, asked.layers
    found = header.read(target)
    if reason := prune.refusal(found):
        raise ModelError(f"{target.name} cannot be pruned. {reason}")
    count = prune.trunk(found)
    tried = [prune.listed(layers, count)] if layers else [*candidates(count)]
    paths.make_directory(draft.parent, paths.MODELS_MODE)
    texts = written(target, asked.tokens)
    placement = config.in_force(paths.config_file())[0].engine.target
    best: Measured | None = None
    with tempfile.TemporaryDirectory(dir=draft.parent, prefix=".pruning-") as place:
        for kept in tried:
            file = Path(place) / draft.name
            prune.write(target, kept, file)
            share = file.stat().st_size / found.file_bytes
            now = Measured(kept, share, agreement(file, texts, placement))
            sys.stderr.write(f"{now}\n")
            if best is None or (now.gain, now.agreement) > (best.gain, best.agreement):
                best = now
    assert best is not None  # noqa: S101 - at least one is tried
    prune.write(target, best.layers, draft)
    sys.stderr.write(f"chosen: {best}\n")


def candidates(count: int) -> Iterator[list[int]]:
    """The lists of layers to try, of `count`: each lacks consecutive ones, but not the first."""
    sizes = sorted({min(count - 1, max(1, round(share * count))) for share in _SHARES})
    for size in sizes:
        for first in range(1, size + 1):
            yield [*range(first), *range(first + count - size, count)]


def written(target: Path, tokens: int) -> list[Read]:
    """Texts that the model writes, with answers of `tokens` tokens. Raises LocalSpecError."""
    return [
        Read([*text.prompt, *text.came], len(text.prompt), np.array(text.likeliest))
        for text in train_head.texts(target, tokens)
        if text.came
    ]


def agreement(model: Path, texts: Sequence[Read], placement: Placement) -> float:
    """The share of places where the model's likeliest token is the target's.

    Raises ModelError, OutOfMemory.
    """
    loaded = Model.load(model, placement)
    try:
        longest = max(len(text.tokens) for text in texts)
        context = Context.open(loaded, placement, slots=1, context=longest, rows=_ROWS)
        try:
            same = [_agrees(context, text) for text in texts]
        finally:
            context.close()
    finally:
        loaded.close()
    return float(np.concatenate(same).mean())


def _agrees(context: Context, text: Read) -> NDArray[np.bool_]:
    context.truncate(0, 0)
    said = list[NDArray[np.int64]]()
    rows = [
        Row(token, place, 0, wants_logits=place >= text.start - 1)
        for place, token in enumerate(text.tokens[:-1])
    ]
    for start in range(0, len(rows), _ROWS):
        logits = context.decode(rows[start : start + _ROWS]).logits
        if len(logits):
            said.append(logits.argmax(axis=1))
    same: NDArray[np.bool_] = np.concatenate(said) == text.likeliest
    return same


if __name__ == "__main__":
    sys.exit(main())
