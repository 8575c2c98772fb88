"""Settings at their ends: whatever the configuration allows loads, measures itself and answers."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tiny
from _pytest.mark import ParameterSet
from worker_peer import Script

from localspec.config import Config, Engine, Placement, Speculation
from localspec.types import SamplingParams, SpeculationParams
from localspec.wire.messages import Finished, Generate, Load
from localspec.worker import assemble

ENDS = {
    "slots": (1, 64),
    "prefill_rows": (16, 8192),
    "max_draft": (0, 64),
    "context": (64, 600),
    "exactness": ("standard", "strict"),
}
"""All of these together: they decide how many rows, cells and logits there must be."""

OTHERS: list[dict[str, Any]] = [
    {"slots": 1, "prefill_rows": 32},
    {"slots": 4, "prefill_rows": 16, "max_draft": 8},
    {"exactness": "auto"},
    {"drafters": ()},
    {"drafters": ("lookup",)},
    {"drafters": ("model",), "mode": "off"},
    *(
        {"placement": placement}
        for placement in (
            {"kv_type": "q8_0"},
            {"kv_type": "q4_0", "flash_attention": "on"},
            {"flash_attention": "off"},
            {"split": "none", "threads": 2},
            {"split": "row", "gpu_layers": 0, "mmap": False},
            {"devices": ("CPU",), "gpu_layers": 1},
        )
    ),
]


def corners() -> Iterator[ParameterSet]:
    """Every combination; all but eight of them are slow. In these any two ends meet.

    Many strict slots are long to probe, and therefore short there.
    """
    for which in itertools.product((0, 1), repeat=len(ENDS)):
        slots, prefill, draft, context, strict = which
        long = (slots ^ prefill ^ draft) * (1 - slots * strict)
        quick = context == long and strict == slots ^ prefill
        pairs = zip(ENDS.items(), which, strict=True)
        changed: dict[str, Any] = {key: ends[end] for (key, ends), end in pairs}
        yield pytest.param(changed, marks=[] if quick else [pytest.mark.slow])


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """A pair whose keys are whole blocks of every KV type."""
    folder = tmp_path_factory.mktemp("pair")
    target = tiny.build(folder / "target.gguf", layers=1, width=128)
    draft = tiny.build(folder / "draft.gguf", layers=1, width=128, like=0, noise=0.1)
    return str(target), str(draft)


@pytest.mark.parametrize("changed", [*corners(), *OTHERS], ids=str)
def test_every_corner_loads_and_answers(
    pair: tuple[str, str],
    changed: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Two at once, drafted as deep as it goes, after what a worker measures while it rests."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    speculation = {key: changed[key] for key in ("drafters", "max_draft", "mode") if key in changed}
    rest = {key: value for key, value in changed.items() if key not in speculation}
    placement = Placement(**{"threads": 1, **rest.pop("placement", {})})
    usual = {"context": 600, "exactness": "standard", "target": placement, "draft": placement}
    settings = Engine(**{**usual, **rest})
    config = Config(engine=settings, speculation=Speculation(**speculation))
    requests = [
        Generate(
            id=id_,
            endpoint="completion",
            client=id_,
            prompt="the in the in the in the ",
            sampling=SamplingParams(temperature=0.5),
            speculation=SpeculationParams(mode="always"),
            max_tokens=20,
            ignore_eos=True,
        )
        for id_ in "ab"
    ]
    with assemble.load(Load("tiny", *pair, config), lambda *_: None) as loaded:
        while loaded.idle.advance(time.monotonic()):
            pass
        script = Script(requests).run(loaded)
        assert not loaded.idle.measuring
    finished = script.all(Finished)
    assert [event.usage.completion_tokens for event in finished] == [20, 20]
