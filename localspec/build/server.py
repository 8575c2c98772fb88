"""Compiles llama-server from the same source and with the same flags, for comparisons.

A comparison then measures two programs and not two builds. llama-server is one static program, so
it loads no library of another version. The web page that its build would download is left out.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from localspec import built
from localspec.build.compile import Workshop
from localspec.build.source import Pip, unpack, watched
from localspec.errors import EngineError

_OFF = ("BUILD_SHARED_LIBS", "LLAMA_BUILD_TESTS", "LLAMA_BUILD_EXAMPLES", "LLAMA_BUILD_APP",
        "LLAMA_BUILD_UI", "LLAMA_USE_PREBUILT_UI", "LLAMA_OPENSSL")  # fmt: skip


class CMake:
    """CMake and ninja: this machine's, or those of PyPI in a directory of `work`."""

    def __init__(self, pip: Pip, work: Path, log: Path, environment: dict[str, str]) -> None:
        self._log, self._environment = log, dict(environment)
        if shutil.which("cmake") is None:
            tools = work / "tools"
            if not tools.exists():
                pip.run("install", "-q", "--target", str(tools), "cmake", "ninja")
            path = os.pathsep.join([str(tools / "bin"), self._environment["PATH"]])
            self._environment |= {"PATH": path, "PYTHONPATH": str(tools)}
        if shutil.which("ninja", path=self._environment["PATH"]):
            self._environment["CMAKE_GENERATOR"] = "Ninja"
        self._program = shutil.which("cmake", path=self._environment["PATH"]) or "cmake"

    def make(self, source: Path, place: Path, target: str, *flags: str) -> None:
        """Configure llama.cpp in `place` and compile a target. Raises EngineError."""
        steps = [
            ["-S", str(source / "vendor" / "llama.cpp"), "-B", str(place), *flags],
            ["--build", str(place), "--target", target, "--parallel", str(os.cpu_count() or 1)],
        ]
        for step in steps:
            if error := watched([self._program, *step], self._log, self._environment):
                raise EngineError(
                    f"{target} did not compile: {error}; the whole log is {self._log}"
                )


def server(shop: Workshop) -> Path:
    """The path of llama-server, which is compiled if it is missing. Raises EngineError."""
    tools, log = shop.tools, shop.log
    program = tools.place / "llama-server"
    if not program.exists():
        shop.say(f"compiling llama-server, two to ten minutes; log: {log}")
        log.unlink(missing_ok=True)
        flags = [f"-D{name}=OFF" for name in _OFF]
        flags += ["-DCMAKE_BUILD_TYPE=Release", "-DLLAMA_BUILD_NUMBER=0"]
        flags.append(f"-DLLAMA_BUILD_COMMIT={built.requirement().replace('==', '-')}")
        cmake = CMake(shop.pip, shop.work, log, tools.environment)
        source, place = unpack(shop.pip, shop.work), shop.work / "server"
        cmake.make(source, place, "llama-server", *flags, *tools.hooks, *tools.flags)
        (place / "bin" / "llama-server").rename(program)
    return program
