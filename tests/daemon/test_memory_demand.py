"""A worker's memory plan for a pair: a draft that does not fit is left out."""

from __future__ import annotations

from pathlib import Path

import encoders
import msgspec
import pytest
import tiny

from localspec.config import Config
from localspec.errors import BadGGUF
from localspec.wire.messages import Load
from localspec.wire.values import Adapter
from localspec_daemon.supervisor.memory_demand import Demand, checked


@pytest.mark.parametrize(
    ("draft", "why"),
    [
        ("small", ""),
        ("large", "larger than its target"),
        ("cut", "cut.gguf cannot be used"),
        ("stranger", "cannot propose for this target"),
        ("gone", "gone.gguf cannot be read"),
    ],
)
def test_a_draft_that_does_not_fit_is_left_out_with_the_reason(
    tmp_path: Path, draft: str, why: str
) -> None:
    """It is not loaded nor counted; an unusable target is an error as before."""
    target = tiny.build(tmp_path / "target.gguf")
    tiny.build(tmp_path / "small.gguf", seed=1, layers=1)
    tiny.build(tmp_path / "large.gguf", layers=12)
    encoders.bert(tmp_path / "stranger.gguf")
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(target.read_bytes()[: target.stat().st_size // 2])
    load = Load("it", str(target), str(tmp_path / f"{draft}.gguf"), Config())
    told = checked(load)
    assert (told == load) is (not why)
    assert bool(told.draft_path) is (not why)
    assert why in told.no_draft
    assert (Demand.read(load).request.draft is None) is bool(why)
    with pytest.raises(BadGGUF, match=r"cut\.gguf"):
        checked(Load("it", str(cut), str(target), Config()))


def test_a_projector_and_adapters_count(tmp_path: Path) -> None:
    """As in the worker's own plan; a file that is gone counts for nothing."""
    target, large = tiny.build(tmp_path / "target.gguf"), tmp_path / "large"
    large.write_bytes(bytes(1 << 20))
    load = Load("it", str(target), None, Config())
    room = {"CPU": 1 << 40}
    bare = Demand.read(load)
    sees = Demand.read(msgspec.structs.replace(load, projector=str(large)))
    assert sees.request.projector_bytes == 1 << 20
    adapters = [Adapter(str(path)) for path in (large, large, tmp_path / "gone")]
    adapted = Demand.read(msgspec.structs.replace(load, adapters=adapters))
    assert (adapted.adapters, adapted.request) == (2 << 20, bare.request)
    assert adapted.score(room) == bare.score({"CPU": room["CPU"] - (2 << 20)})
