"""Fixtures of the laws: one engine with tiny models, and builds of llama.cpp."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import tiny
from laws.builds import libraries_of
from laws.engine_harness import CONTEXT, SLOTS, Harness, opened

from localspec.config import Placement


@pytest.fixture(scope="session")
def harness(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Harness]:
    """Engine harness that all laws share, because loading is the slow part."""
    folder = tmp_path_factory.mktemp("models")
    target = tiny.build(folder / "target.gguf", seed=0)
    draft = tiny.build(folder / "draft.gguf", seed=1, like=0, noise=0.2)
    with opened(target, draft, Placement(threads=1), slots=SLOTS, context=CONTEXT) as found:
        yield found


@pytest.fixture
def libraries(request: pytest.FixtureRequest) -> Path:
    """Libraries of a build. Skips, with the reason, where this processor cannot run it."""
    found, why = libraries_of(request.param)
    if found is None:
        pytest.skip(why)
    return found
