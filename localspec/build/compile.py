"""Compiles llama.cpp, proves that it works here, and tries cures for a build that does not.

Only proved builds enter the cache. The proof (`localspec.bench.proof`) loads a pair of tiny models
and decodes with it on every device, in processes of its own, and compares the bits of LocalSpec's
kernels.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple, Protocol

from localspec import built
from localspec.build.backends import on_macos
from localspec.build.source import Pip, unpack, watched
from localspec.build.toolchain import NO_HOOKS, Toolchain
from localspec.errors import EngineError

Say = Callable[[str], None]

_NO_GPU = tuple(f"-DGGML_{name}=OFF" for name in ("CUDA", "HIP", "VULKAN", "METAL"))
_ANY_CPU = ("-DGGML_NATIVE=OFF", "-DGGML_CPU_REPACK=OFF")
_WORK = "work-"
_OTHERS_WRITE = 0o022
_LACKS = (
    "What it usually lacks: a complete C++ compiler (Debian, Ubuntu: sudo apt install "
    "build-essential; Fedora: sudo dnf install gcc-c++; macOS: xcode-select --install) or, for a "
    "GPU, a toolkit that fits its driver (docs/gpu.md; the backend cpu does without)."
)


class Attempt(NamedTuple):
    """One way to compile: its description, and the flags that it adds."""

    words: str
    flags: tuple[str, ...] = ()


class Workshop(NamedTuple):
    """The tools of a build, its working directory, its log, and a function that shows progress."""

    tools: Toolchain
    pip: Pip
    work: Path
    log: Path
    say: Say


class Installer(Protocol):
    """Installs a wheel in the place where it will be used."""

    def install(self, wheel: Path, log: Path) -> bool:
        """Install and prove the wheel; returns whether it works. The proof writes to stderr."""

    def keep(self) -> None:
        """Use the last installed wheel from now on; it works and is in the cache."""


def attempts(tools: Toolchain, *, chosen: bool) -> Iterator[Attempt]:
    """Yield ways to compile in the order in which they are tried: the plain one, then cures.

    If the linker finds no libstdc++.so, it links a C++ runtime into each library, and these
    libraries use each other's symbols by mistake: in a process with more libraries the first stream
    crashes. A GPU that was `chosen` by name is not left out. A cure that would change nothing is
    skipped.
    """
    inside: tuple[str, ...] = ()
    if not on_macos():
        linked = f"{os.environ.get('LDFLAGS', '')} -Wl,--exclude-libs,ALL".strip()
        inside = (f"-DCMAKE_SHARED_LINKER_FLAGS={linked}",)
    cpu = tools.backend.name == "cpu"
    no_gpu = () if cpu else _NO_GPU
    ways = [
        Attempt(f"for this machine ({tools.backend.name})"),
        Attempt("with the C++ runtime kept inside each library", inside),
        Attempt("without the part that reads images", (*inside, "-DLLAVA_BUILD=OFF")),
        Attempt("without LocalSpec's own code in it", inside + NO_HOOKS),
    ]
    if cpu or not chosen:
        ways.append(Attempt("without the GPU", inside + no_gpu))
        words = "with plain kernels for any CPU"
        ways.append(Attempt(words, inside + NO_HOOKS + no_gpu + _ANY_CPU))
    tried: set[tuple[str, ...]] = set()
    for way in ways:
        if way.flags not in tried:
            tried.add(way.flags)
            yield way


@contextlib.contextmanager
def working(tools: Toolchain) -> Iterator[Path]:
    """A directory in the cache that is deleted at the end, also if the build is told to end.

    Directories of builds that were killed are deleted first. As libraries are loaded from the
    cache, other users may not write to anything that a build leaves, whatever the umask was.
    """
    os.umask(os.umask(_OTHERS_WRITE) | _OTHERS_WRITE)
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_DFL:  # else it is ignored or has a handler
            signal.signal(number, signal.default_int_handler)
    tools.place.mkdir(parents=True, exist_ok=True, mode=0o700)
    for left in tools.place.parent.glob(f"*/{_WORK}*"):
        with contextlib.suppress(OSError), _locked(left):
            shutil.rmtree(left)
    with (
        tempfile.TemporaryDirectory(dir=tools.place, prefix=_WORK) as work,
        _locked(Path(work)),
    ):
        yield Path(work)


@contextlib.contextmanager
def _locked(directory: Path) -> Iterator[None]:
    """Hold the lock of a working directory. Raises OSError if a running build holds it."""
    handle = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    finally:
        os.close(handle)


def build(shop: Workshop, installer: Installer, *, chosen: bool) -> None:
    """Install a llama.cpp that is proved here: one from the cache, or else a newly compiled one.

    Each cure is compiled in the build directory of the attempt before it, so only the differences
    are compiled again. Raises EngineError.
    """
    place, log = shop.tools.place, shop.log
    log.unlink(missing_ok=True)
    for wheel in sorted(place.glob("*.whl")):
        if installer.install(wheel, log):
            installer.keep()
            return
        shop.say("the llama.cpp that was compiled here before does not work any more")
        wheel.unlink()
    shop.say(f"fetching the source of {built.requirement()}")
    source = unpack(shop.pip, shop.work)
    for way in attempts(shop.tools, chosen=chosen):
        shop.say(f"compiling llama.cpp {way.words}; log: {log}")
        if error := _compile(shop, source, way):
            shop.say(f"it did not compile: {error}")
            continue
        made = next(shop.work.glob("*.whl"))
        if installer.install(made, log):
            made.rename(place / made.name)
            installer.keep()
            shop.say(f"llama.cpp works {way.words}")
            return
        made.unlink()
    raise EngineError(f"llama.cpp does not work here; the whole log is {log}.", fix=_LACKS)


def _compile(shop: Workshop, source: Path, way: Attempt) -> str:
    """Compile a wheel into the working directory; returns the reason of a failure, or "".

    The package forces llama.cpp's `common`, which LocalSpec does not use, into CMake's cache. A
    normal CMake variable of that name overrides the cache.
    """
    tools, work = shop.tools, shop.work
    shutil.rmtree(source / "llama_cpp" / "lib", ignore_errors=True)
    lean = work / "lean.cmake"
    lean.write_text("set(LLAMA_BUILD_COMMON OFF)\n")
    flags = [f"-DCMAKE_PROJECT_llama_cpp_INCLUDE={lean}", *tools.hooks, *tools.flags, *way.flags]
    command = shop.pip.command(
        *("wheel", "-v", "--no-cache-dir", "--no-deps", "-C", f"build-dir={work / 'build'}"),
        *("--wheel-dir", str(work), str(source)),
    )
    error = watched(command, shop.log, tools.environment | {"CMAKE_ARGS": shlex.join(flags)})
    return error if error or list(work.glob("*.whl")) else "there is no wheel"


class IntoEnvironment:
    """Installs the wheel, and the clone that this code runs from, into an environment of make's."""

    def __init__(self, pip: Pip, say: Say) -> None:
        self._pip, self._say = pip, say

    def install(self, wheel: Path, log: Path) -> bool:
        """Install the wheel and prove it, as in `Installer`."""
        self._say("installing LocalSpec")
        try:
            self._pip.run("install", "-q", "--force-reinstall", "--no-deps", str(wheel))
            self._pip.run("install", "-q", "-e", str(built.PACKAGE.parent))
        except EngineError as error:
            self._say(str(error))
            return False
        self._say("proving that it works here")
        return _proved(self._pip.python, log, {})

    def keep(self) -> None:
        """Do nothing: the wheel is in use already."""


_OTHERS = 3
"""Libraries kept for other processors or versions: 60 MB each, ten minutes to compile."""


class IntoCache:
    """Unpacks the wheel's libraries beside those in use, and later replaces these with them."""

    def __init__(self, work: Path) -> None:
        self._new = work / "libraries"

    def install(self, wheel: Path, log: Path) -> bool:
        """Unpack the wheel's libraries and prove them, as in `Installer`."""
        shutil.rmtree(self._new, ignore_errors=True)
        self._new.mkdir(mode=0o755)
        with zipfile.ZipFile(wheel) as archive:
            for name in archive.namelist():
                if name.startswith("llama_cpp/lib/") and not name.endswith("/"):
                    (self._new / Path(name).name).write_bytes(archive.read(name))
        return _proved(Path(sys.executable), log, {"LLAMA_CPP_LIB_PATH": str(self._new)})

    def keep(self) -> None:
        """Replace the libraries of this installation; running workers keep theirs until they end.

        Of other libraries the newest few are kept, for machines with another processor that share
        this home.
        """
        kept = built.kept()
        kept.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        if kept.exists():  # an interruption must never leave half of the libraries in this place
            kept.rename(self._new.with_name("replaced"))
        others = sorted(kept.parent.iterdir(), key=lambda one: one.stat().st_mtime)
        for other in others[:-_OTHERS]:
            shutil.rmtree(other, ignore_errors=True)
        self._new.rename(kept)


def _proved(python: Path, log: Path, environment: dict[str, str]) -> bool:
    """Whether `python` can load and decode with its llama.cpp; prints to standard error."""
    command = [str(python), "-P", "-m", "localspec.bench.proof"]
    with log.open("a", encoding="utf-8") as errors:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=sys.stderr,
            stderr=errors,
            env=os.environ | environment,
            check=False,
        )
    return done.returncode == 0
