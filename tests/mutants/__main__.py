"""`make mutants`: each planted mistake is made in a copy of the project, and must be noticed.

Arguments choose mutants by words of their names; without any, all are tried. First the tests have
to pass without a mistake: a test that fails anyway notices nothing.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from mutants.catalogue import MUTANTS
from mutants.mutant import REPOSITORY, Mutant

LIMIT_SECONDS = 600.0
"""A mistake may make the code go round for ever, which is noticed as well."""


def main(words: Sequence[str]) -> int:
    """Try the chosen mutants; the number that no test noticed."""
    chosen = [each for each in MUTANTS if all(word in each.what for word in words)]
    if faults := [fault for each in chosen for fault in each.faults()]:
        show("\n".join(faults))
        return len(faults)
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder:
        root = copied(Path(folder))
        tests = sorted({test for each in chosen for test in each.tests})
        if not passes(root, tests, first_failure=False):
            show("the tests fail without any mistake")
            return 1
        missed = []
        for number, each in enumerate(chosen, start=1):
            began = time.monotonic()
            with planted(root, each):
                noticed = not passes(root, each.tests)
            seconds = time.monotonic() - began
            word = "noticed" if noticed else "MISSED "
            show(f"{number:3}/{len(chosen)} {word} {seconds:5.1f} s  {each.what}")
            missed += [] if noticed else [each.what]
    show(f"{len(chosen) - len(missed)} of {len(chosen)} were noticed")
    return len(missed)


def show(text: str) -> None:
    """Print a line of progress."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def copied(folder: Path) -> Path:
    """The project as it is here, committed or not, but for what git ignores."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=REPOSITORY, capture_output=True, check=True,
    )  # fmt: skip
    for name in filter(None, listed.stdout.decode().split("\0")):
        if (REPOSITORY / name).is_file():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(REPOSITORY / name, folder / name)
    byte_code = ["-m", "compileall", "-q", "--invalidation-mode", "checked-hash"]
    subprocess.run([sys.executable, *byte_code, str(folder)], check=True)
    return folder


@contextmanager
def planted(root: Path, mutant: Mutant) -> Iterator[None]:
    """The mistake is there."""
    path = root / mutant.file
    whole = path.read_text(encoding="utf-8")
    path.write_text(whole.replace(mutant.old, mutant.new), encoding="utf-8")
    try:
        yield
    finally:
        path.write_text(whole, encoding="utf-8")


def passes(root: Path, tests: Sequence[str], *, first_failure: bool = True) -> bool:
    """Whether these tests pass there. New byte code is not kept: it is known by whole seconds."""
    environment = os.environ | {
        "PYTHONPATH": os.pathsep.join([str(root), str(root / "daemon")]),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    pytest = [sys.executable, "-m", "pytest", "-q", "--no-header", "-p", "no:cacheprovider"]
    stop = ["-x", "--hypothesis-profile=impatient"] if first_failure else []
    try:
        done = subprocess.run(
            [*pytest, *stop, *(f"tests/{test}" for test in tests)],
            cwd=root, env=environment, capture_output=True, text=True, check=False,
            timeout=LIMIT_SECONDS if first_failure else None,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return False
    if not first_failure and done.returncode:
        show(done.stdout[-3000:])
    if done.returncode not in {0, 1, 2}:  # passed, failed, or not even imported
        raise SystemExit(f"pytest ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    return done.returncode == 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
