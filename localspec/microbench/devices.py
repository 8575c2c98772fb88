"""Describes the installed build of llama.cpp: `python -m localspec.microbench.devices`.

A broken build or driver crashes only this process. Standard output carries one JSON object, the
`Build` of `bench/proof.py`.
"""

from __future__ import annotations

import os
import sys

import msgspec


def main() -> int:
    """Write the description; returns the exit code."""
    # Native code may print to descriptor 1 at any time; our answer gets a descriptor of its own.
    answer = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    from localspec.engine.llama import devices, library  # noqa: PLC0415 - it loads what may print or die

    with answer:
        found = {
            "llama": library.build_info(),
            "devices": devices.listed(),
            "exported_runtime": devices.exported_runtime(),
        }
        answer.write(msgspec.json.encode(found))
    return 0


if __name__ == "__main__":
    sys.exit(main())
