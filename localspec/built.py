"""Finds the llama.cpp that an installation uses: the one it came with, or one compiled here.

`localspec build` compiles llama.cpp with LocalSpec's code for this machine and keeps its libraries
in the user's cache, below a name made from everything that they must fit: the pinned version of
llama-cpp-python, LocalSpec's native code and the processor. An upgrade that changes none of these
finds them again; otherwise the installed ones are used until the next `localspec build`.

Only the standard library is imported: `make` runs this before anything is installed.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.metadata
import importlib.util
import os
import platform
import subprocess
import sys
import tomllib
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent
NATIVE = PACKAGE / "engine" / "native"
"""LocalSpec's code that becomes part of llama.cpp."""
_LLAMA = "llama-cpp-python=="
_NAME_DIGITS = 16


def checkout() -> Path | None:
    """The root of the clone that this code runs from, which `make` installs; None for a package."""
    root = PACKAGE.parent
    return root if (root / "Makefile").exists() and (root / "pyproject.toml").exists() else None


COMMAND = "make install" if checkout() else "localspec build"
"""The command that compiles llama.cpp for this installation, and mends it."""


@functools.cache
def requirement() -> str:
    """The pinned `llama-cpp-python==VERSION`, by the clone or else by the installed package.

    Raises PackageNotFoundError if there is neither.
    """
    named: list[str]
    if (root := checkout()) is not None:
        project = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"]
        named = project["dependencies"]
    else:
        named = importlib.metadata.requires("localspec") or []
    return next(one for one in named if one.startswith(_LLAMA)).partition(";")[0].strip()


def cache() -> Path:
    """The directory of wheels, libraries and other things that were compiled."""
    moved = os.environ.get("XDG_CACHE_HOME")
    return (Path(moved) if moved else Path.home() / ".cache") / "localspec"


@functools.cache
def processor() -> str:
    """The instruction sets of this machine, as its system lists them."""
    cpu = Path("/proc/cpuinfo")
    if cpu.exists():
        lines = cpu.read_text("utf-8", "replace").splitlines()
        return next((one for one in lines if one.startswith(("flags", "Features"))), "")
    if sys.platform == "darwin":
        asked = ["/usr/sbin/sysctl", "-n", "machdep.cpu.brand_string"]
        done = subprocess.run(asked, capture_output=True, text=True, check=False)  # noqa: S603  a program of the system
        return done.stdout.strip()
    return platform.processor()


def digest(*parts: str) -> str:
    """A name that depends on `parts`, the requirement, the native code and this processor."""
    found = hashlib.sha256()
    for part in (requirement(), processor(), platform.machine(), *parts):
        found.update(part.encode() + b"\0")
    for file in sorted(NATIVE.iterdir()):
        found.update(file.read_bytes() + b"\0")
    return found.hexdigest()[:_NAME_DIGITS]


def kept() -> Path:
    """Where `localspec build` keeps the libraries for this installation; it need not exist."""
    return cache() / "libraries" / digest()


def installed() -> Path:
    """The directory of llama.cpp's libraries that this installation uses.

    LLAMA_CPP_LIB_PATH names one for experiments; in a checkout they are those that `make`
    installed. llama_cpp is not imported. Raises ModuleNotFoundError where it is not installed.
    """
    if named := os.environ.get("LLAMA_CPP_LIB_PATH"):
        return Path(named)
    if checkout() is None and _ours(found := kept()):
        return found
    spec = importlib.util.find_spec("llama_cpp")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("llama_cpp")  # the environment is broken, and says so like this
    return Path(spec.origin).parent / "lib"


def _ours(place: Path) -> bool:
    """Whether code from a directory may be run: only this user or root can have put it there."""
    try:
        found = place.stat()
    except OSError:
        return False
    return found.st_uid in {os.getuid(), 0} and not found.st_mode & 0o022
