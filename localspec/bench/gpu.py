"""Measures everything for a report about one GPU, in one run: `make bench-gpu`.

The default pair end to end by a daemon of its own that has learned nothing yet; the staircases of
its two files; those of random weights in the shapes of larger models. report.md, to be pasted
into docs/internals/measured.md, report.json and the tables for `localspec bench --machine` are
written anew after each step, so that an interrupted run keeps what it has. `--device cpu --shapes
tiny` goes the same way on any machine.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, get_args

import msgspec

from localspec import paths, toml
from localspec.bench import native, readiness, report, results, shapes, staircase
from localspec.bench.home import Home
from localspec.bench.report import Table
from localspec.bench.results import Results
from localspec.bench.staircase import Measured
from localspec.bench.summary import Summary
from localspec.catalog.devices import Device, Present
from localspec.catalog.registry import Registry, Resolved
from localspec.config import Config, Engine, Models, Placement
from localspec.errors import EngineError, LocalSpecError
from localspec.machine import Card, Head, Machine

TARGET, DRAFT = "target", "draft"


class Run(msgspec.Struct):
    """The measurements so far; `failed` maps a step without a result to its reason."""

    created: str
    machine: str
    device: str
    devices: list[Device] = []
    results: Results | None = None
    summary: Summary | None = None
    pair: dict[str, Measured] = {}
    shapes: dict[str, Measured] = {}
    failed: dict[str, str] = {}


def main() -> int:
    """Measure everything that is asked for; the exit code is 0 only if all of it was measured."""
    try:
        return _measure(_arguments())
    except LocalSpecError as error:
        print(f"error: {error}", file=sys.stderr)  # noqa: T201 - this is a program of its own
        return error.exit_code


def _measure(asked: argparse.Namespace) -> int:
    run = Run(
        created=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        machine=readiness.machine(),
        device=_device(asked.device),
        devices=native.ask(Present, "worker.planning").devices,
    )
    paths.make_directory(asked.output, 0o755)
    for name, step in _steps(run, asked):
        print(name, file=sys.stderr, flush=True)  # noqa: T201 - the same
        try:
            step()
        except LocalSpecError as error:
            run.failed[name] = str(error)
            print(f"  {error}", file=sys.stderr)  # noqa: T201 - the same
        paths.write_atomically(asked.output / "report.json", msgspec.json.encode(run), 0o644)
        paths.write_atomically(asked.output / "report.md", markdown(run).encode(), 0o644)
        for file, table in machines(run).items():
            text = toml.write(msgspec.to_builtins(table, str_keys=True))
            paths.write_atomically(asked.output / file, text.encode(), 0o644)
    print(f"written: {asked.output / 'report.md'}", file=sys.stderr)  # noqa: T201 - the same
    return int(bool(run.failed))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m localspec.bench.gpu", description=__doc__)
    parser.add_argument("--output", type=Path, default=Path("bench-gpu"), metavar="DIR")
    parser.add_argument("--device", choices=("gpu", "cpu"), default="gpu")
    parser.add_argument("--threads", type=int, default=0, help="0 is one per physical core")
    parser.add_argument("--model", default=Models().default, help="the target of the pair")
    parser.add_argument("--shapes", default="7b,14b,32b", help=", ".join(shapes.SHAPES))
    parser.add_argument("--kind", choices=get_args(shapes.Kind), default="q4_k_m")
    parser.add_argument("--cells", default=",".join(map(str, staircase.CELLS)))
    parser.add_argument("--repeats", type=int, default=7, help="of each forward")
    parser.add_argument("--limit", type=int, default=2, help="prompts of a slice")
    parser.add_argument("--tokens", type=int, default=128, help="of an answer")
    asked = parser.parse_args()
    asked.shapes = [name for name in asked.shapes.split(",") if name]
    if unknown := set(asked.shapes) - set(shapes.SHAPES):
        parser.error(f"no such shape: {', '.join(sorted(unknown))}")
    asked.cells = [int(count) for count in asked.cells.split(",")]
    return asked


def _device(kind: str) -> str:
    """The GPU as its driver describes it. Raises EngineError if there is none."""
    if kind == "cpu":
        return "CPU only"
    command = [
        "nvidia-smi",
        "--query-gpu=name,driver_version,memory.total",
        "--format=csv,noheader",
    ]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True)  # noqa: S603 - constant
    except (OSError, subprocess.CalledProcessError) as error:
        raise EngineError(
            f"No NVIDIA GPU answers here: {error}.",
            fix="Run this where nvidia-smi shows one, or try the way with --device cpu.",
        ) from error
    return done.stdout.strip().replace("\n", "; ")


def _steps(run: Run, asked: argparse.Namespace) -> Iterator[tuple[str, Callable[[], None]]]:
    pair = Registry(paths.models_dir()).resolve(asked.model)

    def staircase_of(place: dict[str, Measured], name: str, path: Path) -> None:
        place[name] = _staircase(path, asked)

    def shape(name: str) -> None:
        with tempfile.TemporaryDirectory(dir=asked.output) as there:
            path = Path(there) / f"{name}-{asked.kind}.gguf"
            shapes.write(path, shapes.SHAPES[name], asked.kind)
            staircase_of(run.shapes, f"{name} {asked.kind}", path)

    yield f"staircase of {pair.name}", partial(staircase_of, run.pair, TARGET, pair.target_path)
    if pair.draft_path is not None:
        yield "staircase of its draft", partial(staircase_of, run.pair, DRAFT, pair.draft_path)
    yield f"{pair.name} end to end", partial(_end_to_end, run, pair, asked)
    for name in asked.shapes:
        yield f"shape {name}", partial(shape, name)


def _staircase(path: Path, asked: argparse.Namespace) -> Measured:
    on_gpu = asked.device == "gpu"
    found = staircase.measure(
        path,
        cells=asked.cells,
        repeats=asked.repeats,
        gpu_layers=-1 if on_gpu else 0,
        threads=asked.threads,
    )
    if on_gpu and not found.on_gpu:
        raise EngineError(
            f"No weights of {path.name} went to the GPU: this llama.cpp was compiled without CUDA.",
            fix="Remove .venv-gpu, see that nvcc is on PATH, and run `make bench-gpu` again.",
        )
    return found


def _end_to_end(run: Run, pair: Resolved, asked: argparse.Namespace) -> None:
    """Run `localspec bench` with a daemon of its own, which has learned nothing from the user's."""
    with Home(_config(pair, asked)) as home:
        home.localspec(
            "bench", "--arms=plain,auto", f"--limit={asked.limit}", "--repeats=2",
            f"--tokens={asked.tokens}", f"--output={asked.output / 'pair'}",
        )  # fmt: skip
    written = (asked.output / "pair" / "results.json").read_bytes()
    found: dict[str, Any] = msgspec.json.decode(written)
    run.results = msgspec.convert(found["results"], Results)
    run.summary = msgspec.convert(found["summary"], Summary)


def _config(pair: Resolved, asked: argparse.Namespace) -> Config:
    layers = -1 if asked.device == "gpu" else 0
    placement = Placement(gpu_layers=layers, threads=asked.threads)
    engine = Engine(exactness="standard", target=placement, draft=placement)
    return Config(models=Models(default=pair.name), engine=engine)


def machines(run: Run) -> dict[str, Machine]:
    """The tables for `localspec bench --machine` by file: of the pair, and of each shape.

    A shape has the pair's draft, and all tables have the host's time from the pair's rounds. Each
    table has a feature head for the width of its model's states, whether one was made or not. The
    devices, for `localspec models plan --machine`, are those of this machine.
    """
    if DRAFT not in run.pair:
        return {}
    draft = staircase.forwards(run.pair[DRAFT])
    host = results.host(run.results.model if run.results else {})
    cards = tuple(
        Card(each.name, each.total_bytes, kind=each.kind)
        for each in run.devices
        if each.kind != "remote"
    )
    source = (
        f"Measured on {run.device} ({run.machine}) by make bench-gpu, {run.created}, "
        f"{run.pair[DRAFT].build.partition(';')[0]}."
    )
    targets = {"machine.toml": ("the pair", run.pair[TARGET])} if TARGET in run.pair else {}
    for name, measured in run.shapes.items():
        targets[f"machine-{name.partition(' ')[0]}.toml"] = (f"{name}, random weights", measured)
    return {
        file: Machine(
            f"{run.device}, {name}",
            source,
            staircase.forwards(measured),
            draft,
            host,
            None if measured.head_ms is None else Head(measured.head_ms),
            cards,
        )
        for file, (name, measured) in targets.items()
    }


def markdown(run: Run) -> str:
    """The report as a section of docs/internals/measured.md."""
    measured = [*run.pair.values(), *run.shapes.values()]
    build = measured[0].build.partition(";")[0] if measured else "llama.cpp"
    lines = [f"### {run.device}", "", f"{run.created}, {build}, {run.machine}."]
    lines += [f"* not measured: {name} ({why})" for name, why in run.failed.items()]
    for table in _tables(run):
        lines += ["", *report.lines(table, level=4)]
    return "\n".join(lines) + "\n"


def _tables(run: Run) -> Iterator[Table]:
    named = {f"pair's {name}": one for name, one in run.pair.items()}
    random = {f"{name}, random weights": one for name, one in run.shapes.items()}
    if named or random:
        yield staircase.table(named | random)
        yield staircase.changes(named | random)
    if TARGET in run.pair and DRAFT in run.pair:
        yield staircase.drafting(run.pair[TARGET], run.pair[DRAFT])
    if run.results and run.summary:
        yield from report.tables(run.results, run.summary)


if __name__ == "__main__":
    sys.exit(main())
