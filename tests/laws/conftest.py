"""The house that the laws are tested in."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import tiny
from laws.house import CONTEXT, ROWS, SLOTS, House

from localspec.config import Placement
from localspec.engine import exactness
from localspec.engine.llama import Context, Model


@pytest.fixture(scope="session")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    """One house for all laws: loading is the slow part."""
    folder = tmp_path_factory.mktemp("models")
    target = Model.load(tiny.build(folder / "target.gguf", seed=0))
    draft = Model.load(tiny.build(folder / "draft.gguf", seed=1, like=0, noise=0.2))
    memory, draft_memory = (
        Context.open(
            model, Placement(threads=1), slots=SLOTS, context=CONTEXT, rows=ROWS, streams=True
        )
        for model in (target, draft)
    )
    shape = exactness.strict(memory, can_roll_back=memory.can_roll_back())
    yield House(target, draft, memory, draft_memory, shape)
    for context in (memory, draft_memory):
        context.close()
    for model in (target, draft):
        model.close()
