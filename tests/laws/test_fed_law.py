"""Heads that go on from the target's states change no token, and read what belongs together."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import heads
import msgspec
import numpy as np
import pytest
from laws.engine_harness import PROMPTS, SLOTS, Harness, finish, opened, output
from laws.fairness import surprises
from laws.policies import FixedDepth, Gappy
from laws.test_interference_law import asked
from laws.test_lossless import CHAINS
from numpy.typing import NDArray

from localspec import drafters
from localspec.config import Placement
from localspec.engine.llama.context import Context
from localspec.engine.llama.fed import FedContext
from localspec.engine.llama.library import ours
from localspec.engine.llama.model import Model
from localspec.engine.llama.vectors import Taps
from localspec.engine.session import Request
from localspec.engine.simulation import SimulatedHardware
from localspec.machine import Forwards, Head, Machine
from localspec.types import (
    Drafter,
    FedBackend,
    FedOutput,
    Floats,
    Row,
    SamplingParams,
    SpeculationParams,
    Token,
)

pytestmark = pytest.mark.skipif(not ours.states, reason="llama.cpp without LocalSpec's edits")
GREEDY = SamplingParams(temperature=0.0)
COUNTED = 40
VOCABULARY = 262


@contextmanager
def eagle3(folder: Path, head: Path, *, counts: bool, strict: bool = True) -> Iterator[Fed]:
    """A dense target that is tapped, with that head."""
    target = heads.qwen2(folder / "target.gguf", counts=counts)
    alone = Placement(threads=1)
    with opened(target, target, alone, slots=SLOTS, context=256, strict=strict) as harness:
        assert harness.memory.tap(Taps((1, 2, 3)))
        model = Model.load(head)
        beside = Context.open(harness.target, slots=1, context=64, rows=8)
        context = FedContext.open(
            model,
            alone,
            slots=SLOTS,
            context=256,
            streams=strict,
            inputs=3 * heads.WIDTH,
            beside=beside.handle,
        )
        yield Fed(harness, context, "eagle3")
        context.close()
        beside.close()
        model.close()


MTP: dict[str, tuple[Callable[[Path, heads.By], Path], int]] = {
    "glm4moe": (heads.glm4moe, 0),
    "mimo2": (heads.mimo2, 0),
    "mimo2 of three": (partial(heads.mimo2, layers=3), 0),
    "qwen35": (heads.qwen35, 0),
    "qwen35 with snapshots": (heads.qwen35, 4),
}
"""Targets with prediction layers inside, and the snapshots that their forwards leave."""


@contextmanager
def mtp(folder: Path, kind: str, by: heads.By, *, strict: bool = True) -> Iterator[Fed]:
    """A target with a prediction layer inside, on which it drafts."""
    build, snapshots = MTP[kind]
    target = build(folder / "target.gguf", by)
    alone = Placement(threads=1)
    with opened(
        target, target, alone, slots=SLOTS, context=256, strict=strict, snapshots=snapshots
    ) as harness:
        model = Model.load(target, predicts=True)
        memory = Context.open(
            model, alone, slots=SLOTS, context=256, rows=64, streams=strict, snapshots=snapshots
        )
        memory.find_rollback()
        assert memory.snapshots == snapshots
        assert memory.show()
        assert memory.tap(Taps(following=True))
        context = FedContext.open(
            model, alone, slots=SLOTS, context=256, streams=strict, predicts=True
        )
        yield Fed(replace(harness, memory=memory), context, "mtp")
        context.close()
        memory.close()
        model.close()


def made(kind: str, folder: Path, by: heads.By) -> AbstractContextManager[Fed]:
    """A pair of that kind that counts."""
    if kind != "eagle3":
        return mtp(folder, kind, by)
    return eagle3(folder, heads.eagle3(folder / "head.gguf", by), counts=True)


KINDS = ("eagle3", *MTP)


class Fed:
    """An engine's parts and a head."""

    def __init__(self, harness: Harness, head: FedBackend, name: str) -> None:
        self.harness, self.head, self.name = harness, head, name

    def drafters(self, *others: str) -> dict[str, Drafter]:
        """The head's drafter, and others before it."""
        target = self.harness.target
        parts = {self.name: self.head, "n_vocab": target.n_vocab, "ends": target.eog}
        return {
            name: drafters.load(name, piece=target.piece, **parts) for name in (*others, self.name)
        }

    def answers(
        self, sources: Mapping[str, Drafter], requests: Sequence[Request], depth: int
    ) -> tuple[list[list[Token]], dict[str, tuple[int, int]]]:
        """The answers, and drafted and accepted tokens by source."""
        sessions = finish(
            self.harness.engine(sources, FixedDepth(depth, self.name if sources else None)),
            list(requests),
        )
        counts: dict[str, tuple[int, int]] = {}
        for session in sessions:
            for name, count in session.meter.sources.items():
                drafted, accepted = counts.get(name, (0, 0))
                counts[name] = drafted + count.drafted, accepted + count.accepted
        return [output(session) for session in sessions], counts


def whole(fed: Fed) -> FedContext:
    """Its head as it is."""
    assert isinstance(fed.head, FedContext)
    return fed.head


def counting(fed: Fed, first: int = 10) -> Request:
    """A text of numbers that go up, to be gone on with."""
    speculation = SpeculationParams(mode="always")
    prompt = list(range(first, first + 20))
    return fed.harness.request(prompt, GREEDY, tokens=COUNTED, speculation=speculation)


BY: tuple[heads.By, ...] = ("token", "features")


@pytest.mark.parametrize("by", BY)
@pytest.mark.parametrize("kind", KINDS)
def test_a_head_that_is_always_right_is_always_accepted(
    kind: str, by: heads.By, tmp_path: Path
) -> None:
    """By its token alone, and by what it is given alone: nothing is off by one."""
    with made(kind, tmp_path, by) as fed:
        requests = [counting(fed, first) for first in (10, 30, 100)]
        for asking, depth in ((requests[:1], 3), (requests, 5)):
            answers, counts = fed.answers(fed.drafters(), asking, depth)
            expected = [list(range(r.prompt[-1] + 1, r.prompt[-1] + 1 + COUNTED)) for r in asking]
            assert answers == expected
            drafted, accepted = counts[fed.name]
            assert drafted == accepted
            assert accepted >= COUNTED * len(asking) * depth // (depth + 1) - len(asking) * depth


class Late:
    """A head that is given its tokens, or its vectors of the target, one place too late."""

    def __init__(self, head: FedContext, by: heads.By) -> None:
        self.n_vocab, self.n_slots, self.max_rows = head.n_vocab, head.n_slots, head.max_rows
        self.context, self.inputs = head.context, head.inputs
        self._head, self._by, self._last = head, by, np.zeros((1, head.inputs), np.float32)

    def fuse(self, features: Floats) -> Floats:
        """As the head does, of what came before."""
        if self._by == "token":
            return self._head.fuse(features)
        features = np.concatenate([self._last, features])
        self._last = features[-1:]
        return self._head.fuse(features[:-1])

    def decode(self, rows: Sequence[Row], vectors: Floats) -> FedOutput:
        """As the head does; in a text that counts the token before is one less."""
        late = self._by == "token"
        return self._head.decode([replace(row, token=row.token - late) for row in rows], vectors)

    def truncate(self, slot: int, length: int) -> None:
        """As the head does."""
        self._head.truncate(slot, length)


@pytest.mark.parametrize("by", BY)
@pytest.mark.parametrize("kind", KINDS)
def test_a_head_that_is_off_by_one_is_never_right(kind: str, by: heads.By, tmp_path: Path) -> None:
    """So that the law above tells something; the answer is right all the same."""
    with made(kind, tmp_path, by) as fed:
        late = Fed(fed.harness, Late(whole(fed), by), fed.name)
        answers, counts = late.answers(late.drafters(), [counting(fed)], 3)
        assert answers == [list(range(30, 30 + COUNTED))]
        assert counts[fed.name][0] > 0
        assert counts[fed.name][1] == 0


SCHEMES = [
    (chain, depth, others) for chain in CHAINS for depth, others in ((3, ()), (6, ("lookup",)))
]


@pytest.fixture(scope="module", params=["eagle3", "few words", "standard", *MTP])
def by_chance(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Fed]:
    """Heads of random weights, which are right now and then."""
    folder = tmp_path_factory.mktemp("fed")
    words = np.arange(0, 256, 3) if request.param == "few words" else None
    if request.param in MTP:
        with mtp(folder, request.param, "chance") as fed:
            yield fed
        return
    head = heads.eagle3(folder / "head.gguf", words=words)
    with eagle3(folder, head, counts=False, strict=request.param != "standard") as fed:
        yield fed


@pytest.mark.parametrize(("chain", "depth", "others"), SCHEMES)
def test_drafts_change_no_token(
    by_chance: Fed, chain: str, depth: int, others: tuple[str, ...]
) -> None:
    """Greedy and sampled, alone and beside others, behind what lookup drafts."""
    requests = asked(by_chance.harness, chain)
    drafted = 0
    for count in (1, SLOTS):
        plain, _ = by_chance.answers({}, requests[:count], 0)
        sources = by_chance.drafters(*others)
        answers, counts = by_chance.answers(sources, requests[:count], depth)
        if by_chance.harness.shape.bitwise:
            assert answers == plain
        drafted += counts[by_chance.name][0]
    assert drafted > 0


EIGHT = SamplingParams(
    temperature=1.5, top_k=0, top_p=1.0, min_p=0.0, logit_bias=dict.fromkeys(range(65, 73), 30.0)
)
"""Eight letters, of which a head by chance drafts the one that is drawn often enough."""


def test_by_rejection_each_token_follows_the_targets_law(by_chance: Fed) -> None:
    """800 tokens of one prompt at a time, and behind what lookup drafts."""
    speculation = SpeculationParams(mode="always", verify="rejection")
    for others, depth in (((), 3), (("lookup",), 5)):
        requests = [
            by_chance.harness.request(
                PROMPTS[0],
                msgspec.structs.replace(EIGHT, seed=seed),
                tokens=200,
                client=str(seed),
                speculation=speculation,
            )
            for seed in range(SLOTS)
        ]
        sources = by_chance.drafters(*others)
        sessions = finish(
            by_chance.harness.engine(sources, FixedDepth(depth, by_chance.name)), requests
        )
        counts = [session.meter.sources[by_chance.name] for session in sessions]
        drafted = sum(count.drafted for count in counts)
        assert 0 < sum(count.accepted for count in counts) < drafted
        found = surprises(by_chance.harness, sessions)
        assert max(found.values()) < 1, found


@pytest.mark.parametrize("kind", KINDS)
def test_a_reused_prefix_is_drafted_behind(kind: str, tmp_path: Path) -> None:
    """A slot goes on where it was, or half-way back: the head's memory as well as the target's."""
    with made(kind, tmp_path, "features") as fed:
        engine = fed.harness.engine(fed.drafters(), FixedDepth(4, fed.name))
        first = counting(fed)
        for length in (20, 20 + COUNTED, 35):
            prompt = list(range(10, 10 + length))
            (session,) = finish(engine, [replace(first, prompt=prompt)])
            assert output(session) == list(range(10 + length, 10 + length + COUNTED))
            count = session.meter.sources[fed.name]
            assert count.drafted == count.accepted >= COUNTED // 2


def test_gaps_change_no_token(by_chance: Fed) -> None:
    """Any part of a text may be left out between two drafts."""
    requests = asked(by_chance.harness, "greedy")
    plain = [
        output(each) for each in finish(by_chance.harness.engine({}, FixedDepth(0)), list(requests))
    ]
    policy = Gappy(3, by_chance.name)
    engine = by_chance.harness.engine(by_chance.drafters(), policy)
    found = [output(each) for each in finish(engine, list(requests))]
    assert policy.skipped > 0
    if by_chance.harness.shape.bitwise:
        assert found == plain


class Odd:
    """A grammar of odd tokens."""

    def mask(self, path: Sequence[Token]) -> NDArray[np.bool_]:
        """The same everywhere."""
        del path
        odd: NDArray[np.bool_] = np.arange(VOCABULARY) % 2 == 1
        return odd

    def forced(self, path: Sequence[Token]) -> Sequence[Token]:
        """There is always a choice."""
        del path
        return ()

    def commit(self, tokens: Sequence[Token]) -> None:
        """Nothing to remember."""


@pytest.mark.parametrize("chain", ["greedy", "sampled"])
def test_a_draft_ends_where_no_word_of_the_head_may_come(chain: str, tmp_path: Path) -> None:
    """Its own words are even ones, or some of them odd; it is asked again all the same."""
    sampling = GREEDY if chain == "greedy" else SamplingParams(temperature=1.0, seed=3)
    for words, drafts in ((np.arange(0, 256, 2), False), (np.arange(0, 256, 3), True)):
        folder = tmp_path / str(len(words))
        folder.mkdir()
        head = heads.eagle3(folder / "head.gguf", words=words)
        with eagle3(folder, head, counts=False) as fed:
            request = fed.harness.request(PROMPTS[0], sampling)
            request = replace(request, constraint=Odd())
            (plain,), _ = fed.answers({}, [request], 0)
            engine = fed.harness.engine(fed.drafters(), FixedDepth(3, fed.name))
            session = engine.admit(replace(request, constraint=Odd()))
            while session.finish is None:
                assert fed.name in session.drafters
                engine.step()
            assert output(session) == plain
            assert (session.meter.drafted > 0) == drafts
            engine.retire(session)


def test_on_a_simulated_machine_a_head_takes_what_the_table_says(tmp_path: Path) -> None:
    """The same drafts; a forward of several rows reads the head's weights once."""
    table = Machine("m", "s", Forwards({1: 5.0}), Forwards({1: 1.0}), head=Head(0.5, "fed"))
    with made("glm4moe", tmp_path, "features") as fed:
        place = SimulatedHardware(table)
        assert not place.has_head  # which would be computed by the host
        head = place.fed(whole(fed))
        simulated = Fed(fed.harness, head, fed.name)
        sources = simulated.drafters()
        answers, counts = simulated.answers(sources, [counting(fed)], 3)
        assert answers == [list(range(30, 30 + COUNTED))]
        assert counts[fed.name][0] == counts[fed.name][1] > 0
        assert place.clock() > 0.0005 * counts[fed.name][0] * 0.9
        before = place.clock()
        head.truncate(0, 0)
        head.decode(
            [Row(token, token, 0) for token in range(11)], np.ones((11, heads.WIDTH), np.float32)
        )
        assert place.clock() - before == pytest.approx(0.001)
