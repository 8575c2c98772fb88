"""A target's own first layers draft for it and change no token, on any kind of model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import mixture
import pytest
import tiny
from kinds import sliding
from laws.engine_harness import CONTEXT, PROMPTS, SLOTS, Harness, finish, opened, output
from laws.policies import FixedDepth
from laws.test_lossless import CHAINS

from localspec.config import Placement
from localspec.drafters.early_exit import NAME, EarlyExitDrafter
from localspec.engine.llama.early_exit import EarlyExit, possible
from localspec.engine.llama.library import ours
from localspec.types import Drafter, Row, SourceCount, SpeculationParams, Token

KINDS: dict[str, Callable[[Path], Path]] = {
    "attention": lambda path: tiny.build(path, seed=0),
    "sliding window": sliding,
    "mixture": mixture.build,
}

pytestmark = pytest.mark.skipif(not ours.exits, reason="this llama.cpp lacks LocalSpec's edits")


@pytest.fixture(scope="module", params=[*KINDS])
def model(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny model of some kind."""
    return KINDS[request.param](tmp_path_factory.mktemp("models") / "model.gguf")


@pytest.fixture(scope="module", params=["strict", "standard"])
def target(request: pytest.FixtureRequest, model: Path) -> Iterator[Harness]:
    """An engine on it."""
    with opened(
        model, model, Placement(threads=1), slots=SLOTS, context=CONTEXT,
        strict=request.param == "strict",
    ) as found:  # fmt: skip
        yield found


def drafters(target: Harness, layers: int, *others: str) -> Mapping[str, Drafter]:
    """The target's first layers, beside other drafters."""
    assert possible(target.memory)
    early = EarlyExit(target.memory)
    early.layers = layers
    found = EarlyExitDrafter(early, target.target.n_vocab, frozenset(target.target.eog))
    return {**target.drafters(*others), NAME: found}


@pytest.mark.parametrize("chain", CHAINS)
@pytest.mark.parametrize("others", [(), ("lookup", "lookahead")])
def test_any_exit_gives_the_tokens_of_plain_decoding(
    target: Harness, chain: str, others: tuple[str, ...]
) -> None:
    """For 1 to 4 sessions, after each layer: tokens equal; drafts were accepted and rejected.

    Beside sources that copy there are few drafts, and these may be all right or all wrong.
    """
    requests = [target.request(prompt, CHAINS[chain]) for prompt in PROMPTS]
    plain = [output(finish(target.engine({}, FixedDepth(0)), [one])[0]) for one in requests]
    counts = SourceCount()
    for layers in range(1, target.target.n_layer):
        for together, depth in ((1, 4), (2, 1), (SLOTS, 6)):
            engine = target.engine(drafters(target, layers, *others), FixedDepth(depth, NAME))
            sessions = finish(engine, requests[:together])
            assert [output(session) for session in sessions] == plain[:together]
            for session in sessions:
                count = session.meter.sources.get(NAME, SourceCount())
                counts.drafted += count.drafted
                counts.accepted += count.accepted
    assert counts.drafted
    assert others or 0 < counts.accepted < counts.drafted


def test_rejection_keeps_every_token_that_is_certain(target: Harness) -> None:
    """A greedy law is a point: under the other rule drafts change nothing either."""
    wish = SpeculationParams(mode="always", verify="rejection")
    request = target.request(PROMPTS[1], CHAINS["greedy"], speculation=wish)
    (plain,) = finish(target.engine({}, FixedDepth(0)), [request])
    (session,) = finish(target.engine(drafters(target, 1), FixedDepth(3, NAME)), [request])
    assert output(session) == output(plain)
    assert session.meter.sources[NAME].drafted


def test_nothing_is_held_of_a_draft(target: Harness) -> None:
    """The slot holds the text but for its last token, before a draft and after it."""
    engine = target.engine(drafters(target, 1), FixedDepth(5, NAME))
    session = engine.admit(target.request(PROMPTS[1], CHAINS["greedy"]))
    while not session.finish:
        engine.step()
        assert target.memory.held[session.slot] == session.cached == len(session.tokens) - 1
    engine.retire(session)


def test_without_a_chosen_layer_nothing_is_drafted(target: Harness) -> None:
    """The policy does not even see the source."""
    policy = FixedDepth(5, NAME)
    request = target.request(PROMPTS[1], CHAINS["greedy"])
    (session,) = finish(target.engine(drafters(target, 0), policy), [request])
    assert not session.meter.sources
    assert not any(view.neural for round_ in policy.rounds for view in round_.views)


def test_an_exit_is_another_forward_and_all_layers_are_back_behind_it(target: Harness) -> None:
    """Logits of fewer layers differ; those of all layers are bit for bit what they were."""
    request = target.request(PROMPTS[3], CHAINS["greedy"])
    engine = target.engine({}, FixedDepth(0))
    slot, _ = engine.take_slot("", request.prompt, reuse=False)
    before, count = engine.read(slot, request.prompt, 0, 0)
    whole = before.logits[:count].copy()
    early = EarlyExit(target.memory)
    for layers in range(1, target.target.n_layer):
        early.layers = layers
        target.memory.truncate(slot, 0)
        rows = _rows(slot, request.prompt[: len(whole)])
        fewer = early.decode(rows).logits.copy()
        assert fewer.shape == whole.shape
        assert (fewer != whole).any()
        target.memory.truncate(slot, 0)
        after, _ = engine.read(slot, request.prompt, 0, 0)
        assert (after.logits[:count] == whole).all()
    engine.release_slot(slot, "", [])


def _rows(slot: int, tokens: list[Token]) -> list[Row]:
    return [Row(token, place, slot, wants_logits=True) for place, token in enumerate(tokens)]
