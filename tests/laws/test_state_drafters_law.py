"""Models whose memory is a state, with drafters that read what the target computed, and a corpus.

A feature head and Medusa heads look at states, an EAGLE-3 head at layers' inputs: the tokens are
those of plain decoding, where the state goes back by snapshots that forwards leave, and by copies.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import architectures
import heads
import kinds
import published_heads
import pytest
import recurrent
from laws.engine_harness import PROMPTS, SLOTS, Harness, finish, opened, output, taught
from laws.policies import FixedDepth
from laws.test_corpus_law import Shelf, indexed
from laws.test_lossless import CHAINS

from localspec import drafters
from localspec.config import Placement
from localspec.engine.llama.context import Context
from localspec.engine.llama.fed import FedContext
from localspec.engine.llama.library import ours
from localspec.engine.llama.model import Model
from localspec.engine.llama.vectors import Taps
from localspec.types import Drafter, Token
from localspec.worker import convert_head, tensor_files
from localspec.worker import heads as feature_heads

pytestmark = pytest.mark.skipif(not ours.states, reason="llama.cpp without LocalSpec's edits")

SNAPSHOTS, CONTEXT = 4, 256
TAPPED = (1, 1, 1)
"""Some of these models have two layers, and the first one's input is no state."""
KINDS: dict[str, Callable[[Path], Path]] = {
    "mamba": recurrent.mamba,
    "mamba2": kinds.mamba2,
    "qwen35": lambda path: architectures.build(path, "qwen35", packed=True),
    "counting": lambda path: heads.qwen35(path, "token"),
}
ONE = Placement(threads=1)


@dataclass
class Shown:
    """A target that shows its states and the inputs of a layer, and the heads made for it."""

    harness: Harness
    fed: FedContext

    def drafters(self, names: Sequence[str], answers: Sequence[list[Token]]) -> dict[str, Drafter]:
        """Fresh ones by name; the corpus has the answers, with mistakes."""
        target = self.harness.target
        parts = {"n_vocab": target.n_vocab, "ends": target.eog, "piece": target.piece}
        parts |= {"eagle3": self.fed, "corpus": Shelf(indexed([*map(edited, answers)]))}
        made: dict[str, Drafter] = {}
        for name in names:
            kind = "feature_head" if name in {"feature_head", "medusa"} else name
            head = feature_heads.find(self.harness.path, self.harness.path.parent / name)
            assert (head is None) == (kind != "feature_head")
            made[kind] = drafters.load(kind, head=head, **parts)
        return made


def edited(answer: Sequence[Token]) -> list[Token]:
    """The answer with two other tokens in each dozen."""
    return [(token + 1) % 250 if at % 12 > 9 else token for at, token in enumerate(answer)]


def _write_heads(target: Path, folder: Path, *, counts: bool) -> None:
    """A feature head that was taught, and Medusa heads and an EAGLE-3 head at random.

    Or, for a target that counts, these two are right every time.
    """
    published = published_heads.medusa(random=not counts)
    tensors = published_heads.safetensors(folder / "heads.safetensors", published)
    found = convert_head.published("heads", tensor_files.read(tensors))
    model = Model.load(target)
    for name, data in (
        ("feature_head", taught(model, target, tokens=500)),
        ("medusa", convert_head.converted("heads", found, target, 1 << 20)),
    ):
        (folder / name).mkdir()
        (folder / name / "head.gguf").write_bytes(data)
    model.close()
    heads.eagle3(folder / "eagle3.gguf", "features" if counts else "chance", layers=TAPPED)


@pytest.fixture(scope="module")
def target(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A target of a kind in a folder with its heads."""
    folder = tmp_path_factory.mktemp("target")
    path: Path = KINDS[request.param](folder / "target.gguf")
    _write_heads(path, folder, counts=request.param == "counting")
    return path


@contextmanager
def showing(target: Path, *, strict: bool, snapshots: int) -> Iterator[Shown]:
    """That target, open, with everything that drafts from what it computes."""
    with ExitStack() as parts:
        opening = opened(
            target, target, ONE, slots=SLOTS, context=CONTEXT, strict=strict, snapshots=snapshots
        )
        harness = parts.enter_context(opening)
        assert (harness.shape.rollback, harness.memory.snapshots) == ("restore", snapshots)
        assert harness.memory.show()
        assert harness.memory.tap(Taps(TAPPED))
        head = Model.load(target.parent / "eagle3.gguf")
        parts.callback(head.close)
        beside = Context.open(harness.target, slots=1, context=64, rows=8)
        parts.callback(beside.close)
        fed = FedContext.open(
            head, ONE, slots=SLOTS, context=CONTEXT, streams=strict, inputs=3 * heads.WIDTH,
            beside=beside.handle,
        )  # fmt: skip
        parts.callback(fed.close)
        yield Shown(harness, fed)


@pytest.fixture(scope="module", params=["strict", "standard"])
def shown(request: pytest.FixtureRequest, target: Path, snapshots: int) -> Iterator[Shown]:
    """It, open."""
    with showing(target, strict=request.param == "strict", snapshots=snapshots) as found:
        yield found


NAMES = ("feature_head", "medusa", "eagle3", "corpus", "corpus+lookup+feature_head+eagle3")
WAYS = [
    (kind, back)
    for kind in ("mamba", "mamba2", "qwen35")
    for back in ((SNAPSHOTS, 0) if "qwen" in kind else (0,))
]


@pytest.mark.parametrize(("target", "snapshots"), WAYS, indirect=["target"], scope="module")
@pytest.mark.parametrize("chain", ["greedy", "seeded"])
@pytest.mark.parametrize("names", NAMES)
def test_drafts_change_no_token(shown: Shown, names: str, chain: str) -> None:
    """Alone and four at a time: drafted, and the tokens of plain decoding."""
    harness = shown.harness
    requests = [harness.request(text, CHAINS[chain], tokens=30) for text in PROMPTS]
    plain = [output(finish(harness.engine({}, FixedDepth(0)), [each])[0]) for each in requests]
    drafted = accepted = 0
    for count, depth in ((1, 2), (SLOTS, 6)):
        engine = harness.engine(
            shown.drafters(names.split("+"), plain), FixedDepth(depth, "eagle3")
        )
        sessions = finish(engine, requests[:count])
        assert [output(session) for session in sessions] == plain[:count]
        drafted += sum(session.meter.drafted for session in sessions)
        accepted += sum(session.meter.accepted for session in sessions)
    assert accepted < drafted
    assert accepted or "corpus" not in names


@pytest.mark.parametrize("target", ["counting"], indirect=True)
@pytest.mark.parametrize("snapshots", [SNAPSHOTS, 0], scope="module")
@pytest.mark.parametrize("name", ["medusa", "eagle3"])
def test_a_head_that_is_always_right_is_always_accepted(shown: Shown, name: str) -> None:
    """So what it is given of a hybrid is of the right place, however the state went back."""
    numbers = [list(range(first, first + 20)) for first in (10, 30, 100)]
    requests = [shown.harness.request(each, CHAINS["greedy"]) for each in numbers]
    engine = shown.harness.engine(shown.drafters([name], numbers), FixedDepth(3, "eagle3"))
    for each, session in zip(numbers, finish(engine, requests), strict=True):
        assert output(session) == list(range(each[-1] + 1, each[-1] + 41))
        assert session.meter.drafted == session.meter.accepted > 20
