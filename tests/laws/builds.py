"""The builds of llama.cpp on which the laws of our kernels are tried."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from localspec.engine.products import installed

TESTS = Path(__file__).resolve().parent.parent
BUILDS = [installed(), *map(Path, filter(None, os.environ.get("LOCALSPEC_BUILDS", "").split(":")))]
"""This machine's own, and those that `make kernels` compiled."""


def found_by(peer: str, libraries: Path, *, kernels: bool = True) -> dict[str, Any]:
    """What a peer prints of a build, with our kernels or without."""
    ran = subprocess.run(
        [sys.executable, "-m", peer, str(libraries)],
        env=os.environ | {"LOCALSPEC_ROWS": str(int(kernels)), "PYTHONPATH": str(TESTS)},
        stdout=subprocess.PIPE,
        check=True,
    )
    found: dict[str, Any] = json.loads(ran.stdout)
    return found
