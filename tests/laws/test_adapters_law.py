"""LoRA adapters: speculation changes no token of an answer with one, nor do those beside it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import gguf
import pytest
import tiny
from laws.engine_harness import CONTEXT, PROMPTS, SLOTS, Harness, finish, opened, output
from laws.policies import FixedDepth

from localspec.config import Placement
from localspec.engine.adapters import Scales
from localspec.engine.scoring import score
from localspec.types import SamplingParams

CHAINS = {
    "greedy": SamplingParams(temperature=0.0),
    "seeded": SamplingParams(temperature=0.8, seed=1234),
}
SETS: tuple[Scales, ...] = ((0.0, 0.0), (1.0, 0.0), (0.0, 0.7), (1.5, -0.5))


@pytest.fixture(scope="module", params=["strict", "standard"])
def harness(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Harness]:
    """A tiny target with two adapters, of which one is in full precision."""
    folder = tmp_path_factory.mktemp("adapters")
    target = tiny.build(folder / "target.gguf", seed=0)
    draft = tiny.build(folder / "draft.gguf", seed=1, like=0, noise=0.2)
    adapters = [
        tiny.lora(folder / "one.gguf", seed=7),
        tiny.lora(folder / "two.gguf", seed=8, quantization=gguf.GGMLQuantizationType.F32),
    ]
    with opened(
        target, draft, Placement(threads=1), slots=SLOTS, context=CONTEXT,
        strict=request.param == "strict", adapters=adapters,
    ) as found:  # fmt: skip
        yield found


def plainly(harness: Harness, prompt: str, chain: str, adapters: Scales) -> list[int]:
    """The answer of plain decoding, alone in a new engine."""
    request = harness.request(prompt, CHAINS[chain], adapters=adapters)
    return output(finish(harness.engine({}, FixedDepth(0)), [request])[0])


def test_strict_forwards_agree_with_adapters_too(harness: Harness) -> None:
    """The class of strict use was probed with all adapters, and holds to the last bit."""
    if harness.memory.streams:
        assert harness.shape.bitwise


def test_an_adapter_changes_the_answer_and_its_scale_does(harness: Harness) -> None:
    """Otherwise no other law here could fail; without any, the answer is that of the model."""
    answers = [plainly(harness, PROMPTS[1], "greedy", each) for each in SETS]
    assert all(one != other for one, other in itertools.combinations(answers, 2))
    assert plainly(harness, PROMPTS[1], "greedy", ()) == answers[0]


@pytest.mark.parametrize("chain", CHAINS)
@pytest.mark.parametrize("drafter", ["lookup", "model", "lookup+feature_head+model"])
def test_any_drafter_gives_the_tokens_of_plain_decoding_with_the_adapter(
    harness: Harness, chain: str, drafter: str
) -> None:
    """Sessions with other scales beside it or not: each has the answer that it has alone."""
    if not harness.memory.streams and chain == "seeded":
        pytest.skip("without a class that agrees to the last bit a tie may fall the other way")
    plain = {
        (prompt, adapters): plainly(harness, prompt, chain, adapters)
        for prompt in PROMPTS
        for adapters in SETS
    }
    drafted = 0
    names = drafter.split("+")
    for depth, turn in ((1, 0), (4, 1), (7, 2)):
        chosen = [(p, SETS[(at + turn) % len(SETS)]) for at, p in enumerate(PROMPTS)]
        chosen[3] = chosen[3][0], chosen[0][1]  # two of the four have equal scales
        neural = "model" if "model" in names else None
        engine = harness.engine(harness.drafters(*names), FixedDepth(depth, neural))

        sessions = finish(
            engine,
            [harness.request(p, CHAINS[chain], adapters=adapters) for p, adapters in chosen],
        )

        drafted += sum(session.meter.drafted for session in sessions)
        assert [output(session) for session in sessions] == [plain[each] for each in chosen]
    assert drafted


def test_nothing_that_was_read_with_other_scales_is_reused(harness: Harness) -> None:
    """Neither from an idle slot nor from a session that is answering."""
    long = PROMPTS[2]
    plain = {each: plainly(harness, long, "greedy", each) for each in SETS}
    engine = harness.engine({}, FixedDepth(0))
    for adapters in SETS:
        (first,) = finish(engine, [harness.request(long, CHAINS["greedy"], adapters=adapters)])
        assert first.cached_tokens == 0
    for adapters in reversed(SETS):
        (again,) = finish(engine, [harness.request(long, CHAINS["greedy"], adapters=adapters)])
        assert again.cached_tokens > 0
        assert output(again) == plain[adapters]
    together = harness.engine({}, FixedDepth(0))
    sessions = finish(
        together, [harness.request(long, CHAINS["greedy"], adapters=each) for each in SETS]
    )
    assert [session.cached_tokens for session in sessions] == [0] * len(SETS)
    assert [output(each) for each in sessions] == [plain[each] for each in SETS]


def test_the_likelihood_of_a_prompt_is_that_with_the_adapter(harness: Harness) -> None:
    """Also while a session with other scales is answering, between whose steps it is read."""
    engine = harness.engine({}, FixedDepth(0))
    prompt = harness.request(PROMPTS[3], CHAINS["greedy"]).prompt

    def scored(adapters: Scales, *, beside: bool) -> list[float]:
        session = None
        if beside:
            session = engine.admit(harness.request(PROMPTS[0], CHAINS["greedy"], adapters=SETS[1]))
            engine.step()
        work = score(engine, f"scorer {adapters}", prompt, 0, adapters)
        while True:
            try:
                next(work)
            except StopIteration as end:
                found: list[float] = [each.logprob for each in end.value]
                break
            engine.step()
        if session:
            engine.retire(session)
        return found

    alone = [scored(each, beside=False) for each in SETS]
    assert all(one != other for one, other in itertools.combinations(alone, 2))
    for adapters, found in zip(SETS, alone, strict=True):
        assert scored(adapters, beside=True) == pytest.approx(found, abs=1e-3)


def test_a_context_that_grew_or_was_rearranged_keeps_its_adapters(tmp_path: Path) -> None:
    """A native context that is made anew knows nothing of them: they are set again."""
    target = tiny.build(tmp_path / "target.gguf", seed=0)
    draft = tiny.build(tmp_path / "draft.gguf", seed=1)
    adapter = tiny.lora(tmp_path / "one.gguf", seed=7)
    with opened(
        target, draft, Placement(threads=1), slots=2, context=256, adapters=[adapter]
    ) as harness:
        before = [plainly(harness, PROMPTS[1], "greedy", each) for each in ((0.0,), (1.0,))]
        harness.memory.arrange(streams=True, context=200, cells=400, most_cells=400)
        harness.memory.adapt((1.0,))
        after = [plainly(harness, PROMPTS[1], "greedy", each) for each in ((1.0,), (0.0,))]
        assert after == before[::-1]
