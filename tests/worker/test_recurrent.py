"""Models whose memory is a state: it comes back from copies or not at all, and no answer shows it.

The reference of each answer is a slot that has read all of its text anew.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import recurrent
import tiny
from worker_peer import GREEDY, Script

from localspec.catalog import header
from localspec.config import Config, Engine, Placement
from localspec.engine.llama.context import Context
from localspec.engine.llama.model import Model
from localspec.engine.replay import Reading, replay
from localspec.engine.replay import Script as Text
from localspec.types import Row, SamplingParams, SpeculationParams
from localspec.wire.messages import Delta, Finished, Generate, Load, Started
from localspec.worker import assemble
from localspec.worker.assemble import Loaded

KINDS: dict[str, Callable[[Path], Path]] = {"mamba": recurrent.mamba, "lfm2": recurrent.lfm2}
HOW = (
    "by snapshots of the state up to 8 tokens back, by copies beyond",
    "by copies of the state",
)
NEAR = 0.01
"""Logits of forwards of one row and of many differ by less, in a range of 30."""
PROMPT = list(b"what the model has read it keeps")


@pytest.fixture(scope="module", params=KINDS)
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A recurrent model, and a hybrid one."""
    return KINDS[request.param](tmp_path_factory.mktemp("model") / "model.gguf")


@pytest.fixture(scope="module", params=["standard", "strict"])
def loaded(
    request: pytest.FixtureRequest, model: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Loaded]:
    """It, with 2 slots, after its measurements."""
    alone = Placement(threads=1)
    engine = Engine(slots=2, context=512, exactness=request.param, target=alone, prefill_rows=16)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
        command = Load("tiny", str(model), None, Config(engine=engine))
        with assemble.load(command, lambda *_: None) as loaded:
            Script([]).run(loaded)
            yield loaded


def asked(id_: str, tokens: list[int], client: str = "c", **fields: Any) -> Generate:
    """A greedy completion of 20 tokens, drafted if that were possible."""
    defaults: dict[str, Any] = {
        "max_tokens": 20,
        "sampling": GREEDY,
        "ignore_eos": True,
        "speculation": SpeculationParams(mode="always"),
    }
    return Generate(
        id=id_,
        endpoint="completion",
        client=client,
        prompt_tokens=tokens,
        **{**defaults, **fields},
    )


def answers(loaded: Loaded, *requests: Generate) -> list[list[int]]:
    """The tokens of each answer; none of these requests may fail."""
    script = Script(requests).run(loaded)
    assert len(script.all(Finished)) == len(requests)
    return [
        [token for delta in script.all(Delta, request.id) for token in delta.tokens]
        for request in requests
    ]


def cached(loaded: Loaded, request: Generate) -> tuple[list[int], int]:
    """An answer, and how much of its prompt was there already."""
    script = Script([request]).run(loaded)
    tokens = [token for delta in script.all(Delta) for token in delta.tokens]
    return tokens, script.all(Started)[0].cached_tokens


def test_it_loads_is_measured_and_drafts_where_that_costs_nothing(
    loaded: Loaded, model: Path, request: pytest.FixtureRequest
) -> None:
    """Costs of every row count are known, near and far, and of a copy.

    A convolution computes several rows in another order than one: strict use drafts nothing there.
    """
    strict = request.node.callspec.params["loaded"] == "strict"
    if strict and header.read(model).architecture == "lfm2":
        assert "bit for bit" in (loaded.ready.speculation_off or "")
        return
    assert loaded.ready.speculation_off is None
    assert loaded.ready.drafters == ["lookup", "grammar"]
    assert not loaded.idle.measuring
    assert {1, 2, 4, 8, 16, 32} <= set(loaded.cost_ms_by_rows())
    costs = loaded.profile.costs
    assert costs.furthest > 400
    assert 0 < (costs.copy_seconds or 0) < costs.target(1)
    repeating = SamplingParams(temperature=0, logit_bias={ord("x"): 100.0})
    script = Script([asked("b", PROMPT, sampling=repeating)]).run(loaded)
    figures = script.all(Finished)[0].speculation
    assert figures.reason == "speculating"
    assert 0 < figures.accepted <= figures.drafted


@pytest.mark.parametrize("build", [tiny.build, recurrent.mamba])
def test_a_draft_model_drafts_for_it_and_may_be_one_itself(
    build: Callable[[Path], Path], model: Path, tmp_path: Path
) -> None:
    """And what is said about it: how rejected tokens are taken back."""
    draft = build(tmp_path / "draft.gguf")
    alone = Placement(threads=1)
    engine = Engine(slots=2, context=256, target=alone, draft=alone, exactness="standard")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(tmp_path))
        command = Load("tiny", str(model), str(draft), Config(engine=engine))
        with assemble.load(command, lambda *_: None) as loaded:
            Script([]).run(loaded)
            assert loaded.ready.speculation_off is None
            assert "model" in loaded.ready.drafters
            assert [one for one in loaded.ready.devices if one.what.startswith("draft")]
            assert loaded.ready.rollback in HOW
            assert loaded.ready.rollback == HOW[1] or header.read(model).architecture == "lfm2"
            always = SpeculationParams(mode="always", drafters=["model"])
            script = Script([asked("a", PROMPT, speculation=always)]).run(loaded)
            figures = script.all(Finished)[0].speculation
            assert figures.sources["model"].drafted > 0
            plain = asked("b", PROMPT, client="other", speculation=SpeculationParams(mode="off"))
            assert answers(loaded, asked("c", PROMPT, client="third")) == answers(loaded, plain)


def test_a_continued_turn_reads_only_the_new_text(loaded: Loaded) -> None:
    """Every other text is read from a copy of the state, or from its beginning."""
    first, _ = cached(loaded, asked("a", PROMPT))
    longer = [*PROMPT, *first, *b" and more"]
    again, reused = cached(loaded, asked("b", longer))
    anew, none = cached(loaded, asked("c", longer, client="other"))
    assert (again, reused, none) == (anew, len(PROMPT) + len(first) - 1, 0)
    for other in (PROMPT, [*PROMPT, *first[:5], *b" else"], longer[:-1]):
        text, reused = cached(loaded, asked("d", other))
        assert reused < len(other) - 1
        assert text == answers(loaded, asked("e", other, client="another"))[0]


def test_text_cut_by_a_stop_string_affects_no_later_answer(loaded: Loaded) -> None:
    """The state has read beyond the stop, so the next turn does not begin from there."""
    sampling = SamplingParams(temperature=0, logit_bias={ord("x"): 100.0})
    script = Script([asked("b", PROMPT, stop=["xx"], sampling=sampling)]).run(loaded)
    assert script.all(Finished)[0].reason == "stop"
    longer = [*PROMPT, *b" so"]
    text, reused = cached(loaded, asked("c", longer))
    assert reused <= len(PROMPT)
    assert text == answers(loaded, asked("d", longer, client="fresh"))[0]


def test_concurrent_answers_equal_those_alone(loaded: Loaded) -> None:
    """Slots are independent, also when a third request waits."""
    prompts = [list(text) for text in (b"one of them", b"another one, longer", b"the third")]
    alone = [answers(loaded, asked("x", prompt))[0] for prompt in prompts]
    together = [asked(str(index), prompt) for index, prompt in enumerate(prompts)]
    assert answers(loaded, *together) == alone


def test_a_replay_reads_the_answer(loaded: Loaded) -> None:
    """Every token was the target's own choice, and the slot then holds the text."""
    (said,) = answers(loaded, asked("a", PROMPT))
    readings: list[Reading] = []

    def read() -> Iterator[None]:
        script = Text("c", PROMPT, [], said, None, 8)
        readings.append((yield from replay(loaded.engine, script, lambda _: 0.5)))

    list(read())
    assert max(readings[0].gaps) < NEAR
    longer = [*PROMPT, *said, 1]
    text, reused = cached(loaded, asked("b", longer))
    assert reused == len(longer) - 1
    assert text == answers(loaded, asked("d", longer, client="fresh"))[0]


def test_a_larger_context_keeps_the_state(model: Path) -> None:
    """Both slots keep the text read before the context grew."""
    alone = Placement(threads=1)
    weights = Model.load(model, alone)
    large, growing = (
        Context.open(weights, alone, slots=2, context=1024, rows=64, cells=cells, most_cells=2048)
        for cells in (2048, 256)
    )
    for start in range(0, 320, 32):
        rows = [
            Row(start * at % 250, start + at, slot, at == 31) for slot in (0, 1) for at in range(32)
        ]
        before, after = (context.decode(rows).logits.copy() for context in (large, growing))
        assert np.abs(before - after).max() < NEAR
    assert growing.kv_cells > 256
    for opened in (large, growing, weights):
        opened.close()
