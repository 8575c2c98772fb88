"""The builds of llama.cpp on which the laws of our kernels are tried."""

from __future__ import annotations

import ctypes
import functools
import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from localspec.built import installed
from localspec.engine.llama.kernels import KernelInfo

TESTS = Path(__file__).resolve().parent.parent
REPOSITORY = TESTS.parent
FLAGS = {
    "AMX": "amx_int8",
    "AVX512_VNNI": "avx512_vnni",
    "AVX512": "avx512bw",
    "AVX_VNNI": "avx_vnni",
    "AVX2": "avx2",
    "NEON_I8MM": "i8mm",
    "NEON_DOTPROD": "asimddp",
}
"""Instruction sets that have kernels of ours, and what Linux calls that of a CPU which they need.

The best come first.
"""
TILES = ("avx512bw", "avx512_vnni")
"""The features that a CPU needs to run the kernels for AMX with tiles in plain C++."""
EMULATED = "AMX"
"""Of an instruction set that few processors have: its tiles in plain C++ (`native/tiles.h`)."""
BUILDS = ["installed", EMULATED, *filter(None, os.environ.get("LOCALSPEC_BUILDS", "").split(":"))]
"""This machine's own, that with emulated tiles, and those that `make kernels` compiled."""
_ENVIRONMENT = {
    name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))
}
"""As it was before a test had a home of its own: builds are kept in the user's cache."""


@functools.cache
def of_isa(name: str) -> tuple[Path | None, str]:
    """Where ggml's CPU library for an instruction set is, compiled if it is not there yet.

    None and the reason where this processor cannot run it. Raises RuntimeError if it does not
    compile.
    """
    venv = os.path.relpath(sys.prefix, REPOSITORY)
    ran = subprocess.run(
        ["make", "-s", "isa", f"ISA={name}", f"VENV={venv}"],
        cwd=REPOSITORY,
        env=_ENVIRONMENT,
        capture_output=True,
        text=True,
        check=False,
    )
    if ran.returncode:
        raise RuntimeError(f"make isa ISA={name} failed: {ran.stderr}")
    place = ran.stdout.strip()
    return Path(place) if place else None, ran.stderr.strip()


def flags() -> set[str]:
    """Instruction set flags of this CPU, as Linux lists them; empty elsewhere."""
    cpu = Path("/proc/cpuinfo")
    return set(cpu.read_text().split()) if cpu.exists() else set()


def chosen() -> str:
    """The instruction set of our kernels that all tests use: this machine's, or LOCALSPEC_ISA's."""
    library = installed() / f"libggml-cpu.{'dylib' if sys.platform == 'darwin' else 'so'}"
    return KernelInfo(ctypes.CDLL(str(library))).kernels or "none of ours"


def lower(isa: str, place: Path) -> None:
    """From here on this process and its children use llama.cpp for a lesser instruction set.

    Raises ValueError where this processor cannot run that, RuntimeError where it does not compile.
    """
    libraries, why = of_isa(isa)
    if libraries is None:
        raise ValueError(why)
    os.environ["LLAMA_CPP_LIB_PATH"] = str(whole(libraries, place))


def kernel_lines() -> Iterator[str]:
    """Yield lines about the kernels that the tests ran with, and those tested besides."""
    here, kernels = flags(), chosen()
    asked = "LOCALSPEC_ISA" if os.environ.get("LOCALSPEC_ISA") else "this machine's build"
    yield f"kernels: {kernels} ({asked})"
    if here.issuperset(TILES) and kernels != "AMX":
        yield "laws of products, attention and kinds of models also by AMX, its tiles emulated"
    elif "AMX" not in kernels:
        yield "not run: AMX, even with emulated tiles this CPU lacks " + " and ".join(
            flag for flag in TILES if flag not in here
        )
    for name, flag in FLAGS.items():
        if name in {kernels, "AMX"}:
            continue
        if flag in here:
            yield f"not run: {name}; LOCALSPEC_ISA={name} or `make kernels` runs it"
        elif name.startswith("NEON") != (platform.machine() in {"aarch64", "arm64"}):
            yield f"not run: {name} of other CPUs; `make kernels` emulates what it can"
        else:
            yield f"not run: {name}, this CPU has no {flag}"


def libraries_of(build: str) -> tuple[Path | None, str]:
    """Of one of `BUILDS`, or None and why it cannot be tried."""
    if build == EMULATED:
        return of_isa(build)
    return installed() if build == "installed" else Path(build), ""


def named(build: str) -> str:
    """For a test's name: with what a build was made of left out."""
    name = Path(build).parent.name if "/" in build else build
    return name.rstrip("-0123456789") if "/" in build else name


def whole(libraries: Path, place: Path) -> Path:
    """All of llama.cpp with the CPU library of a build, in a folder of links; the folder."""
    place.mkdir(parents=True)
    for folder in (libraries, installed()):
        for file in folder.iterdir():
            ours = file.name.startswith("libggml-cpu.")
            if file.name.startswith("lib") and ours == (folder == libraries):
                (place / file.name).symlink_to(file)
    return place


def found_by(peer: str, libraries: Path, *, kernels: bool = True) -> dict[str, Any]:
    """Output of a peer program on a build, with our kernels or without.

    Threads that wait give their core away: on a busy machine the others need it.
    """
    quiet = {"OMP_WAIT_POLICY": "passive", "OPENBLAS_NUM_THREADS": "1"}
    ours = {"LOCALSPEC_ROWS": str(int(kernels)), "PYTHONPATH": str(TESTS)}
    ran = subprocess.run(
        [sys.executable, "-m", peer, str(libraries)],
        env=os.environ | quiet | ours,
        stdout=subprocess.PIPE,
        check=True,
    )
    found: dict[str, Any] = json.loads(ran.stdout)
    return found
