"""The builds of llama.cpp on which the laws of our kernels are tried."""

from __future__ import annotations

import os
from pathlib import Path

from localspec.engine.products import installed

TESTS = Path(__file__).resolve().parent.parent
BUILDS = [installed(), *map(Path, filter(None, os.environ.get("LOCALSPEC_BUILDS", "").split(":")))]
"""This machine's own, and those that `make kernels` compiled."""
