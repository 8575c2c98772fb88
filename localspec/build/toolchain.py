"""The flags and the compiler for llama.cpp on this machine, and where its builds are kept."""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from localspec import built
from localspec.build import backends
from localspec.build.backends import Backend, said_by
from localspec.errors import ConfigError

CXX = os.environ.get("CXX") or "c++"
_TOOLKITS = ("/usr/local/cuda/bin", "/opt/rocm/bin")
_NO_COMPILER = (
    "Debian, Ubuntu: sudo apt install build-essential. Fedora: sudo dnf install gcc-c++. "
    "macOS: xcode-select --install."
)
_KEEP_STORES = "-fno-dse -fno-tree-dse"
"""GCC before 12.4 and 13.3 removes the stores that set up AMX's tiles, and the kernels crash."""
NO_HOOKS = ("-DLOCALSPEC_PLAIN=ON", "-DCMAKE_PROJECT_ggml_INCLUDE=/dev/null")
"""Flags that undo the hooks, so that LocalSpec's code is left out."""


@dataclass(frozen=True)
class Toolchain:
    """The choices that shape llama.cpp here: a backend, remote devices or not, the caller's flags.

    CMAKE_ARGS, CXXFLAGS and LDFLAGS of the environment are used. CMAKE_ARGS come last, so they
    override other flags.
    """

    backend: Backend
    remote: bool = False

    @cached_property
    def hooks(self) -> tuple[str, ...]:
        """Flags with which CMake includes LocalSpec's code at the end of a project of llama.cpp's.

        On a CPU with AVX2 or more, or with ARM's dot products, llama.cpp gets kernels for few rows:
        the same bits, on x86 in a third to half of the time. The proof compares these bits.
        """
        edits = f"-DCMAKE_PROJECT_llama.cpp_INCLUDE={built.NATIVE / 'edits.cmake'}"
        rows = f"-DCMAKE_PROJECT_ggml_INCLUDE={built.NATIVE / 'rows.cmake'}"
        return (edits, rows) if _cpu_has("avx2") or _cpu_has("asimddp") else (edits,)

    @cached_property
    def flags(self) -> tuple[str, ...]:
        """Flags of llama.cpp without the hooks. No videos: mtmd would start programs for them."""
        flags = ["-DMTMD_VIDEO=OFF", self.backend.flag]
        if self.remote:
            flags.append("-DGGML_RPC=ON")
        return (*flags, *shlex.split(os.environ.get("CMAKE_ARGS", "")))

    @cached_property
    def environment(self) -> dict[str, str]:
        """The environment variables for the compiler."""
        found = dict(os.environ)
        found["CXXFLAGS"] = f"{found.get('CXXFLAGS', '')} {_kept_stores()}".strip()
        if self.backend.name == "hip" and "HIPCXX" not in found:
            found["HIPCXX"] = f"{(said_by('hipconfig', '-l') or '').strip()}/clang"
        return found

    @cached_property
    def place(self) -> Path:
        """The directory of these builds: a cache keyed by everything that shapes them.

        pip's own cache does not distinguish wheels by the flags that they were built with.
        """
        compilers = {CXX, self.backend.compiler or CXX}
        versions = [said_by(one, "--version") or "" for one in sorted(compilers)]
        flags = shlex.join(self.flags)
        named = built.digest(
            flags, self.environment["CXXFLAGS"], os.environ.get("LDFLAGS", ""), *versions
        )
        return built.cache() / "wheels" / named


def find(backend: str, *, remote: bool, say: Callable[[str], None]) -> Toolchain:
    """The toolchain of this machine. Raises ConfigError, which says what to install.

    Appends the directories where the installers of CUDA and ROCm put their programs to PATH.
    """
    os.environ["PATH"] = os.pathsep.join([os.environ.get("PATH", os.defpath), *_TOOLKITS])
    if shutil.which(CXX) is None:
        raise ConfigError(
            f"llama.cpp is compiled here and there is no C++ compiler: {CXX}.", fix=_NO_COMPILER
        )
    return Toolchain(backends.chosen(backend, CXX, say), remote=remote)


def _cpu_has(flag: str) -> bool:
    return flag in built.processor().split()


def _kept_stores() -> str:
    if not _cpu_has("amx_int8"):
        return ""
    macros = said_by(CXX, "-dM", "-E", "-x", "c++", os.devnull) or ""
    return "" if "__clang__" in macros else _KEEP_STORES
