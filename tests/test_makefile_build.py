"""The Makefile's promises about llama.cpp: backends, proofs, cures, what enters the cache.

Compiling takes minutes, so pip and the proof are recorders here: what they are asked, and in which
order, and what follows from a proof that fails. The proof itself is tested where it lives.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from localspec import built

REPOSITORY = Path(__file__).resolve().parent.parent
PIP = """#!/bin/sh
case "$1" in
--version) ;;
download)
    for last; do [ "$before" = -d ] && folder=$last; before=$last; done
    rm -rf llama_cpp_python-0
    mkdir -p llama_cpp_python-0/llama_cpp/lib
    tar -czf "$folder/llama_cpp_python-0.tar.gz" llama_cpp_python-0
    ;;
wheel)
    echo "compile $CMAKE_ARGS" >> asked
    echo "$*" | grep -o 'build-dir=[^ ]*' >> directories
    for last; do [ "$before" = --wheel-dir ] && folder=$last; before=$last; done
    [ -e broken-compiler ] || date > "$folder/llama_cpp_python-0.whl"
    ;;
install) case "$*" in *.whl) echo install >> asked ;; esac ;;
esac
"""
PYTHON = f"""#!/bin/sh
case "$*" in
"-m pip "*) shift 2; exec .venv/bin/pip "$@" ;;
*localspec.bench.proof)
    echo prove >> asked
    verdict=$(head -n 1 verdicts); tail -n +2 verdicts > rest; mv rest verdicts
    echo "CPU: $verdict"
    [ "$verdict" = well ]
    ;;
*) exec {sys.executable} "$@" ;;
esac
"""
SILENT = ("nvidia-smi", "rocminfo", "vulkaninfo")
INSIDE = "-DCMAKE_SHARED_LINKER_FLAGS=-Wl,--exclude-libs,ALL"


@dataclass(frozen=True)
class Clone:
    """A clone with a virtual environment of recorders, on a machine of which we say what it has."""

    root: Path

    def has(self, name: str, script: str = "exit 0") -> None:
        """Put a program on PATH, in front of a real one of that name."""
        self._write(self.root / "programs" / name, f"#!/bin/sh\n{script}\n")

    def recorder(self, name: str, script: str) -> None:
        """A program of the virtual environment."""
        self._write(self.root / ".venv" / "bin" / name, script)

    def _write(self, path: Path, script: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(script)
        path.chmod(0o755)

    def make(
        self, *arguments: str, verdicts: str = "well", umask: int = -1
    ) -> subprocess.CompletedProcess[str]:
        """`make install`; proofs end as `verdicts` says, in this order."""
        (self.root / "verdicts").write_text("\n".join([*verdicts.split(), ""]))
        keep = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("MAKE", "MFLAGS", "CMAKE", "BACKEND", "REMOTE"))
        }
        return subprocess.run(
            ["make", "-s", "install", *arguments],
            cwd=self.root,
            env={
                **keep,
                "PATH": f"{self.root / 'programs'}:{os.environ['PATH']}",
                "XDG_CACHE_HOME": str(self.root / "cache"),
            },
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
            umask=umask,
        )

    def asked(self) -> list[str]:
        """The verbs that the recorders were given since the last call."""
        return [line.split()[0] for line in self._lines("asked")]

    def arguments(self) -> list[str]:
        """CMake's arguments of each compilation since the last call."""
        return [line.removeprefix("compile ") for line in self._lines("asked") if "-D" in line]

    def _lines(self, name: str) -> list[str]:
        path = self.root / name
        lines = path.read_text().splitlines() if path.exists() else []
        path.unlink(missing_ok=True)
        return lines

    def wheels(self) -> list[Path]:
        """The cache."""
        return sorted((self.root / "cache").rglob("*.whl"))


@pytest.fixture
def clone(tmp_path: Path) -> Clone:
    """On a machine without any GPU."""
    for name in ("Makefile", "pyproject.toml"):
        shutil.copy(REPOSITORY / name, tmp_path)
    for name in ("__init__.py", "built.py", "errors.py"):
        place = tmp_path / "localspec"
        place.mkdir(exist_ok=True)
        shutil.copy(REPOSITORY / "localspec" / name, place)
    for name in ("build", "engine/native"):
        shutil.copytree(REPOSITORY / "localspec" / name, tmp_path / "localspec" / name)
    made = Clone(tmp_path)
    made.recorder("pip", PIP)
    made.recorder("python", PYTHON)
    for name in SILENT:
        made.has(name, "exit 1")
    made.has("uname", "echo Linux")
    return made


@pytest.mark.parametrize("umask", [0o000, 0o002, 0o077])
def test_what_a_build_keeps_is_nobody_elses_to_write(clone: Clone, umask: int) -> None:
    """Libraries are loaded from the cache, so the umask does not decide who may put them there."""
    assert clone.make(umask=umask).returncode == 0
    cache = clone.root / "cache"
    found = {path: path.stat().st_mode & 0o777 for path in (cache, *cache.rglob("*"))}
    assert clone.wheels()
    for path, mode in found.items():
        assert not mode & 0o022, (path, oct(mode))
        assert mode & 0o600 == 0o600, (path, oct(mode))


def test_each_wait_of_an_installation_is_announced(clone: Clone) -> None:
    """Fetching, compiling, installing and proving take from seconds to minutes each."""
    words = clone.make().stderr
    announced = ["fetching", "compiling", "installing", "proving", "CPU: well"]
    places = [words.find(word) for word in announced]
    assert -1 not in places
    assert places == sorted(places)


def test_a_wheel_is_proved_before_it_is_kept(clone: Clone) -> None:
    """Compile, install, prove, keep; a second make finds everything done."""
    done = clone.make()
    assert done.returncode == 0, done.stderr
    assert clone.asked() == ["compile", "install", "prove"]
    assert "CPU: well" in done.stderr
    assert len(clone.wheels()) == 1
    assert clone.make().returncode == 0
    assert clone.asked() == []


def test_a_wheel_of_the_cache_is_proved_again(clone: Clone) -> None:
    """A new virtual environment compiles nothing; a wheel that fails now is made anew."""
    clone.make()
    (clone.root / ".venv" / ".installed").unlink()
    clone.asked()
    assert clone.make().returncode == 0
    assert clone.asked() == ["install", "prove"]
    (clone.root / ".venv" / ".installed").unlink()
    done = clone.make(verdicts="badly well")
    assert done.returncode == 0
    assert clone.asked() == ["install", "prove", "compile", "install", "prove"]
    assert "does not work any more" in done.stderr


def test_what_cannot_be_proved_is_made_again_with_a_cure(clone: Clone) -> None:
    """First the libraries are linked anew, in the same directory, so that nothing is recompiled."""
    done = clone.make(verdicts="badly well")
    assert done.returncode == 0, done.stderr
    first, second = clone.arguments()
    assert INSIDE not in first
    assert second.split() == [*first.split(), INSIDE]
    assert len({*(clone.root / "directories").read_text().split()}) == 1
    assert "CPU: badly" in done.stderr
    assert "llama.cpp works with the C++ runtime kept inside" in done.stderr
    assert len(clone.wheels()) == 1


def test_a_gpu_that_does_not_work_is_left_out_last(clone: Clone) -> None:
    """Only where it was found; somebody who asked for it is told instead."""
    clone.has("nvidia-smi")
    clone.has("nvcc")
    done = clone.make(verdicts="badly badly badly badly")
    assert done.returncode != 0
    *others, without, plain = clone.arguments()
    assert all("-DGGML_CUDA=ON" in one and "-DGGML_CUDA=OFF" not in one for one in others)
    assert without.rindex("-DGGML_CUDA=OFF") > without.index("-DGGML_CUDA=ON")
    assert set(without.split()) <= set(plain.split())
    assert "-DGGML_NATIVE=OFF" in plain
    assert clone.make("BACKEND=cuda", verdicts="badly badly badly badly").returncode != 0
    assert not any("-DGGML_CUDA=OFF" in one for one in clone.arguments())


def test_nothing_unproved_enters_the_cache(clone: Clone) -> None:
    """And the message says what is usually missing, and where all of it was written down."""
    done = clone.make(verdicts="badly badly badly badly")
    assert done.returncode != 0
    assert clone.wheels() == []
    assert not (clone.root / ".venv" / ".installed").exists()
    assert "does not work here" in done.stderr
    assert "build-essential" in done.stderr
    assert "llama.log" in done.stderr


def test_a_build_that_does_not_compile_proves_nothing(clone: Clone) -> None:
    """A sentence for each attempt, and no proof of what was installed before."""
    (clone.root / "broken-compiler").touch()
    done = clone.make()
    assert done.returncode != 0
    assert set(clone.asked()) == {"compile"}
    assert "it did not compile" in done.stderr


@pytest.mark.parametrize(
    ("programs", "flag"),
    [
        ({}, "-DGGML_METAL=OFF"),
        ({"nvidia-smi": "", "nvcc": ""}, "-DGGML_CUDA=ON"),
        ({"rocminfo": "echo gfx1100", "hipcc": "", "hipconfig": ""}, "-DGGML_HIP=ON"),
        ({"rocminfo": "echo only a CPU", "hipcc": ""}, "-DGGML_METAL=OFF"),
        ({"vulkaninfo": "echo TYPE_DISCRETE_GPU", "glslc": "", "c++": ""}, "-DGGML_VULKAN=ON"),
        (
            {"vulkaninfo": "echo TYPE_INTEGRATED_GPU", "glslc": "", "c++": "exit 1"},
            "-DGGML_METAL=OFF",
        ),
        ({"vulkaninfo": "echo TYPE_CPU", "glslc": "", "c++": ""}, "-DGGML_METAL=OFF"),
        ({"uname": "echo Darwin", "xcrun": ""}, "-DGGML_METAL=ON"),
        (
            {"nvidia-smi": "", "nvcc": "", "vulkaninfo": "echo TYPE_DISCRETE_GPU", "glslc": ""},
            "-DGGML_CUDA=ON",
        ),
    ],
)
def test_what_is_there_is_found(clone: Clone, programs: dict[str, str], flag: str) -> None:
    """A device that answers and a compiler for it; the first of the table."""
    for name, script in programs.items():
        clone.has(name, script)
    done = clone.make()
    assert done.returncode == 0, done.stderr
    (arguments,) = clone.arguments()
    assert [word for word in arguments.split() if "GGML" in word] == [flag]


def test_a_device_without_its_compiler_is_told(clone: Clone) -> None:
    """It is not used, and what to install is said."""
    clone.has("rocminfo", "echo gfx1100")
    done = clone.make()
    assert "-DGGML_METAL=OFF" in clone.arguments()[0]
    assert "device for hip, and it stays unused" in done.stderr
    assert "ROCm" in done.stderr


@pytest.mark.parametrize(
    ("choice", "word"),
    [
        ("BACKEND=hip", "needs hipcc"),
        ("BACKEND=vulkan", "Vulkan headers"),
        ("BACKEND=voodoo", "is none of"),
    ],
)
def test_a_backend_that_cannot_be_is_a_sentence(clone: Clone, choice: str, word: str) -> None:
    """Before anything is compiled; Vulkan also needs headers that are new enough."""
    clone.has("glslc")
    clone.has("c++", "exit 1")
    done = clone.make(choice)
    assert done.returncode != 0
    assert word in done.stderr
    assert clone.asked() == []


def test_choices_are_remembered_and_changes_compile_anew(clone: Clone) -> None:
    """REMOTE=1 stays until it is taken back; what was compiled before is still in the cache."""
    clone.make()
    assert "RPC" not in clone.arguments()[0]
    clone.make("REMOTE=1", "BACKEND=cpu")
    assert "-DGGML_RPC=ON" in clone.arguments()[0]
    clone.make()
    assert clone.asked() == []
    assert len(clone.wheels()) == 2
    clone.make("REMOTE=", "BACKEND=auto")
    assert clone.asked() == ["install", "prove"]


def test_the_callers_own_arguments_win(clone: Clone) -> None:
    """CMAKE_ARGS come after ours."""
    clone.make("CMAKE_ARGS=-DGGML_METAL=ON")
    assert clone.arguments()[0].split()[-1] == "-DGGML_METAL=ON"


def test_our_own_code_goes_before_the_gpu_does(clone: Clone) -> None:
    """On a CPU that they know our kernels are in the build; a cure includes nothing instead."""
    if not {"avx2", "asimddp"} & set(built.processor().split()):
        pytest.skip("no kernels of ours for this CPU")
    clone.make(verdicts="badly badly badly well")
    first, second, third, fourth = clone.arguments()
    rows = f"-DCMAKE_PROJECT_ggml_INCLUDE={clone.root}/localspec/engine/native/rows.cmake"
    assert rows in first
    assert third == f"{second} -DLLAVA_BUILD=OFF"
    assert fourth == f"{second} -DLOCALSPEC_PLAIN=ON -DCMAKE_PROJECT_ggml_INCLUDE=/dev/null"
