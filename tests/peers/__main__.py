"""`make peer-tests`: runs llama.cpp's own server tests against this daemon.

The tests come from the source of the pinned llama-cpp-python, which stays in a cache. Arguments
are pytest's; without any, all tests run. The exit code is pytest's.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from peers import documented
from peers.differences import AMENDMENTS

TESTS = Path(__file__).resolve().parent.parent
WHERE = Path("tools/server/tests")


def main(source: Path, arguments: Sequence[str]) -> int:
    """Runs the tests on a copy of `source`, the unpacked part of llama.cpp."""
    with tempfile.TemporaryDirectory(prefix="peer-tests-") as folder:
        root = Path(folder)
        shutil.copytree(source, root / "llama.cpp")
        tests = root / "llama.cpp" / WHERE
        if fields := documented.unknown(root / "llama.cpp"):
            sys.stderr.write(f"neither served nor refused by name: {', '.join(fields)}\n")
            return 1
        amend(tests)
        paths = os.pathsep.join([str(tests), str(TESTS), os.environ.get("PYTHONPATH", "")])
        environment = os.environ | {"PYTHONPATH": paths, "LOCALSPEC_PEER_FOLDER": folder}
        command = [sys.executable, "-m", "pytest", "-p", "peers.plugin", "-p", "no:cacheprovider"]
        command += ["-q", "-rfEX", "--timeout", "300"]
        chosen = [*arguments] or ["unit"]
        return subprocess.run(
            [*command, *chosen], cwd=tests, env=environment, check=False
        ).returncode


def amend(tests: Path) -> None:
    """Edits what depends on an absent model. Raises ValueError if a test has changed."""
    for each in AMENDMENTS:
        path = tests / "unit" / each.file
        text = path.read_text()
        if each.text not in text:
            raise ValueError(f"{each.file} does not say {each.text!r} any more")
        path.write_text(text.replace(each.text, each.instead))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2:]))
