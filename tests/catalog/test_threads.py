"""Several threads may read the catalog at once, also for a daemon's first requests."""

from __future__ import annotations

import subprocess
import sys

FIRST_USE = """
import importlib, sys, threading

sys.setswitchinterval(1e-6)
found = importlib.import_module("localspec.catalog.entries")
for _ in range(80):
    importlib.reload(found)
    start = threading.Barrier(4)

    def use():
        start.wait()
        found._catalog()

    threads = [threading.Thread(target=use) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
"""


def test_threads_may_be_the_first_to_read_the_catalog() -> None:
    """The interpreter does not crash."""
    command = [sys.executable, "-c", FIRST_USE]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
