"""A mixture of experts in a real worker: the same words with drafts, and costs of its own rows."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import mixture
import pytest
from worker_peer import Files, Worker, load

from localspec.types import SpeculationParams

PROMPT = "hello world, hello world, hello"


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Worker]:
    """One with a mixture and a smaller one that drafts for it."""
    folder: Path = tmp_path_factory.mktemp("mixture")
    target = mixture.build(folder / "target.gguf", experts=16, used=4)
    draft = mixture.build(folder / "draft.gguf", layers=1)
    worker = Worker(folder)
    worker.send(load(Files(target, draft, draft)))
    worker.until_ready()
    yield worker
    worker.close()


def test_drafts_change_nothing_that_a_mixture_says(worker: Worker) -> None:
    """Any experts may be chosen for the drafted rows."""
    plain = worker.one(PROMPT, max_tokens=40, speculation=SpeculationParams(mode="off"))
    fast = worker.one(PROMPT, max_tokens=40, speculation=SpeculationParams(mode="always"))
    assert (fast.text, fast.tokens) == (plain.text, plain.tokens)
    assert fast.finished.speculation.drafted > 0
    assert worker.ready.speculation_off is None


def test_its_rows_are_measured_each_with_a_token_of_its_own(worker: Worker) -> None:
    """Depth is decided by what more rows cost here: other tokens wake other experts."""
    beat = worker.idle()
    assert {1, 4} <= beat.cost_ms_by_rows.keys()
    assert all(ms > 0 for ms in beat.cost_ms_by_rows.values())
