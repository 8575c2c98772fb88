"""A build that is ended, by whatever and whenever, leaves no process and nothing half made."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from pathlib import Path
from typing import TextIO

import pytest
from scripted import PATIENCE_SECONDS

from localspec import built
from localspec.build import backends
from localspec.build.compile import IntoCache, working
from localspec.build.source import program
from localspec.build.toolchain import Toolchain

CPU = Toolchain(backends.chosen("cpu", "c++", lambda _: None))
BUILDS = """
import signal, sys
from pathlib import Path
from localspec.build import backends
from localspec.build.compile import working
from localspec.build.source import watched
from localspec.build.toolchain import Toolchain

log, told, ignored = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3:]
for number in ignored:
    signal.signal(int(number), signal.SIG_IGN)
compiles = f"exec 3> {told}; sleep 600 & echo $! >&3; wait"
try:
    with working(Toolchain(backends.chosen("cpu", "c++", print))):
        watched(["sh", "-c", f"sh -c '{compiles}'; true"], log, {"PATH": "/usr/bin:/bin"})
except KeyboardInterrupt:
    sys.exit(130)
"""
"""Builds with a compiler that starts another one, which would go on for ten minutes."""
SIGNALS = [signal.SIGINT, signal.SIGTERM, signal.SIGHUP]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where builds of this machine are made, in a cache of its own."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return Toolchain(CPU.backend).place


def begun(tmp_path: Path, *ignored: int) -> tuple[subprocess.Popen[bytes], TextIO]:
    """A build in the middle of its compiling; and what names a compiler, to end with them all."""
    told = tmp_path / "told"
    os.mkfifo(told)
    command = [sys.executable, "-c", BUILDS, str(tmp_path / "log"), str(told), *map(str, ignored)]
    process = subprocess.Popen(command, env=os.environ)
    return process, told.open()


@pytest.mark.parametrize("number", SIGNALS)
def test_whoever_ends_a_build_ends_its_compilers(place: Path, tmp_path: Path, number: int) -> None:
    """The exit code is that of every command that is interrupted; its directory is gone."""
    process, compilers = begun(tmp_path)
    with compilers:
        assert int(compilers.readline())
        process.send_signal(number)
        assert process.wait() == 130
        assert not compilers.read()  # until none of them has it open
    assert list(place.iterdir()) == []


def test_a_signal_while_a_compiler_starts_leaves_none_behind() -> None:
    """It comes from the compiler itself, as early as can be, and again for each of a hundred."""
    for _ in range(100):
        reading, writing = os.pipe()
        tells = f"kill -INT {os.getpid()}; exec sleep 600"
        with pytest.raises(KeyboardInterrupt), program(["sh", "-c", tells], pass_fds=(writing,)):
            signal.pause()
        os.close(writing)
        assert select.select([reading], [], [], PATIENCE_SECONDS)[0], "a compiler has it open"
        os.close(reading)


def test_a_signal_that_was_ignored_from_the_start_does_not_end_a_build(
    place: Path, tmp_path: Path
) -> None:
    """As behind nohup."""
    process, compilers = begun(tmp_path, signal.SIGHUP)
    with compilers:
        compiler = int(compilers.readline())
        process.send_signal(signal.SIGHUP)
        os.kill(compiler, signal.SIGTERM)
        assert process.wait() == 0
    assert list(place.iterdir()) == []


def test_a_build_deletes_what_killed_ones_left_and_not_what_others_do(
    place: Path, tmp_path: Path
) -> None:
    """Of other versions and compilers, too; wheels stay."""
    process, compilers = begun(tmp_path)
    with compilers:
        compiler = int(compilers.readline())
        process.kill()
        process.wait()
        os.kill(compiler, signal.SIGKILL)
    old = place.parent / "another" / "work-x"
    old.mkdir(parents=True)
    (place / "made.whl").touch()
    (left,) = place.glob("work-*")
    with working(Toolchain(CPU.backend)) as first, working(Toolchain(CPU.backend)) as second:
        assert {*place.iterdir()} == {first, second, place / "made.whl"}
        assert not old.exists()
        assert left not in {first, second}


def test_libraries_are_replaced_in_one_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whenever that ends, the name holds the old ones, the new ones or nothing, never a half."""
    monkeypatch.setattr(built, "cache", lambda: tmp_path)
    kept, work = built.kept(), tmp_path / "work"
    for directory in (kept, work / "libraries"):
        directory.mkdir(parents=True)
        for name in ("a.so", "b.so"):
            (directory / name).write_text(directory.name)
    seen: list[list[str]] = []

    def look(event: str, _: object) -> None:
        if event in {"os.rename", "os.remove", "os.rmdir"} and watching:
            seen.append(sorted(file.name for file in kept.iterdir()) if kept.exists() else [])

    watching = [True]
    sys.addaudithook(look)
    IntoCache(work).keep()
    watching.clear()
    assert seen
    assert all(names in ([], ["a.so", "b.so"]) for names in seen)
    assert (kept / "a.so").read_text() == "libraries"
