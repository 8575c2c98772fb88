"""`localspec doctor`: everything that can be wrong on this machine, in one screen."""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from localspec import built, paths
from localspec.catalog import devices
from localspec.catalog.devices import Present
from localspec.catalog.header import Header
from localspec.cli import findings, waiting
from localspec.cli.columns import advice, columns, hung
from localspec.cli.findings import Finding, failed, fine, wrong
from localspec.client import Client
from localspec.config import Config
from localspec.errors import EngineError, LocalSpecError, escaped

if TYPE_CHECKING:
    from localspec.bench.proof import Build, Device

_AGAIN = f"{built.COMMAND}  # proves the build, and mends it if it can; docs/gpu.md"
_CUDA = f"{built.COMMAND} {'BACKEND=cuda' if built.checkout() else '--backend cuda'}"
_EVERYWHERE = {"SSE3", "SSSE3", "AVX", "AVX2", "F16C", "FMA", "BMI2", "LLAMAFILE", "OPENMP"}
"""Features of every build; the others tell builds apart."""

_STOCK = (
    "llama.cpp as PyPI has it: without kernels for few rows, heads that are fed with states, and "
    "cheap rows on a GPU; localspec build compiles it with these"
)


@click.command()
@click.option("--json", "as_json", is_flag=True, help="One JSON array of all findings.")
@click.pass_context
def doctor(context: click.Context, *, as_json: bool) -> None:
    """Say what is wrong on this machine, and what mends it.

    A pair of tiny models is loaded and decoded on every device, as `make` did after compiling.
    Exit code 1 if anything is wrong.

    Example: localspec doctor
    """
    found: list[Finding] = []
    examined = _examine()
    while finding := _next(examined):
        found.append(finding)
        if not as_json:
            _show(finding)
    if as_json:
        click.echo(msgspec.json.encode(found).decode())
    if any(finding.verdict == "wrong" for finding in found):
        context.exit(1)


def _next(examined: Iterator[Finding]) -> Finding | None:
    with waiting.shown("examining this machine"):
        return next(examined, None)


def _show(finding: Finding) -> None:
    said = escaped(finding.said)
    if finding.verdict == "ok":
        click.echo(hung(f"ok     {finding.what:12} ", said, columns()))
    else:
        wrong = hung(f"WRONG  {finding.what:12} ", said, columns())
        click.echo(click.style(wrong, fg="red"))
        click.echo(advice(escaped(f"{'':20}{finding.fix}"), columns()))


def _examine() -> Iterator[Finding]:
    """All findings, the build's first: they take most of the time."""
    sound = yield from _build()
    said, chosen = findings.settings()
    yield said
    directory = findings.models_directory(chosen)
    places = findings.places(directory, _socket())
    yield from findings.permissions(places, paths.state_dir() / "token")
    yield from findings.daemon()
    about_models, pair = findings.models(directory, chosen.models.default)
    yield from about_models
    if sound:
        yield from _memory(chosen, pair)
    yield from findings.disk(places)


def _socket() -> Path:
    try:
        return Client.from_environment().socket_path or paths.socket_path()
    except (LocalSpecError, OSError):  # the settings are wrong; another finding says so
        return paths.socket_path()


def room(device: Device) -> Finding:
    """A device and its free memory; llama.cpp says of a CPU that all of its memory is free."""
    memory = devices.host() if device.kind == "cpu" else device
    free, total = memory.free_bytes / 1e9, memory.total_bytes / 1e9
    return fine("device", f"{device.name}: {device.description}, {free:.1f} of {total:.1f} GB free")


def _build() -> Generator[Finding, None, bool]:
    """Check llama.cpp, its devices, and the proof on each. Returns whether llama.cpp loads."""
    from localspec.bench import kernels, proof  # noqa: PLC0415  numpy: no other command waits

    try:
        build = proof.inspect()
    except EngineError as error:
        yield failed("build", error, _AGAIN)
        return False
    yield fine("build", features(build.llama))
    if built.checkout() is None and built.installed() != built.kept():
        yield fine("build", _STOCK)
    yield from map(room, build.devices)
    yield from _unused(build)
    try:
        for trial in proof.trials(build):
            if trial.failure:
                yield wrong("proof", f"{trial.device}: {trial.failure}", _AGAIN)
            else:
                yield fine("proof", f"{trial.device}: {trial.said}, {trial.seconds:.1f} s")
        if gains := kernels.tried(worth=True).gains:
            yield fine("kernels", f"times as fast as llama.cpp's own: {gains}")
    except OSError as error:
        yield wrong("proof", f"It cannot be tried: {error}.", f"df {tempfile.gettempdir()}")
    except LocalSpecError as error:
        yield failed("proof", error, _AGAIN)
    return True


def _memory(chosen: Config, pair: list[Header]) -> Iterator[Finding]:
    """Check whether the pair fits into the memory that the planner sees."""
    from localspec.bench import native  # noqa: PLC0415  as above

    try:
        there = native.ask(Present, "worker.planning").devices
    except EngineError as error:
        yield failed("memory", error, _AGAIN)
    else:
        yield from findings.memory(chosen, pair, there)


def features(llama: str) -> str:
    """The version of a build and the features that tell it from other builds."""
    version, _, rest = llama.partition(";")
    special = [name for name in re.findall(r"(\w+) = 1", rest) if name not in _EVERYWHERE]
    special += [f"own kernels ({name})" for name in re.findall(r"ROWS = (\w+)", rest)]
    return f"{version} with {', '.join(special)}" if special else version


def _unused(build: Build) -> Iterator[Finding]:
    """A finding for an NVIDIA card that its driver lists and this build cannot use."""
    smi = shutil.which("nvidia-smi")
    if build.offloading or smi is None:
        return
    listed = subprocess.run([smi, "-L"], capture_output=True, text=True, check=False)  # noqa: S603  found on PATH
    if listed.returncode == 0 and listed.stdout.strip():
        card = listed.stdout.partition("\n")[0]
        yield wrong(
            "device",
            f"{card} is there, and this llama.cpp was compiled without CUDA.",
            f"{_CUDA}  # needs the CUDA toolkit; docs/gpu.md",
        )
