"""A worker with too little memory: the next smaller plan, or a reason."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import recurrent
import tiny

from localspec.catalog import header
from localspec.catalog.memory import kv_values, outline
from localspec.catalog.parts import Layout
from localspec.catalog.plan import PlanCandidate, PlanRequest
from localspec.config import Config, Engine, Placement
from localspec.engine.llama.context import Context
from localspec.engine.llama.model import Model
from localspec.wire.messages import Load
from localspec.worker import assemble
from localspec_daemon.supervisor.worker import Exit

ROOMS_MIB = (700, 560, 500, 485, 470, 440, 400, 360, 320, 280)

LOAD = """
import json, resource, sys
from pathlib import Path
import numpy.random
from localspec.config import Config, Engine, Placement
from localspec.errors import OutOfMemory
from localspec.wire.messages import Load
from localspec.types import Row
from localspec.worker import assemble, planning

planning.present()  # native libraries are there before the limit is
load = Load("tiny", sys.argv[1], None, Config(
    engine=Engine(exactness="standard", target=Placement(threads=1))
))
taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
limit = taken + int(sys.argv[2]) * 1024 * 1024
resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
try:
    with assemble.load(load, lambda *_: None) as loaded:
        loaded.engine.target.decode([Row(1, 0, 0, True)])
        print(json.dumps(loaded.ready.placement))
except (OutOfMemory, MemoryError) as error:
    print(json.dumps(f"refused: {error}"))
"""


GROW = """
import json, os, resource, sys
from pathlib import Path
import numpy as np
from localspec.config import Placement
from localspec.engine.llama.context import Context
from localspec.engine.llama.model import Model
from localspec.errors import NoRoom
from localspec.types import Row

FULL = 4096  # 64 MiB of keys and values
model = Model.load(Path(sys.argv[1]), Placement(threads=1))
context = Context.open(
    model,
    Placement(threads=1),
    slots=2,
    context=16384,
    rows=256,
    outputs=2,
    cells=256,
    most_cells=16384,
)

def read(start):
    return context.decode([Row(7, start + at, 0, at == 255) for at in range(256)]).logits

(before,) = read(0).copy()
for held in range(256, FULL, 256):
    read(held)
held, error = FULL, ""
assert os.listdir("/proc/self/task") == [str(os.getpid())]  # nobody else maps or unmaps anything
kv = sum(buffer.bytes for buffer in context.buffers if buffer.what == "KV")
scratch = sum(buffer.bytes for buffer in context.buffers) - kv
spare = (kv - scratch) // 2
assert spare > 20 << 20, (kv, scratch)
room = kv + spare if sys.argv[2] == "copied" else kv // 2
taken = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (taken + room, taken + room))
try:
    read(held)
except NoRoom as found:
    error = found.message
context.truncate(0, 255)
(after,) = context.decode([Row(7, 255, 0, True)]).logits
said = {
    "error": error, "held": held, "context": context.context, "most": context.shared_cells,
    "same": bool(np.allclose(before, after, atol=0.05 * float(np.ptp(before)))),
}
print(json.dumps(said))
"""


ALONE = {
    "OPENBLAS_NUM_THREADS": "1",
    "OMP_NUM_THREADS": "1",
    "MALLOC_ARENA_MAX": "1",
    "MALLOC_MMAP_THRESHOLD_": "131072",
}
"""A process whose address space only its own forwards change: a thread of a library has a stack of
8 MiB and an arena of 64, which come whenever it is first scheduled, and counts as memory to the
limit; and by default what malloc gives back depends on what was freed before."""


@pytest.mark.parametrize("text", ["copied", "not even copied"])
def test_a_context_that_cannot_grow_keeps_what_it_has(tmp_path: Path, text: str) -> None:
    """Memory that was planned is gone: a sentence, a smaller context, and the text remains.

    A text as large as the KV that there is, 64 MiB, is copied, and then twice as much is asked for.
    Before, the old KV is given back, and the scratch memory of its forwards with it: what fits by
    that, and then has none for its own forwards, is the end of llama.cpp. So the limit is in the
    middle between both borders, by what this build has really taken on this processor; more than
    20 MiB from either.
    """
    model = tiny.build(tmp_path / "tiny.gguf", layers=16, width=512)
    child = subprocess.run(
        [sys.executable, "-c", GROW, str(model), text],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **ALONE, "GGML_NO_BACKTRACE": "1"},
    )
    assert child.returncode == 0, child.stderr
    said = json.loads(child.stdout)
    assert "there is memory for 4096" in said["error"]
    assert said["same"]
    assert said["held"] == said["context"] == said["most"] == 4096


def test_with_less_memory_plans_get_smaller(
    tmp_path: Path,
) -> None:
    """With plenty the first plan holds, with less a smaller one.

    Where almost nothing is left llama.cpp aborts; the last output gives the supervisor the reason.
    """
    model = tiny.build(tmp_path / "tiny.gguf", layers=8, width=2048)
    said = []
    for room in ROOMS_MIB:
        cache = tmp_path / str(room)  # what one learned must not help the next
        child = subprocess.run(
            [sys.executable, "-c", LOAD, str(model), str(room)],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "XDG_CACHE_HOME": str(cache), "GGML_NO_BACKTRACE": "1"},
        )
        words = tuple(child.stderr.splitlines()[-5:])
        if child.returncode:
            assert Exit(False, child.returncode, "", words).out_of_memory, child.stderr
        else:
            said.append(json.loads(child.stdout))
    assert "larger plan failed" not in said[0]
    assert any("larger plan failed" in placement for placement in said), said


def load(model: Path, **engine: Any) -> Load:
    """One model without a draft."""
    settings = Engine(exactness="standard", target=Placement(threads=1), **engine)
    return Load("tiny", str(model), None, Config(engine=settings))


def test_a_context_of_zero_is_the_trained_length(tmp_path: Path, monkeypatch: Any) -> None:
    """If memory allows; KV is allocated only as needed."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    model = tiny.build(tmp_path / "tiny.gguf")
    with assemble.load(load(model), lambda *_: None) as loaded:
        assert loaded.ready.context == 4096
        assert loaded.ready.cells == 4 * 4096
        assert loaded.kv()["kv_cells"] == 4096
        assert "4 sessions of at most 4096 tokens" in loaded.ready.placement
    with assemble.load(load(model, context=512), lambda *_: None) as loaded:
        assert (loaded.ready.context, loaded.ready.cells) == (512, 2048)


@pytest.mark.parametrize("kind", [recurrent.mamba, recurrent.lfm2])
def test_states_are_planned_as_llama_reserves_them(
    kind: Callable[[Path], Path], tmp_path: Path
) -> None:
    """And no keys where there are none; each session has a state of its own, however long."""
    path, slots, cells = kind(tmp_path / "model.gguf"), 256, 65536
    found = outline(header.read(path))
    model = Model.load(path, Placement(threads=1))
    context = Context.open(
        model, Placement(threads=1), slots=slots, context=cells // slots, rows=64
    )
    taken = {buffer.what: buffer.bytes for buffer in context.buffers}
    for each in (context, model):
        each.close()
    assert found.state_bytes(slots) == pytest.approx(taken["RS"], rel=0.02)
    assert found.kv_bytes(cells, "f16") == pytest.approx(taken.get("KV", 0), rel=0.02)
    parts = [
        PlanRequest(Config(engine=Engine(slots=count, exactness="standard")), found).target_parts(
            PlanCandidate(count, cells, draft=False), Layout(), cells
        )[0]
        for count in (1, 3)
    ]
    assert parts[1].kv_bytes - parts[0].kv_bytes == found.state_bytes(2)
    assert parts[1].compute_bytes - parts[0].compute_bytes >= 2 * found.state_bytes(2)


def test_layers_with_a_state_keep_no_keys_though_they_are_given_heads(tmp_path: Path) -> None:
    """As where every fourth layer attends, and the file names one number for all of them."""
    writer, _ = tiny.begun(tmp_path / "model.gguf", "qwen3next")
    for key, value in (
        ("embedding_length", 64), ("block_count", 4), ("attention.head_count", 4),
        ("attention.head_count_kv", 2), ("ssm.conv_kernel", 4), ("ssm.inner_size", 128),
        ("ssm.state_size", 16), ("ssm.group_count", 2),
    ):  # fmt: skip
        writer.add_uint32(f"qwen3next.{key}", value)
    for name in ("blk.0.ssm_a", "blk.1.ssm_a", "blk.2.ssm_a", "blk.3.attn_k.weight"):
        writer.add_tensor(name, np.zeros((32, 32), dtype=np.float32))
    parsed = header.parse(tiny.ended(writer, tmp_path / "model.gguf"))
    found = outline(header.Header("model", 3, parsed.metadata, parsed.tensors, 0))
    state = 3 * (128 + 2 * 2 * 16) + 16 * 128
    assert found.state_values == (state, state, state, 0)
    assert found.kv_values == (0, 0, 0, 64)


def kept(path: Path, architecture: str, keys: dict[str, Any]) -> tuple[int, ...]:
    """The values that a token of such a file keeps, by layer."""
    writer, _ = tiny.begun(path, architecture)
    for name, value in {"embedding_length": 64, "block_count": 3, **keys}.items():
        add = writer.add_array if isinstance(value, list) else writer.add_uint32
        add(f"{architecture}.{name}", value)
    parsed = header.parse(tiny.ended(writer, path))
    return kv_values(header.Header("model", 3, parsed.metadata, parsed.tensors, 0))


def test_latent_attention_keeps_keys_and_no_values(tmp_path: Path) -> None:
    """DeepSeek's values are a part of its keys, and the key by which it chooses cells is extra."""
    sizes = {"attention.key_length": 576, "attention.value_length": 512}
    keys = {"attention.head_count": 16, "attention.head_count_kv": 1, **sizes}
    latent = {"attention.key_length_mla": 192, "attention.value_length_mla": 128}
    path = tmp_path / "model.gguf"
    assert kept(path, "deepseek2", keys) == (1088,) * 3
    assert kept(path, "deepseek2", {**keys, "attention.key_length_mla": 192}) == (1088,) * 3
    assert kept(path, "deepseek2", keys | latent) == (576,) * 3
    assert kept(path, "deepseek2-ocr", keys | latent) == (1088,) * 3  # does not read these keys
    sparse = keys | latent | {"attention.indexer.key_length": 128}
    assert kept(path, "glm-dsa", sparse) == (704,) * 3
    assert kept(path, "glm5-next", {**sparse, "attention.indexer.kpool": 4}) == (960,) * 3


def test_heads_differ_by_layer_and_the_first_layer_gives_their_size(tmp_path: Path) -> None:
    """Without counts of key heads each layer has as many as it has heads, all of one size."""
    path = tmp_path / "model.gguf"
    assert kept(path, "deci", {"attention.head_count": [4, 0, 8]}) == (128, 0, 256)
    both = {"attention.head_count": [4, 8, 4], "attention.head_count_kv": [2, 1, 0]}
    assert kept(path, "deci", both) == (64, 32, 0)
