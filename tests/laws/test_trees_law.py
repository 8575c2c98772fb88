"""A tree is verified in one forward, and changes no token."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import architectures
import heads
import numpy as np
import pytest
import tiny
from hypothesis import given
from hypothesis import strategies as st
from laws.engine_harness import CONTEXT, PROMPTS, SLOTS, Harness, finish, opened, output
from laws.policies import FixedDepth, Padding, Rubbish
from laws.test_fed_law import EIGHT, Fed, eagle3, mtp
from laws.test_lossless import CHAINS

from localspec.config import Placement
from localspec.control import trees
from localspec.control.acceptance import Acceptance
from localspec.control.controller import Controller
from localspec.control.costs import Costs
from localspec.control.round import Plan, Round, View
from localspec.drafters._siblings import FIRST as SECONDS
from localspec.engine.llama.context import Context
from localspec.engine.llama.library import ours
from localspec.engine.llama.model import Model
from localspec.engine.session import Session
from localspec.types import Draft, Row, Signal, SpeculationParams

AUTO = SpeculationParams(mode="auto")
SIGNAL = Signal("rubbish", 0, 0.5)
needs_states = pytest.mark.skipif(not ours.states, reason="llama.cpp without LocalSpec's edits")


@pytest.fixture(scope="module")
def standard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Harness]:
    """Engine harness whose slots share all cells."""
    folder = tmp_path_factory.mktemp("models")
    target = tiny.build(folder / "target.gguf", seed=0)
    draft = tiny.build(folder / "draft.gguf", seed=1, like=0, noise=0.2)
    with opened(
        target, draft, Placement(threads=1), slots=SLOTS, context=CONTEXT, strict=False
    ) as found:
        yield found


class Growing(Padding):
    """Makes a tree of each draft: second choices, other sources, and nodes anywhere by chance."""

    def __init__(
        self, depth: int, extend: str | None, seed: int, answers: Sequence[Session] = ()
    ) -> None:
        super().__init__(depth, extend, most=3)
        self._chance = random.Random(seed)  # noqa: S311 - no secret
        self._answers = answers
        self.branches = 1

    def plan(self, views: Sequence[View], other_rows: int = 0, before: int = 0) -> list[Plan]:
        """With siblings."""
        plans = super().plan(views, other_rows, before)
        return [replace(plan, siblings=True) for plan in plans]

    def trees(self, views: Sequence[View], drafts: Sequence[Draft]) -> list[Draft]:
        """Of any shape."""
        return [self._tree(view, draft) for view, draft in zip(views, drafts, strict=True)]

    def _tree(self, view: View, draft: Draft) -> Draft:
        draft = Acceptance().tree(draft, view.free, view.branches, view.local)
        if view.branches == 1:
            return draft
        place = view.cells + 1
        told = [each.tokens[place] for each in self._answers if place < len(each.tokens)]
        for _ in range(self._chance.randrange(6)):
            parent = self._chance.choice([-1, self._chance.randrange(-1, len(draft))])
            token = self._chance.choice([*told, 97])
            draft = Draft(
                (*draft.tokens, token),
                (*draft.parents, parent),
                (*draft.signals, SIGNAL),
                (*draft.laws, None),
            )
        draft = draft.head(view.budget)
        self.branches = max(self.branches, 1 + max(trees.begun(draft.parents), default=0))
        return draft


@pytest.mark.parametrize("chain", CHAINS)
@pytest.mark.parametrize("drafter", ["rubbish", "lookup", "model", "lookup+model+rubbish"])
def test_any_tree_gives_the_tokens_of_plain_decoding(
    standard: Harness, chain: str, drafter: str
) -> None:
    """For 1 and 4 sessions, with second choices, several sources and padding."""
    requests = [standard.request(prompt, CHAINS[chain]) for prompt in PROMPTS]
    plain = [finish(standard.engine({}, FixedDepth(0)), [request])[0] for request in requests]
    aside = 0
    for count in (1, SLOTS):
        for depth in (1, 5):
            names = [name for name in drafter.split("+") if name != "rubbish"]
            drafters = standard.drafters(*names)
            if "rubbish" in drafter:
                drafters["rubbish"] = Rubbish(standard.target.n_vocab)
            policy = Growing(
                depth, "model" if "model" in names else None, seed=depth, answers=plain
            )
            engine = standard.engine(drafters, policy)
            sessions = finish(engine, requests[:count])
            assert [output(session) for session in sessions] == [*map(output, plain[:count])]
            assert policy.branches > 1
            aside += sum(
                len(trees.path(judged.draft, committed))
                - len(trees.path(judged.draft.trunk(), committed))
                for round_ in policy.rounds
                for judged, committed in zip(round_.judged, round_.committed, strict=True)
            )
            held = standard.memory.held
            assert [standard.memory.length(slot) for slot in range(SLOTS)] == [*held]
    assert aside > 0, "no branch but the first was ever right"


@pytest.fixture(scope="module", params=["eagle3", "glm4moe", "eagle3 strict"])
def fed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fed]:
    """A head of random weights, whose target's slots share all cells but for strict use."""
    folder, (kind, *strict) = tmp_path_factory.mktemp("fed"), request.param.split()
    if kind == "eagle3":
        head = heads.eagle3(folder / "head.gguf")
        made = eagle3(folder, head, counts=False, strict=bool(strict))
    else:
        made = mtp(folder, kind, "chance", strict=bool(strict))
    with made as found:
        yield found


class Watched(Controller):
    """The policy, whose rounds are kept."""

    def __init__(self) -> None:
        super().__init__(Costs(), Acceptance())
        self.rounds: list[Round] = []
        for rows in range(1, 17):
            self.costs.measured(rows, 0.02)

    def observe(self, round_: Round) -> None:
        """Learn, and keep it."""
        super().observe(round_)
        self.rounds.append(round_)


@needs_states
@pytest.mark.parametrize("chain", [*CHAINS, "letters"])
def test_second_choices_of_a_head_change_no_token(fed: Fed, chain: str) -> None:
    """They are verified where slots share cells, by any policy, and right now and then."""
    sampling = CHAINS.get(chain, EIGHT)
    harness = fed.harness
    requests = [harness.request(each, sampling, speculation=AUTO) for each in PROMPTS]
    plain = [finish(harness.engine({}, FixedDepth(0)), [request])[0] for request in requests]
    judged = right = 0
    for count in (1, SLOTS):
        for policy in (Growing(1, fed.name, 1, plain), Growing(5, fed.name, 5), Watched()):
            sessions = finish(harness.engine(fed.drafters("lookup"), policy), requests[:count])
            assert [output(session) for session in sessions] == [*map(output, plain[:count])]
            for round_ in policy.rounds:
                for each, committed in zip(round_.judged, round_.committed, strict=True):
                    seconds = [
                        signal.source == fed.name and signal.bucket >= SECONDS
                        for signal in each.draft.signals
                    ]
                    judged += sum(seconds)
                    right += sum(seconds[node] for node in trees.path(each.draft, committed))
    if harness.memory.branches == 1:
        assert judged == 0
    else:
        assert judged > 0
        assert right > 0 or chain != "letters"


@pytest.mark.parametrize("chain", CHAINS)
def test_the_policy_verifies_trees_where_rows_are_free(standard: Harness, chain: str) -> None:
    """And chains where they are not; the tokens are those of plain decoding."""
    requests = [standard.request(prompt, CHAINS[chain], speculation=AUTO) for prompt in PROMPTS]
    plain = [
        output(finish(standard.engine({}, FixedDepth(0)), [request])[0]) for request in requests
    ]
    nodes = {}
    for price in (0.0, 0.02):
        policy = Controller(Costs(), Acceptance())
        for rows in range(1, 17):
            policy.costs.measured(rows, 0.02 + rows * price)
        engine = standard.engine(standard.drafters("lookup", "grammar", "model"), policy)
        sessions = finish(engine, requests)
        assert [output(session) for session in sessions] == plain
        nodes[price] = sum(session.meter.drafted for session in sessions)
    assert nodes[0.0] > nodes[0.02]


def test_rejection_verifies_chains(standard: Harness) -> None:
    """A draft from a law is judged in order; no tree is asked for."""
    speculation = SpeculationParams(mode="always", verify="rejection")
    policy = Growing(5, "model", seed=1)
    request = standard.request(PROMPTS[0], CHAINS["seeded"], speculation=speculation)
    finish(standard.engine(standard.drafters("lookup", "model"), policy), [request])
    assert policy.branches == 1


def test_strict_use_and_states_verify_chains(harness: Harness, tmp_path: Path) -> None:
    """Streams cannot share cells, and a state has none."""
    assert harness.memory.branches == 1
    for kind in ("qwen35", "granitehybrid", "lfm2moe"):
        model = Model.load(architectures.build(tmp_path / f"{kind}.gguf", kind))
        context = Context.open(model, slots=2, context=256, rows=32, branching=True)
        assert context.branches == 1
        context.close()
        model.close()


PARENTS = st.lists(st.integers(0, 10), min_size=1, max_size=10).map(
    lambda drawn: [min(parent, node) - 1 for node, parent in enumerate(drawn)]
)


@pytest.fixture(scope="module", params=["qwen3moe", "gpt_oss", "gemma4", "deepseek2", "phi3"])
def context(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Context]:
    """A context of an architecture whose memory has cells, sliding windows among them."""
    kind = {name.replace("-", "_"): name for name in architectures.KINDS}[request.param]
    path = architectures.build(tmp_path_factory.mktemp("kinds") / "model.gguf", kind)
    model = Model.load(path)
    context = Context.open(
        model, Placement(threads=1), slots=3, context=128, rows=32, branching=True
    )
    yield context
    context.close()
    model.close()


@given(PARENTS, st.integers(0, 9), st.integers(1, 12))
def test_each_node_sees_its_ancestors_alone(
    context: Context, parents: list[int], last: int, held: int
) -> None:
    """The logits of a node are those of its path read as a chain, and so after it is kept."""
    parents = [parent for parent, own in zip(parents, trees.begun(parents), strict=True) if own < 8]
    last %= len(parents)
    through, depths = trees.through(parents), trees.depths(parents)
    tokens = [7 + 3 * node for node in range(len(parents))]
    for slot in (0, 1):
        context.truncate(slot, 0)
        context.decode([Row(5 + place, place, slot) for place in range(held)])
    root = Row(3, held, 0, wants_logits=True, branches=through[0])
    rows = [
        Row(token, held + 1 + depth, 0, wants_logits=True, branches=on)
        for token, depth, on in zip(tokens, depths, through[1:], strict=True)
    ]
    seen = context.decode([root, *rows]).logits.copy()
    ways: list[list[int]] = []
    for node, parent in enumerate(parents):
        ways.append([*(ways[parent] if parent >= 0 else []), node])
    length = held + 1 + len(ways[last])
    assert context.keep(0, through[1 + last][0], length) == length == context.length(0)
    after = context.decode([Row(11, length, 0, wants_logits=True)]).logits[0].copy()
    for node in range(len(parents)):
        read = [3, *(tokens[each] for each in ways[node]), 11]
        chain = [Row(token, held + at, 1, wants_logits=True) for at, token in enumerate(read)]
        logits = context.decode(chain).logits
        assert np.abs(logits[-2] - seen[1 + node]).max() < 1e-3 * np.ptp(logits[-2])
        if node == last:
            assert np.abs(logits[-1] - after).max() < 1e-3 * np.ptp(logits[-1])
        context.truncate(1, held)
