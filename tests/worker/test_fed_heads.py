"""A head beside a model, or inside of it, drafts for it; a wrong one costs drafts by it alone."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import gguf
import heads
import msgspec
import numpy as np
import pytest
from worker_peer import Script

from localspec.catalog import head_memory, header
from localspec.catalog.parts import Layout
from localspec.catalog.plan import PlanCandidate, PlanRequest
from localspec.catalog.registry import Registry
from localspec.config import Config, Engine, Placement, Speculation
from localspec.drafters._fed import FedDrafter
from localspec.engine.llama.context import Context
from localspec.engine.llama.fed import FedContext
from localspec.engine.llama.library import ours
from localspec.engine.llama.model import Model
from localspec.types import Row, SamplingParams, SpeculationParams
from localspec.wire.messages import Delta, Finished, Generate, Load
from localspec.worker import assemble
from localspec.worker.assemble import Loaded
from localspec.worker.fed_heads import FedHead

pytestmark = pytest.mark.skipif(not ours.states, reason="llama.cpp without LocalSpec's edits")


ENGINE = Engine(slots=2, context=512, target=Placement(threads=1), prefill_rows=32)


@contextmanager
def loaded(
    folder: Path, target: Path, exactness: Any = "strict", threads: int = 1, **fields: Any
) -> Iterator[Loaded]:
    """A target with the head that is found for it, measured."""
    alone = Placement(threads=threads)
    engine = msgspec.structs.replace(ENGINE, exactness=exactness, target=alone)
    head, why = Registry(target.parent).head(target)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CACHE_HOME", str(folder / "cache"))
        command = Load(
            "tiny", str(target), None, Config(engine=engine, **fields), head=head, no_head=why
        )
        with assemble.load(command, lambda *_: None) as made:
            Script([]).run(made)
            yield made


def answer(made: Loaded, mode: Any = "always") -> tuple[list[int], dict[str, Any]]:
    """Sixty numbers behind some that go up, and what was drafted for them by source."""
    request = Generate(
        id="a",
        endpoint="completion",
        client="c",
        prompt_tokens=list(range(20, 60)),
        max_tokens=60,
        ignore_eos=True,
        sampling=SamplingParams(temperature=0.0),
        speculation=SpeculationParams(mode=mode),
    )
    script = Script([request]).run(made)
    tokens = [token for delta in script.all(Delta) for token in delta.tokens]
    return tokens, script.all(Finished)[0].speculation.sources


COUNTED = list(range(60, 120))


@pytest.mark.parametrize("exactness", ["strict", "standard"])
@pytest.mark.parametrize("kind", ["eagle3", "mtp", "mtp apart"])
def test_a_head_is_found_loaded_measured_and_drafts(
    kind: str, exactness: str, tmp_path: Path
) -> None:
    """It says so, its cost is known, and what it drafts is kept."""
    folder = tmp_path / "models"
    folder.mkdir()
    if kind == "eagle3":
        target = heads.qwen2(folder / "target.gguf", counts=True)
        heads.eagle3(folder / "head.gguf", "features")
    elif kind == "mtp":
        target = heads.glm4moe(folder / "target.gguf", "token")
    else:
        target = heads.glm4moe(folder / "target.gguf", "token", part="trunk")
        heads.glm4moe(folder / "mtp-target.gguf", "token", part="predicts")
    kind, apart = kind.split(maxsplit=1)[0], "apart" in kind
    with loaded(tmp_path, target, exactness) as made:
        assert kind in made.ready.drafters
        assert ("mtp-target.gguf" in made.ready.head) == apart
        assert ("EAGLE-3" if kind == "eagle3" else "MTP") in made.ready.head
        assert "head on the CPU" in made.ready.placement
        _equals_its_plan(made, target)
        assert kind in made.profile.costs.measured_drafters
        assert made.draft_ms()[kind] > 0
        for _ in range(2):
            tokens, sources = answer(made)
            assert tokens == COUNTED
            count = sources[kind]
            assert count.accepted > 20
            # Beside tokens that are always right, second choices are wrong; strict use has none.
            assert exactness == "standard" or count.accepted == count.drafted
        assert answer(made, "off") == (COUNTED, {})


@pytest.mark.parametrize("kind", ["eagle3", "mtp"])
def test_a_head_has_as_many_threads_as_its_target(kind: str, tmp_path: Path) -> None:
    """Also when they become fewer, as beside a neighbour."""
    if kind == "eagle3":
        target = heads.qwen2(tmp_path / "target.gguf", counts=True)
        heads.eagle3(tmp_path / "head.gguf", "features")
    else:
        target = heads.glm4moe(tmp_path / "target.gguf", "token")
    with loaded(tmp_path, target, threads=0) as made:
        drafter = made.engine.drafters[kind]
        assert isinstance(drafter, FedDrafter)
        assert isinstance(drafter.head, FedContext)
        for count in (3, 1):
            made.threads.become(count, varies=False)
            assert answer(made)[0] == COUNTED
            assert drafter.head.threads == count


def _equals_its_plan(made: Loaded, target: Path) -> None:
    """The plan of the head is the allocations of llama.cpp; the target has none of them."""
    found, _ = Registry(target.parent).head(target)
    command = Load("tiny", str(target), None, Config(engine=ENGINE), head=found)
    trunk, head = head_memory.outlines(header.read(target), command)
    assert head is not None
    rung = PlanCandidate(ENGINE.slots, ENGINE.slots * 512, draft=False, head=True)
    wish = PlanRequest(command.config, trunk, head=head)
    (part,) = wish.head_parts(rung, Layout())
    taken = {
        (each.what.split()[0], each.what.split()[-1]): each.bytes for each in made.ready.devices
    }
    shared = trunk.kv_bytes(head_memory.ANCHOR_CELLS, "f16") * head.beside
    assert part.kv_bytes - shared == pytest.approx(taken["head", "KV"], rel=0.01)
    assert part.weight_bytes == pytest.approx(taken.get(("head", "model"), 0), abs=1 << 15)
    assert sum(trunk.kv_values) == heads.LAYERS * 2 * heads.WIDTH


def _with_nan(path: Path) -> None:
    heads.eagle3(path)
    reader = gguf.GGUFReader(path, "r+")
    (norm,) = (each for each in reader.tensors if each.name == "output_norm.weight")
    norm.data[3] = np.nan
    del reader


def _without_a_tensor(path: Path) -> None:
    heads.eagle3(path)
    data = path.read_bytes()
    path.write_bytes(data.replace(b"blk.0.attn_k.weight", b"blk.0.attn_x.weight"))


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda path: heads.eagle3(path, hidden=32), "states of 32 numbers, this one of 64"),
        (lambda path: heads.eagle3(path, words=np.array([3, 1 << 20])), "It drafts token 1048576"),
        (_with_nan, "gives no numbers"),
        (_without_a_tensor, "head.gguf could not be loaded"),
    ],
)
def test_a_wrong_head_is_one_sentence_and_plain_decoding(
    make: Any, said: str, tmp_path: Path
) -> None:
    """The worker lives and answers."""
    folder = tmp_path / "models"
    folder.mkdir()
    target = heads.qwen2(folder / "target.gguf", counts=True)
    make(folder / "head.gguf")
    with loaded(tmp_path, target) as made:
        assert "eagle3" not in made.ready.drafters
        assert said in made.ready.head
        assert answer(made)[0] == COUNTED


def test_a_head_that_is_not_wanted_is_left_alone(tmp_path: Path) -> None:
    """Where the configuration does not name its kind."""
    folder = tmp_path / "models"
    folder.mkdir()
    target = heads.qwen2(folder / "target.gguf", counts=True)
    heads.eagle3(folder / "head.gguf", "features")
    with loaded(tmp_path, target, speculation=Speculation(drafters=("lookup",))) as made:
        assert made.ready.drafters == ["lookup"]
        assert "speculation.drafters" in made.ready.head
        assert answer(made)[0] == COUNTED


@pytest.mark.parametrize("kind", ["eagle3", "mtp"])
def test_a_head_is_for_targets_on_this_machine(kind: str, tmp_path: Path) -> None:
    """With layers on another one it is left out, the sentence says why, and nothing is tapped."""
    if kind == "eagle3":
        target = heads.qwen2(tmp_path / "target.gguf")
        heads.eagle3(tmp_path / "head.gguf")
    else:
        target = heads.glm4moe(tmp_path / "target.gguf")
    found, _ = Registry(tmp_path).head(target)
    command = Load("tiny", str(target), None, Config(engine=ENGINE), head=found)
    with ExitStack() as parts:
        here, there = (
            FedHead(command, Layout(), remote=remote, parts=parts) for remote in (False, True)
        )
        assert (here.part, here.predicts) == (kind, kind == "mtp")
        assert (there.part, there.predicts, there.taps) == ("", False, ())
        assert there.sentence.startswith(f"not used, {here.sentence}: ")
        assert "on another machine" in there.sentence
        model = Model.load(target)
        parts.callback(model.close)
        memory = Context.open(model, ENGINE.target, slots=1, context=64, rows=8)
        parts.callback(memory.close)
        there.tap(memory)
        assert memory.decode([Row(5, 0, 0, wants_logits=True)]).features() is None
        assert there.open(memory, placement=ENGINE.target, context=64, streams=True) is None
