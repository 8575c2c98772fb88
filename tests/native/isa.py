"""ggml's CPU library for one instruction set that LocalSpec's kernels know, for tests.

`python tests/native/isa.py AVX2` prints where it is, compiled if it is not there; `all` does so for
everything that this machine can run or emulate, joined by colons. Of what cannot run here it is
said that it did not. Builds are kept beside the wheels, by what they are made of.

* Those of ARM run in an emulator on other CPUs, as the CPU that is named; NONE has no dot
  products, and so none of our kernels.
* AMX's tile instructions are plain C++ (tiles.h), so that its kernels run wherever the other
  instructions of theirs do. That is compiled in the least time, not for speed.
"""

from __future__ import annotations

import hashlib
import platform
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from localspec import built
from localspec.build import toolchain
from localspec.build.compile import working
from localspec.build.server import CMake
from localspec.build.source import Pip, unpack
from localspec.build.toolchain import Toolchain
from localspec.errors import LocalSpecError

HERE = Path(__file__).resolve().parent
CROSS = "aarch64-linux-gnu"
COMMON = (
    *("-DCMAKE_BUILD_TYPE=Release", "-DLLAMA_BUILD_COMMON=OFF", "-DLLAMA_BUILD_TESTS=OFF"),
    *("-DLLAMA_BUILD_EXAMPLES=OFF", "-DLLAMA_BUILD_TOOLS=OFF", "-DGGML_NATIVE=OFF"),
    f"-DCMAKE_PROJECT_ggml_INCLUDE={built.NATIVE / 'rows.cmake'}",
)
LEAST = "-O1 -DNDEBUG"


class Isa(NamedTuple):
    """An instruction set: flags a CPU needs, flags of the build, and the CPU that emulates it."""

    name: str
    needs: tuple[str, ...]
    flags: tuple[str, ...] = ()
    emulated: str = ""

    @property
    def build(self) -> str:
        """The name of its build; laws ask it whether llama.cpp's own code was optimized."""
        return "AMX-emulated" if self.name == "AMX" else self.name


def _arm(arch: str) -> tuple[str, ...]:
    return (f"-DGGML_CPU_ARM_ARCH={arch}",)


def _cross(arch: str) -> tuple[str, ...]:
    system = ("-DCMAKE_SYSTEM_NAME=Linux", "-DCMAKE_SYSTEM_PROCESSOR=aarch64")
    compilers = (f"-DCMAKE_C_COMPILER={CROSS}-gcc", f"-DCMAKE_CXX_COMPILER={CROSS}-g++")
    return (*system, *compilers, *_arm(arch))


AVX512 = ("-DGGML_AVX512=ON",)
VNNI = (*AVX512, "-DGGML_AVX512_VNNI=ON")
TILES = f"{LEAST} -D__AMX_TILE__ -D__AMX_INT8__ -D__AMX_BF16__ -include {HERE / 'tiles.h'}"
DOTPROD, I8MM = "armv8.2-a+dotprod", "armv8.6-a+dotprod+i8mm"
X86 = (
    Isa("AVX2", ("avx2",)),
    Isa("AVX_VNNI", ("avx_vnni",), ("-DGGML_AVX_VNNI=ON",)),
    Isa("AVX512", ("avx512bw",), AVX512),
    Isa("AVX512_VNNI", ("avx512_vnni",), VNNI),
    Isa(
        "AMX",
        ("avx512bw", "avx512_vnni"),
        (
            *VNNI,
            "-DCMAKE_BUILD_TYPE=None",
            f"-DCMAKE_C_FLAGS={LEAST}",
            f"-DCMAKE_CXX_FLAGS={TILES}",
        ),
    ),
)
ARM = (
    Isa("NEON_DOTPROD", ("asimddp",), _arm(DOTPROD)),
    Isa("NEON_I8MM", ("i8mm",), _arm(I8MM)),
)
EMULATED = (
    Isa("NEON_DOTPROD", (), _cross(DOTPROD), "cortex-a76"),
    Isa("NEON_I8MM", (), _cross(I8MM), "max"),
    Isa("NEON_I8MM-SVE256", (), _cross(f"{I8MM}+sve"), "max,sve-max-vq=2"),
    Isa("NONE", (), _cross("armv8-a"), "cortex-a53"),
)


def missing(isa: Isa) -> str:
    """Why this machine cannot run a build, in a sentence; empty if it can."""
    flags = built.processor().split()
    for flag in isa.needs:
        if flag not in flags:
            return f"{isa.build}: not run, this CPU has no {flag}"
    tools = (f"{CROSS}-g++", "qemu-aarch64-static") if isa.emulated else ()
    if absent := next((one for one in tools if shutil.which(one) is None), None):
        install = f"sudo apt install g++-{CROSS} qemu-user-static"
        return f"{isa.name}: not run, there is no {absent} (Debian, Ubuntu: {install})"
    return ""


def library(isa: Isa, tools: Toolchain) -> Path:
    """The directory of its libraries, compiled if they are not there. Raises LocalSpecError."""
    made_of = hashlib.sha256(repr((isa, COMMON)).encode())
    for file in sorted(HERE.glob("*.[hc]*")):
        made_of.update(file.read_bytes())
    place = tools.place / "kernels" / f"{isa.build}-{made_of.hexdigest()[:16]}"
    if not place.exists():
        venv = Path(sys.prefix)
        print(f"compiling ggml for {isa.name}", file=sys.stderr, flush=True)
        with working(tools) as work:
            pip, log = Pip(venv / "bin" / "python", work), venv / "kernels.log"
            cmake = CMake(pip, work, log, tools.environment)
            source, made = unpack(pip, work), work / isa.name
            cmake.make(source, made, "ggml-cpu", *COMMON, *isa.flags)
            if isa.emulated:
                _runner(isa, source, made / "bin")
            place.mkdir(parents=True)
            (made / "bin").rename(place / "bin")
    return place / "bin"


def _runner(isa: Isa, source: Path, libraries: Path) -> None:
    """A program that computes products by a library of another CPU, and how to run it here."""
    (libraries / "runner").write_text(f"qemu-aarch64-static -L /usr/{CROSS} -cpu {isa.emulated}\n")
    include = source / "vendor" / "llama.cpp" / "ggml" / "include"
    command = [
        *(f"{CROSS}-g++", "-std=c++17", "-O1", "-I", str(include), str(HERE / "compute.cpp")),
        *("-o", str(libraries / "compute"), "-L", str(libraries)),
        *("-lggml-cpu", "-lggml-base", "-Wl,-rpath,$ORIGIN"),
    ]
    subprocess.run(command, check=True)


def main(name: str) -> int:
    """Print where the libraries of the named set are, or of all; the exit code."""
    here = ARM if platform.machine() == "aarch64" else X86
    sets = {one.name: one for one in (*X86, *ARM)}
    if name != "all" and name not in sets:
        print(f"ISA={name} is none of {', '.join(sets)}.", file=sys.stderr)
        return 1
    wanted = [sets[name]] if name != "all" else [*here, *(EMULATED if here is X86 else ())]
    found = []
    try:
        tools = toolchain.find("cpu", remote=False, say=lambda _: None)
        for isa in wanted:
            if why := missing(isa):
                print(why, file=sys.stderr)
            else:
                found.append(str(library(isa, tools)))
    except LocalSpecError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    if found:
        print(":".join(found))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
