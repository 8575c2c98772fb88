"""How long the threads of a forward spin while they wait for each other."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

ASK = """
import os
import localspec.engine.llama.library
print(os.environ["GOMP_SPINCOUNT"])
"""


@pytest.mark.parametrize("own", [None, "77"])
def test_threads_do_not_spin_for_long_unless_the_user_wants_it(own: str | None) -> None:
    """Set before libgomp is loaded, which reads it once; a user's own value stays."""
    environment = {key: value for key, value in os.environ.items() if key != "GOMP_SPINCOUNT"}
    if own:
        environment["GOMP_SPINCOUNT"] = own
    result = subprocess.run(
        [sys.executable, "-c", ASK], env=environment, capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == (own or "4000")
