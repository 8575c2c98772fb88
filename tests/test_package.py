"""The promise of a package: installed into an empty environment it works, and can be tuned.

llama.cpp is compiled for minutes, so its libraries are those of this environment, and
`localspec build` takes and proves what `make` left in the cache.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from dataclasses import dataclass
from importlib.metadata import distribution
from pathlib import Path
from urllib.parse import unquote, urlsplit

import msgspec
import pytest

from localspec import built
from localspec.build.compile import IntoCache

REPOSITORY = Path(__file__).resolve().parent.parent
NATIVE = "localspec/engine/native"


@dataclass(frozen=True)
class Package:
    """LocalSpec installed from its wheel, with the dependencies of this environment."""

    root: Path

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return self.root / "venv" / "bin" / "python"

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run `localspec` in an empty home, away from the clone."""
        home = self.root / "home"
        (home / "run").mkdir(parents=True, exist_ok=True, mode=0o700)
        environment = {
            name: value
            for name, value in os.environ.items()
            if not name.startswith(("LOCALSPEC", "XDG", "PYTHON", "LLAMA", "VIRTUAL_ENV"))
        }
        environment |= {"HOME": str(home), "XDG_RUNTIME_DIR": str(home / "run")}
        return subprocess.run(
            [self.python.parent / "localspec", *arguments],
            cwd=home,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=600,
        )


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Package:
    """The wheel, built and installed; dependencies are those of this environment, by links."""
    root = tmp_path_factory.mktemp("package")
    wheel_of = [sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "-w", str(root)]
    subprocess.run([*wheel_of, str(REPOSITORY)], check=True)
    (wheel,) = root.glob("localspec-*.whl")
    venv.create(root / "venv", with_pip=True)
    made = Package(root)
    install = [str(made.python), "-m", "pip", "install", "-q", "--no-deps", str(wheel)]
    subprocess.run(install, check=True)
    asked = [str(made.python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    there = Path(subprocess.run(asked, capture_output=True, text=True, check=True).stdout.strip())
    for package in Path(sysconfig.get_path("purelib")).iterdir():
        if "localspec" not in package.name and not (there / package.name).exists():
            (there / package.name).symlink_to(package)
    return made


def kept_wheel() -> Path:
    """The wheel of llama.cpp that this environment was installed from, in the cache of builds."""
    noted = distribution("llama-cpp-python").read_text("direct_url.json")
    if noted is None:
        pytest.skip("llama.cpp was not compiled by make here")
    came = Path(unquote(urlsplit(msgspec.json.decode(noted)["url"]).path))
    kept = came if came.exists() else came.parent.parent / came.name
    if not kept.exists():
        pytest.skip("the cache of builds is gone")
    return kept


def test_the_package_has_everything(package: Package) -> None:
    """Native code, models, man pages: what a clone has and a command needs."""
    assert package.run("--version").returncode == 0
    searched = package.run("models", "search", "--json")
    assert searched.returncode == 0, searched.stderr
    assert len(msgspec.json.decode(searched.stdout)["catalog"]) > 20
    there = next(package.root.glob(f"venv/lib/python*/site-packages/{NATIVE}"))
    assert {file.name for file in there.iterdir()} == {
        file.name for file in (REPOSITORY / NATIVE).iterdir()
    }


def test_it_says_what_it_lacks_and_builds_it(package: Package) -> None:
    """Doctor names the command, which proves what it compiled; from then on that is used."""
    before = package.run("doctor", "--json")
    said = [one["said"] for one in msgspec.json.decode(before.stdout)]
    assert any("localspec build" in one for one in said)

    wheel = kept_wheel()
    place = package.root / "home/.cache/localspec/wheels" / wheel.parent.name
    place.mkdir(parents=True, exist_ok=True)
    shutil.copy(wheel, place)
    done = package.run("build")
    assert done.returncode == 0, done.stderr
    assert "CPU: loads and decodes" in done.stderr

    (kept,) = (package.root / "home/.cache/localspec/libraries").iterdir()
    assert {file.name for file in kept.iterdir()} >= {"libllama.so", "libggml-base.so"} or (
        sys.platform == "darwin"
    )
    after = package.run("doctor", "--json")
    said = [one["said"] for one in msgspec.json.decode(after.stdout)]
    assert not any("localspec build" in one for one in said)


def test_libraries_that_others_may_write_are_not_used(package: Package) -> None:
    """Libraries of the cache run with the rights of the user, so they must be the user's."""
    libraries = package.root / "home/.cache/localspec/libraries"
    if not libraries.exists():
        pytest.skip("make has left no wheel for this machine")
    (kept,) = libraries.iterdir()
    kept.chmod(0o777)
    said = [one["said"] for one in msgspec.json.decode(package.run("doctor", "--json").stdout)]
    kept.chmod(0o755)
    assert any("localspec build" in one for one in said)


def test_libraries_of_other_machines_that_share_a_home_stay(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last few; those of this one are replaced."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    kept = built.kept()
    for age, name in enumerate(("oldest", "older", "other", "last", kept.name)):
        (kept.parent / name).mkdir(parents=True)
        os.utime(kept.parent / name, (age, age))
    (kept / "old.so").touch()
    work = tmp_path / "work"
    (work / "libraries").mkdir(parents=True)
    (work / "libraries" / "new.so").touch()
    IntoCache(work).keep()
    assert {one.name for one in kept.parent.iterdir()} == {"older", "other", "last", kept.name}
    assert [one.name for one in kept.iterdir()] == ["new.so"]
