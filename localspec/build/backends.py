"""The backends of llama.cpp that compute besides the CPU, and the choice of one for this machine.

docs/gpu.md describes each of them.
"""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from localspec.errors import ConfigError

_VULKAN_HEADERS = """#include <vulkan/vulkan.h>
#include <spirv/unified1/spirv.hpp>
#ifndef VK_EXT_layer_settings
#error old
#endif
"""


def succeeds(*command: str, text: str = "") -> bool:
    """Whether a program exists and ends with exit code 0 when given `text` as input."""
    return said_by(*command, text=text) is not None


def said_by(*command: str, text: str = "") -> str | None:
    """The standard output of a program; None if it does not exist or fails."""
    if (program := shutil.which(command[0])) is None:
        return None
    done = subprocess.run(
        [program, *command[1:]],
        input=text,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        errors="replace",
        check=False,
    )
    return done.stdout if done.returncode == 0 else None


def _says(word: str, *command: str) -> bool:
    return word in (said_by(*command) or "")


def on_macos() -> bool:
    """Whether this is macOS, which has a linker and libraries of its own."""
    return _says("Darwin", "uname")


def _vulkan_device() -> bool:
    if shutil.which("vulkaninfo"):
        listed = said_by("vulkaninfo", "--summary") or ""
        return any("TYPE_" in line and "_GPU" in line for line in listed.splitlines())
    return any(Path("/dev/dri").glob("renderD*"))


class Backend(NamedTuple):
    """A backend: its name, llama.cpp's flag, its compiler, and the packages that provide it.

    `device` tells whether a device of the backend responds; `headers` is a source text that has to
    pass the preprocessor.
    """

    name: str
    flag: str
    compiler: str
    device: Callable[[], bool]
    install: str
    headers: str = ""

    def ready(self, cxx: str) -> bool:
        """Whether everything needed to compile the backend is here; `cxx` is the C++ compiler."""
        compiler = shutil.which(self.compiler or cxx) is not None
        return compiler and (
            not self.headers or succeeds(cxx, "-E", "-x", "c++", "-", text=self.headers)
        )


BACKENDS = (
    Backend(
        "cuda",
        "-DGGML_CUDA=ON",
        "nvcc",
        lambda: succeeds("nvidia-smi", "-L"),
        "the CUDA toolkit that fits the driver",
    ),
    Backend(
        "hip",
        "-DGGML_HIP=ON",
        "hipcc",
        lambda: _says("gfx", "rocminfo"),
        "ROCm 6.1 or newer with hipBLAS and rocBLAS",
    ),
    Backend(
        "vulkan",
        "-DGGML_VULKAN=ON",
        "glslc",
        _vulkan_device,
        "glslc, spirv-headers and Vulkan headers 1.3.272 or later",
        _VULKAN_HEADERS,
    ),
    Backend(
        "metal",
        "-DGGML_METAL=ON",
        "xcrun",
        on_macos,
        "Xcode's command line tools: xcode-select --install",
    ),
    Backend("cpu", "-DGGML_METAL=OFF", "", lambda: True, "a C++ compiler"),
)
NAMES = ("auto", *(one.name for one in BACKENDS))


def chosen(name: str, cxx: str, say: Callable[[str], None]) -> Backend:
    """The backend of this name, or for "auto" the first one with a device and a compiler.

    If a device stays unused because its compiler is missing, `say` is told what to install. Raises
    ConfigError.
    """
    if name not in NAMES:
        raise ConfigError(f'The backend "{name}" is none of {", ".join(NAMES)}.')
    for backend in BACKENDS:
        if name == backend.name:
            if not backend.ready(cxx):
                needs = backend.compiler or cxx
                raise ConfigError(
                    f"The backend {name} needs {needs} and what belongs to it, which is not here.",
                    fix=f"Install {backend.install}.",
                )
            return backend
        if name == "auto" and backend.device():
            if backend.ready(cxx):
                return backend
            say(
                f"There is a device for {backend.name}, and it stays unused: to use it, install "
                f"{backend.install}."
            )
    return BACKENDS[-1]
