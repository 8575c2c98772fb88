"""Models whose memory is a state draft with every source, however the state goes back.

By snapshots that forwards leave, by copies, and by both where a draft is longer than snapshots
reach: the tokens are those of plain decoding. Ten thousand rounds in all, of random drafts.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import architectures
import kinds
import numpy as np
import pytest
import recurrent
from laws.engine_harness import PROMPTS, SLOTS, Harness, finish, opened, output
from laws.policies import FixedDepth, Foretelling
from laws.test_lossless import CHAINS

from localspec.catalog import memory
from localspec.config import Placement
from localspec.engine.llama.context import Context
from localspec.engine.llama.model import Model
from localspec.engine.session import Request, Session
from localspec.types import (
    Row,
    SourceCount,
    Token,
)

SNAPSHOTS, LONGEST, TOKENS, ROUNDS = 4, 9, 80, 10_000

APART = 1.0
"""Logits behind the state of another text differ by 4 and more, those that were rounded otherwise
by a tenth: where a vector is packed anew, the last bit may decide a step."""


def _packed(architecture: str) -> Callable[[Path], Path]:
    return lambda path: architectures.build(path, architecture, packed=True)


KINDS: dict[str, Callable[[Path], Path]] = {
    "mamba": recurrent.mamba,
    "mamba2": kinds.mamba2,
    "lfm2": recurrent.lfm2,
    "qwen3next": kinds.delta_net,
    "qwen35": _packed("qwen35"),
    "granitehybrid": _packed("granitehybrid"),
}
COPIED = KINDS.keys() - memory.SNAPSHOTS
"""llama.cpp leaves no snapshots of these."""


class Wavering(Foretelling):
    """Drafts of random length, true up to a random place, without a mistake now and then."""

    name = "wavering"

    def __init__(self, seed: int) -> None:
        self._random = np.random.default_rng(seed)
        self.drafts = 0

    def spoilt(self, tokens: list[Token], budget: int) -> list[Token]:
        """Cut to a random length, and wrong from a random place on."""
        length = int(self._random.integers(0, budget + 1))
        tokens = tokens[:length]
        for place in range(int(self._random.integers(0, length + 2)), len(tokens)):
            tokens[place] = (tokens[place] + 1) % 250
        self.drafts += bool(tokens)
        return tokens


CASES = [
    (kind, strict, snapshots)
    for kind in KINDS
    for strict in (True, False)
    for snapshots in ((0,) if kind in COPIED else (SNAPSHOTS, 0))
]
SHARE = math.ceil(ROUNDS / len(CASES))
"""Rounds with a draft in each case, none of which is left out."""


@pytest.fixture(
    scope="module",
    params=CASES,
    ids=lambda param: f"{param[0]}-{'strict' if param[1] else 'standard'}-{param[2]}",
)
def states(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Harness]:
    """A target and a draft whose memories are states, with snapshots or without."""
    kind, strict, snapshots = request.param
    folder = tmp_path_factory.mktemp(kind)
    target, draft = KINDS[kind](folder / "target.gguf"), KINDS["mamba"](folder / "draft.gguf")
    alone = Placement(threads=1)
    with opened(
        target, draft, alone, slots=SLOTS, context=256, strict=strict, snapshots=snapshots
    ) as found:
        assert (found.shape.rollback, found.shape.bitwise) == ("restore", True)
        assert found.memory.snapshots == snapshots
        assert found.draft_memory.rollback == "restore"
        yield found


def plainly(harness: Harness, requests: Sequence[Request]) -> list[list[Token]]:
    """The answers of plain decoding, each by an engine that holds nothing else."""
    return [output(finish(harness.engine({}, FixedDepth(0)), [each])[0]) for each in requests]


def told(
    harness: Harness, chain: str, tokens: int = TOKENS
) -> tuple[list[Request], list[list[Token]]]:
    """Requests that know their answers, and the answers."""
    requests = [harness.request(text, CHAINS[chain], tokens=tokens) for text in PROMPTS]
    plain = plainly(harness, requests)
    pairs = zip(requests, plain, strict=True)
    return [replace(request, prediction=answer) for request, answer in pairs], plain


def test_random_drafts_change_no_token(states: Harness) -> None:
    """Alone and four at a time, in a share of all rounds.

    Where slots share cells, rows may have other bits, and noise may choose by these: greedy alone.
    """
    chains = ("greedy", "seeded") if states.memory.streams else ("greedy",)
    texts = [told(states, chain) for chain in chains]
    drafter = Wavering(7)
    copies: list[int] = []
    for requests, plain in itertools.cycle(texts):
        for group in (requests[:1], requests):
            policy = FixedDepth(LONGEST)
            engine = states.engine({"wavering": drafter}, policy)
            sessions = finish(engine, group)
            for session, answer in zip(sessions, plain, strict=False):
                assert_same(states, session, answer)
            copies += [each.copies for each in policy.rounds]
        if drafter.drafts >= SHARE:
            break
    assert any(copies)  # some drafts are longer than snapshots reach
    if states.memory.snapshots:
        assert copies.count(0) > len(copies) / 4


def assert_same(states: Harness, session: Session, answer: list[Token]) -> None:
    """The tokens of plain decoding.

    Where slots share cells a row's last bits depend on where these are: two tokens that are as
    likely but for such a step may change places.
    """
    mine = output(session)
    if states.memory.streams or mine == answer:
        assert mine == answer
        return
    first = next(at for at, pair in enumerate(zip(mine, answer, strict=True)) if len({*pair}) > 1)
    text = session.tokens[: session.n_prompt + first]
    states.memory.truncate(0, 0)
    for start in range(0, len(text), 32):
        part = enumerate(text[start : start + 32], start)
        rows = [Row(token, place, 0, place == len(text) - 1) for place, token in part]
        logits = states.memory.decode(rows).logits
    states.memory.truncate(0, 0)
    assert abs(logits[0, mine[first]] - logits[0, answer[first]]) < APART


@pytest.mark.parametrize("chain", ["greedy", "penalties"])
@pytest.mark.parametrize("names", ["model", "lookup+grammar+model"])
def test_a_draft_model_changes_no_token(states: Harness, chain: str, names: str) -> None:
    """Its memory is a state too: alone, after lookup, and for several sessions in one forward."""
    requests = [states.request(text, CHAINS[chain], tokens=24) for text in PROMPTS]
    plain = plainly(states, requests)
    drafted = 0
    for count, depth in ((1, 3), (SLOTS, 2), (SLOTS, 6)):
        drafters = states.drafters(*names.split("+"))
        engine = states.engine(drafters, FixedDepth(depth, "model"))
        sessions = finish(engine, requests[:count])
        if states.memory.streams:
            assert [output(session) for session in sessions] == plain[:count]
        counts = [session.meter.sources.get("model", SourceCount()) for session in sessions]
        drafted += sum(each.drafted for each in counts)
    assert drafted or names != "model"  # a text that repeats itself is copied


def test_a_draft_that_is_the_target_is_accepted_whole(states: Harness) -> None:
    """So its state is the text's after every rejection, reuse and continued turn."""
    model = Model.load(states.path)
    twin = Context.open(model, Placement(threads=1), slots=SLOTS, context=256, rows=64)
    twin.find_rollback()
    alike = replace(states, draft=model, draft_memory=twin)
    engine = alike.engine(alike.drafters("model"), FixedDepth(4, "model"))
    text: list[Token] = states.target.tokenize(PROMPTS[0] * 2, add_special=True, parse_special=True)
    for _ in range(3):
        request = alike.request(text, CHAINS["greedy"], tokens=20)
        (session,) = finish(engine, [request])
        counts = session.meter.sources["model"]
        assert counts.drafted == counts.accepted > 0
        text = [*session.tokens, 70, 71]
    for each in (twin, model):
        each.close()


def test_where_snapshots_reach_nothing_is_read_again(states: Harness) -> None:
    """A rejection leaves one token to read; beyond them, what was accepted as well."""
    request = states.request(PROMPTS[0], CHAINS["greedy"], tokens=40)
    (answer,) = plainly(states, [request])
    for depth in (SNAPSHOTS, SNAPSHOTS + 3):
        engine = states.engine({"wavering": Wavering(3)}, FixedDepth(depth))
        session = engine.admit(replace(request, prediction=answer))
        again = 0
        while session.finish is None:
            engine.step()
            again += session.tail - 1 if session.n_output else 0
        engine.retire(session)
        reach = depth <= states.memory.snapshots
        assert (again == 0) is reach


@pytest.fixture(params=[False, True], ids=["shared", "streams"])
def three(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[str], Context]]:
    """Opens a context of three slots that leaves snapshots."""
    with ExitStack() as parts:

        def made(kind: str) -> Context:
            model = Model.load(KINDS[kind](tmp_path / "model.gguf"))
            parts.callback(model.close)
            target = Context.open(
                model, Placement(threads=1), slots=3, context=256, rows=64, streams=request.param,
                snapshots=SNAPSHOTS,
            )  # fmt: skip
            parts.callback(target.close)
            assert target.find_rollback() == "restore"
            assert target.snapshots == SNAPSHOTS
            return target

        yield made


@pytest.mark.parametrize("kind", sorted(KINDS.keys() - COPIED))
def test_a_snapshot_is_good_once_directly_after_its_forward(
    kind: str, three: Callable[[str], Context]
) -> None:
    """Where it is not, the memory says that it went back farther, and never holds another state."""
    target, dice = three(kind), np.random.default_rng(1)
    texts: list[list[Token]] = [[], [], []]
    trusted = [0, 0, 0]
    for _ in range(400):
        if dice.random() < 0.6:
            taking = [slot for slot in range(3) if dice.random() < 0.6]
            read(target, texts, {slot: int(dice.choice((1, 1, 2, 3, 3, 7))) for slot in taking})
        else:
            slot = int(dice.integers(3))
            wanted = max(0, len(texts[slot]) - int(dice.integers(1, SNAPSHOTS + 2)))
            held = target.truncate(slot, wanted)
            assert held in (0, wanted)
            trusted[slot] += held > 0
            del texts[slot][held:]
            assert target.length(slot) == held == target.held[slot]
        if dice.random() < 0.1:
            check(target, texts)
    assert all(trusted)
    check(target, texts)


@pytest.mark.parametrize("kind", sorted(KINDS.keys() - COPIED))
def test_other_sessions_forwards_do_not_change_what_comes_back(
    kind: str, three: Callable[[str], Context]
) -> None:
    """In whatever order slots were taken, and so wherever llama.cpp has put their states."""
    target = three(kind)
    texts: list[list[Token]] = [[], [], []]
    for order in itertools.permutations(range(3)):
        for slot in range(3):
            target.truncate(slot, 0)
            texts[slot].clear()
        for slot in order:
            read(target, texts, {slot: 4})
        for slot in range(3):
            read(target, texts, {slot: 4})
            others = [each for each in range(3) if each != slot]
            read(target, texts, dict.fromkeys(others, 2))
            del texts[slot][target.truncate(slot, len(texts[slot]) - 2) :]
            check(target, texts)


def read(target: Context, texts: list[list[Token]], counts: Mapping[int, int]) -> None:
    """One forward of so many new tokens in each slot; a long text begins anew."""
    rows = []
    for slot, count in counts.items():
        if len(texts[slot]) + count > 200:
            texts[slot].clear()
            target.truncate(slot, 0)
        begin = len(texts[slot])
        texts[slot] += [(7 * (begin + at) + 31 * slot + len(texts[0])) % 250 for at in range(count)]
        new = enumerate(texts[slot][begin:], begin)
        rows += [Row(token, place, slot, wants_logits=True) for place, token in new]
    if rows:
        target.decode(rows)


def check(target: Context, texts: list[list[Token]]) -> None:
    """Each slot goes on as one does that has just read the same text, row by row."""
    for slot, text in enumerate(texts):
        if text:
            mine = target.decode([Row(9, len(text), slot, True)]).logits.copy()
            target.truncate(slot, 0)
            for start in range(0, len(text), 32):
                part = text[start : start + 32]
                target.decode([Row(each, start + at, slot) for at, each in enumerate(part)])
            anew = target.decode([Row(9, len(text), slot, True)]).logits
            assert np.abs(mine - anew).max() < APART
            text.append(9)
