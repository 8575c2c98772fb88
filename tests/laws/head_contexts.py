"""llama.cpp's own EAGLE-3 context on a head's file, beside its target."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from localspec.config import Placement
from localspec.engine.llama.context import Context
from localspec.engine.llama.fed import FedContext
from localspec.engine.llama.model import Model


@contextmanager
def opened(target: Path, head: Path) -> Iterator[FedContext]:
    """A context of one session on the head, which uses the target's embeddings."""
    models = Model.load(target), Model.load(head)
    beside = Context.open(models[0], slots=1, context=64, rows=8)
    fed = FedContext.open(
        models[1],
        Placement(threads=1),
        slots=1,
        context=512,
        streams=False,
        inputs=3 * models[0].width,
        beside=beside.handle,
    )
    yield fed
    fed.close()
    beside.close()
    for model in models:
        model.close()
