"""The report about a GPU, all the way on this machine's CPU with small models."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import tiny

from localspec import machine
from localspec.bench import gpu, staircase
from localspec.bench.gpu import Run
from localspec.bench.staircase import Curve, Measured, Stair
from localspec.catalog import devices


def report(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """`python -m localspec.bench.gpu` as a process of its own."""
    return subprocess.run(
        [sys.executable, "-m", "localspec.bench.gpu", *arguments],
        env=os.environ | environment,
        capture_output=True,
        text=True,
        check=False,
    )


def test_one_run_measures_pair_and_shapes_and_writes_the_report(tmp_path: Path) -> None:
    """Staircases of target, draft and shape; the pair end to end; Markdown and JSON of it all."""
    models = tmp_path / "models"
    models.mkdir()
    tiny.build(models / "tiny.gguf")
    tiny.build(models / "little.gguf", like=0, noise=0.02)
    (models / "drafts.json").write_text('{"tiny":"little"}')
    output = tmp_path / "report"
    done = report(
        "--device=cpu", "--threads=1", "--model=tiny", "--shapes=tiny", "--cells=16,40",
        "--repeats=1", "--limit=1", "--tokens=4", f"--output={output}",
        LOCALSPEC_MODELS=str(models),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr

    run = json.loads((output / "report.json").read_text())
    assert set(run["pair"]) == {"target", "draft"}
    assert set(run["shapes"]) == {"tiny q4_k_m"}
    assert run["failed"] == {}
    assert run["results"]["arms"] == ["plain", "auto"]
    said = (output / "report.md").read_text()
    for heading in (
        "### CPU only",
        "#### Cost of one forward by rows, relative to one row",
        "#### Cost of one drafted token",
        "#### Decode speed as a ratio to plain",
        "#### Milliseconds of a forward by the forwards before it",
    ):
        assert heading in said
    tables = {"machine.toml", "machine-tiny.toml"}
    assert {path.name for path in output.iterdir()} == tables | {"report.json", "report.md", "pair"}
    for name in tables:
        found = machine.read(output / name)
        assert found.target.forward_ms(1, 2) > 0
        assert "make bench-gpu" in found.source
        assert found.host.round_ms > 0
        assert found.head is not None
        assert 0 < found.head.token_ms < 50
        (there,) = devices.described(output / name)
        assert (there.name, there.total_bytes) == ("CPU", devices.host().total_bytes)


def test_without_a_gpu_it_says_so_and_measures_nothing(tmp_path: Path) -> None:
    """One sentence and what helps; no report that could be taken for one."""
    done = report(f"--output={tmp_path / 'report'}", PATH="")
    assert done.returncode == 70
    assert done.stderr.startswith("error: No NVIDIA GPU answers here")
    assert "--device cpu" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_what_could_not_be_measured_is_in_the_report() -> None:
    """A missing measurement is listed with its reason."""
    run = Run(created="today", machine="this one", device="some GPU")
    run.failed["shape 32b"] = "it needs more memory"
    assert "* not measured: shape 32b (it needs more memory)" in gpu.markdown(run)


def test_a_measured_staircase_becomes_the_prices_of_a_table() -> None:
    """Changes are what comes on top of steady forwards; behind more tokens they take longer."""
    near = Curve(
        100, 2000.0, [Stair(1, 2.0, 1.9, 0.0, 5.0, 3.0), Stair(4, 4.0, 4.0, 0.0, 3.9, 4.0)]
    )
    far = Curve(
        1100, 1000.0, [Stair(1, 3.0, 3.0, 0.0, 6.0, 4.0), Stair(4, 6.0, 6.0, 0.0, 6.0, 6.0)]
    )
    found = staircase.forwards(Measured("build", 1, 1, {}, [near, far]))
    assert [found.forward_ms(1, alike, 100) for alike in (0, 1, 2)] == [5.0, 3.0, 2.0]
    assert [found.forward_ms(4, alike, 1100) for alike in (0, 1, 2)] == [6.0, 6.0, 6.0]
    assert found.forward_ms(14, 2, 100) == 4.0 + 10.0
