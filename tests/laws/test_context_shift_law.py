"""Context shift: drafted and plain decoding forget the same tokens and say the same ones."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, Literal, cast

import pytest
import recurrent
import tiny
from hypothesis import given
from hypothesis import strategies as st
from laws.engine_harness import PROMPTS, Harness, finish, opened, output
from laws.policies import FixedDepth

from localspec.config import Placement
from localspec.engine.llama.context import Context
from localspec.engine.llama.model import Model
from localspec.engine.session import Request
from localspec.engine.shifting import forgotten
from localspec.engine.simulation import RealHardware
from localspec.types import Backend, Row, SamplingParams

CONTEXT = 96
TOKENS = 260
"""Of an answer: the context is shifted four or five times."""
CHAINS = {
    "greedy": SamplingParams(temperature=0.0),
    "seeded": SamplingParams(temperature=0.8, seed=1234),
}


@pytest.fixture(scope="module", params=["strict", "standard"])
def harness(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Harness]:
    """A tiny pair with a short context."""
    folder = tmp_path_factory.mktemp("shifted")
    target = tiny.build(folder / "target.gguf", seed=0)
    draft = tiny.build(folder / "draft.gguf", seed=1, like=0, noise=0.2)
    with opened(
        target, draft, Placement(threads=1), slots=3, context=CONTEXT,
        strict=request.param == "strict",
    ) as found:  # fmt: skip
        yield found


def shifting(
    harness: Harness, prompt: str, chain: str, *, keep: int = 5, discard: int = 0
) -> Request:
    """A request for more than the context holds."""
    request = harness.request(prompt, CHAINS[chain], tokens=TOKENS)
    return dataclasses.replace(request, keep=keep, discard=discard)


@given(st.integers(1, 5000), st.integers(-1, 6000), st.integers(0, 6000), st.integers(64, 5000))
def test_something_is_forgotten_and_something_behind_it_stays(
    length: int, keep: int, count: int, context: int
) -> None:
    """At least one token goes, and at least one behind it stays, for any request."""
    if length < 2:
        return
    kept, gone = forgotten(length, context, keep, count)
    assert 0 <= kept <= max(0, context - 4)
    assert gone >= 1
    assert kept + gone <= length


@pytest.mark.parametrize("chain", CHAINS)
def test_drafts_change_no_token_of_a_shifted_answer(harness: Harness, chain: str) -> None:
    """At each depth, alone and beside others, with any drafter."""
    if not harness.memory.streams and chain == "seeded":
        pytest.skip("without a class that agrees to the last bit a tie may fall the other way")
    prompts = (PROMPTS[0], PROMPTS[1], PROMPTS[3])
    plain = []
    for prompt in prompts:
        (alone,) = finish(harness.engine({}, FixedDepth(0)), [shifting(harness, prompt, chain)])
        assert alone.dropped > CONTEXT
        assert alone.finish == "length"
        assert len(alone.tokens) + alone.dropped - alone.n_prompt == TOKENS
        plain.append(told(harness, prompt, chain, {}, 0))
    for depth in (1, 4, 7):
        for names in (("lookup",), ("lookup", "model")):
            neural = "model" if "model" in names else None
            drafters = harness.drafters(*names)
            found = told_all(harness, prompts, chain, drafters, depth, neural)
            assert found == plain


def told(harness: Harness, prompt: str, chain: str, drafters: object, depth: int) -> list[int]:
    """All tokens of an answer, those that it has forgotten too."""
    return told_all(harness, (prompt,), chain, drafters, depth, None)[0]


def told_all(  # noqa: PLR0917
    harness: Harness,
    prompts: tuple[str, ...],
    chain: str,
    drafters: object,
    depth: int,
    neural: str | None,
) -> list[list[int]]:
    """The same of several sessions at once."""
    said: dict[int, list[int]] = {}
    engine = harness.engine(drafters, FixedDepth(depth, neural))  # type: ignore[arg-type]
    sessions = finish(
        engine,
        [shifting(harness, prompt, chain) for prompt in prompts],
        lambda step: said.setdefault(step.session.slot, []).extend(step.tokens),
    )
    return [said[session.slot] for session in sessions]


def test_who_does_not_ask_for_it_ends_with_the_context(harness: Harness) -> None:
    """Also beside one that shifts."""
    plain = harness.request(PROMPTS[0], CHAINS["greedy"], tokens=TOKENS)
    engine = harness.engine({}, FixedDepth(0))
    ended, shifted = finish(engine, [plain, shifting(harness, PROMPTS[1], "greedy")])
    assert (ended.dropped, len(ended.tokens)) == (0, engine.context)
    assert shifted.dropped > 0


@pytest.mark.parametrize("keep", [-1, 0, 3, 40, 10_000])
def test_what_stands_first_is_kept_and_alone_reused(harness: Harness, keep: int) -> None:
    """A later prompt takes over no key that was read with what is gone."""
    engine = harness.engine({}, FixedDepth(0))
    request = shifting(harness, PROMPTS[3], "greedy", keep=keep)
    (first,) = finish(engine, [request])
    kept = min(CONTEXT - 4, max(0, keep), first.sound)
    assert (
        first.tokens[:kept]
        == [*request.prompt, *first.tokens][:kept][: len(request.prompt)]
        + (first.tokens[len(request.prompt) : kept])
    )
    again = dataclasses.replace(
        harness.request(first.tokens[:80], CHAINS["greedy"], tokens=8), keep=None
    )
    fresh = harness.engine({}, FixedDepth(0))
    (second,) = finish(engine, [again])
    assert second.cached_tokens <= first.sound
    assert output(second) == output(finish(fresh, [again])[0])


class Shifted:
    """A context whose memory for the way back ends when a slot has been shifted already."""

    def __init__(self, memory: Any) -> None:
        self._memory = memory

    def __getattr__(self, name: str) -> Any:
        return getattr(self._memory, name)

    def shift(self, slot: int, keep: int, count: int) -> None:
        """Shift the slot, and fail."""
        self._memory.shift(slot, keep, count)
        raise MemoryError


class FailingHardware(RealHardware):
    """Hardware with such a target."""

    def context(self, backend: Backend, role: Literal["target", "draft"]) -> Backend:
        """The context, wrapped."""
        return cast("Backend", Shifted(super().context(backend, role)))


def test_a_shift_that_fails_leaves_nothing_to_be_reused(harness: Harness) -> None:
    """The answer ends, and the slot is empty: its keys are where no text says."""
    engine = harness.engine({}, FixedDepth(0), place=FailingHardware())
    (ended,) = finish(engine, [shifting(harness, PROMPTS[0], "greedy")])
    assert (ended.finish, ended.dropped) == ("length", 0)
    assert harness.memory.held[ended.slot] == 0
    again = harness.request(ended.tokens[:60], CHAINS["greedy"], tokens=8)
    (after,) = finish(engine, [again])
    assert after.cached_tokens == 0
    fresh = harness.engine({}, FixedDepth(0))
    assert output(after) == output(finish(fresh, [again])[0])


def test_a_prompt_that_begins_like_a_shifted_answer_copies_only_what_is_sound(
    harness: Harness,
) -> None:
    """While that is still answering."""
    engine = harness.engine({}, FixedDepth(0))
    running = engine.admit(shifting(harness, PROMPTS[2], "greedy", keep=0))
    while not running.dropped:
        engine.step()
    text = running.tokens[:70]
    beside = engine.admit(harness.request(text, CHAINS["greedy"], tokens=8))
    assert beside.cached_tokens == 0
    while beside.finish is None:
        engine.step()
    said = output(beside)
    for session in list(engine.sessions):
        engine.retire(session)
    alone = harness.engine({}, FixedDepth(0))
    assert said == output(finish(alone, [harness.request(text, CHAINS["greedy"], tokens=8)])[0])


def test_keys_that_moved_stand_where_they_are_looked_for(harness: Harness) -> None:
    """A first layer sees no text in its keys: there moving is as good as reading anew."""
    memory = harness.memory
    text = harness.target.tokenize("a b c d e f g h", add_special=False, parse_special=False)

    def seen(tokens: list[int], *, moved: int = 0) -> object:
        memory.truncate(0, 0)
        memory.decode([Row(token, place, 0) for place, token in enumerate(tokens)])
        if moved:
            memory.shift(0, 2, moved)
        held = memory.held[0]
        logits = memory.decode([Row(65, held, 0, wants_logits=True)]).logits[0].copy()
        memory.truncate(0, 0)
        return logits

    moved = seen(text, moved=3)
    fresh = seen([*text[:2], *text[5:]])
    wrong = seen(text)
    assert abs(moved - fresh).max() < abs(wrong - fresh).max()  # type: ignore[operator]
    assert memory.held[0] == 0


def test_a_state_cannot_be_shifted(tmp_path_factory: pytest.TempPathFactory) -> None:
    """And says so before anything is asked of it."""
    path = recurrent.mamba(tmp_path_factory.mktemp("state") / "state.gguf")
    model = Model.load(path)
    context = Context.open(model, Placement(threads=1), slots=1, context=128, rows=32)
    assert not context.shifts
    context.close()
    model.close()
