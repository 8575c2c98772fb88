"""A mixture whose experts are on the CPU answers as it does in one place."""

from __future__ import annotations

from pathlib import Path

import gguf
import mixture
import numpy as np
import pytest
from worker_hosts import needs_rpc, worker_hosts

from localspec.config import Placement
from localspec.engine.llama import rpc
from localspec.engine.llama.context import Context
from localspec.engine.llama.library import Buffer
from localspec.engine.llama.model import Model
from localspec.types import Floats, Row

TOKENS = [7, 99, 3, 150, 42, 8, 61, 12]
LAYERS = 3


def computed(
    path: Path, placement: Placement, apart: range, lent: dict[str, int] | None = None
) -> tuple[Floats, list[Buffer]]:
    """The logits of rows alone and together, and where the weights were."""
    model = Model.load(path, placement, lent=lent or {}, apart=apart)
    context = Context.open(model, placement, slots=1, context=64, rows=16)
    found = [
        context.decode([Row(token, at, 0, True)]).logits.copy() for at, token in enumerate(TOKENS)
    ]
    context.truncate(0, 0)
    found.append(
        context.decode([Row(token, at, 0, True) for at, token in enumerate(TOKENS)]).logits.copy()
    )
    buffers = model.buffers
    context.close()
    model.close()
    return np.concatenate(found), buffers


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A mixture in which every row wakes other experts."""
    return mixture.build(tmp_path_factory.mktemp("experts") / "m.gguf", layers=LAYERS)


@pytest.mark.parametrize("apart", [range(LAYERS), range(1), range(1, LAYERS)])
@pytest.mark.parametrize("mmap", [True, False])
def test_experts_named_for_the_cpu_have_the_same_bits(path: Path, apart: range, mmap: bool) -> None:
    """On a machine with a CPU alone, where the same kernels compute them."""
    here = Placement(gpu_layers=0, threads=1, mmap=mmap)
    ours, theirs = (computed(path, here, each)[0] for each in (apart, range(0)))
    assert np.array_equal(ours, theirs)


def test_every_expert_changes_the_logits(path: Path, tmp_path: Path) -> None:
    """The law can fail: with another expert's weights the logits are others."""
    whole = bytearray(path.read_bytes())
    parsed = gguf.GGUFReader(path)
    (experts,) = [t for t in parsed.tensors if t.name == "blk.1.ffn_down_exps.weight"]
    start = int(experts.data_offset)
    whole[start : start + int(experts.n_bytes)] = bytes(int(experts.n_bytes))
    other = tmp_path / "other.gguf"
    other.write_bytes(whole)
    here = Placement(gpu_layers=0, threads=1)
    ours, theirs = (computed(each, here, range(LAYERS))[0] for each in (path, other))
    assert not np.array_equal(ours, theirs)


@needs_rpc
@pytest.mark.parametrize("apart", [range(LAYERS), range(1), range(2)])
def test_a_device_with_the_rest_agrees(path: Path, apart: range) -> None:
    """Attention on another device, experts here: the same logits but for rounding."""
    whole, _ = computed(path, Placement(gpu_layers=0, threads=1), range(0))
    with worker_hosts(1) as (host,):
        (device,) = rpc.connect(host.address)
        there = Placement(gpu_layers=LAYERS + 1, devices=(device.buffers,), threads=1)
        lent = {device.buffers: device.handle}
        split, buffers = computed(path, there, apart, lent)
        _, together = computed(path, there, range(0), lent)
    assert np.allclose(whole, split, atol=2e-3, rtol=2e-3)
    here, before = (
        sum(each.bytes for each in found if not each.device.startswith("RPC"))
        for found in (buffers, together)
    )
    assert here > before
