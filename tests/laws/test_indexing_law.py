"""No step indexes more of prompts than a bounded part, and all of them are indexed."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import tiny
from drafters.copying import DRAFTER, begun, opened, propose
from hypothesis import given
from hypothesis import strategies as st
from laws.policies import FixedDepth

from localspec.config import Placement
from localspec.engine.exactness.classes import Shape
from localspec.engine.llama.context import Context
from localspec.engine.llama.model import Model
from localspec.engine.session import Request, Session
from localspec.engine.speculation.drafting import INDEXED, indexed
from localspec.engine.step import Engine, Limits
from localspec.types import SamplingParams, SpeculationParams

LONG = 2 * INDEXED + 100
REPEATING = SamplingParams(temperature=0, logit_bias={60: 1000.0})
"""A tiny model goes on with a text that it has read, whatever it would say."""


@contextmanager
def _opened(path: Path) -> Iterator[Engine]:
    """Two slots for long texts, and lookup."""
    model = Model.load(path)
    context = Context.open(model, Placement(threads=1), slots=2, context=LONG + 64, rows=512)
    limits = Limits(prefill_rows=512)
    yield Engine(
        context,
        {"lookup": DRAFTER},
        FixedDepth(2),
        ends=model.eog,
        shape=Shape(),
        limits=limits,
        clock=time.perf_counter,
    )
    context.close()
    model.close()


@pytest.fixture(scope="module")
def engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Engine]:
    """Of a tiny model."""
    path = tiny.build(tmp_path_factory.mktemp("tiny") / "long.gguf", layers=1, width=32)
    with _opened(path) as made:
        yield made


def _request(length: int, seed: int) -> Request:
    """Four tokens after a prompt that repeats itself."""
    return Request(
        id=str(seed),
        client=str(seed),
        prompt=[60 + (place * (seed + 1)) % 100 for place in range(length)],
        sampling=REPEATING,
        speculation=SpeculationParams(mode="always"),
        max_tokens=4,
        ignore_eos=True,
    )


def _unread(sessions: list[Session]) -> int:
    return sum(session.drafters["lookup"].pending for session in sessions)


def test_a_step_indexes_a_bounded_part_of_all_prompts_together(engine: Engine) -> None:
    """Admission nothing at all; and long before its first token a text is indexed whole."""
    sessions = [engine.admit(_request(LONG - seed, seed)) for seed in range(2)]
    unread = _unread(sessions)
    assert unread >= 2 * LONG - 1
    while engine.sessions:
        advances = engine.step()
        left = _unread(sessions)
        assert 0 <= unread - left <= INDEXED
        unread = left
        for advance in advances:
            assert unread == 0
            if advance.finish is not None:
                engine.retire(advance.session)
    assert sum(session.meter.drafted for session in sessions) > 0


@given(
    st.lists(st.integers(0, 3), max_size=60),
    st.lists(st.integers(0, 3), max_size=20),
    st.lists(st.integers(0, 3), min_size=1, max_size=20),
    st.lists(st.integers(1, 30), max_size=8),
)
def test_indexing_in_parts_gives_the_same_drafts(
    prompt: list[int], prediction: list[int], output: list[int], parts: list[int]
) -> None:
    """Also where tokens are committed meanwhile; before the end nothing is proposed."""
    late = begun(prompt, prediction)
    at_once = opened(prompt, prediction)
    at_once.commit(output)
    for most in parts:
        before = late.pending
        assert late.read(most) == before - late.pending == min(most, before)
    assert not late.pending or not propose(late)
    late.commit(output)
    list(indexed(DRAFTER, late))
    assert late.pending == 0
    assert propose(late) == propose(at_once)
