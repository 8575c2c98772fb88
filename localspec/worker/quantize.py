"""Requantizes a model in a process of its own.

`python -m localspec.worker.quantize SOURCE DESTINATION`: native code may crash on a malformed file.
Standard output carries one JSON object, a `Result` or a `Failure`; llama.cpp writes to standard
error.
"""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

import msgspec

from localspec.errors import LocalSpecError
from localspec.worker.process import die_with_parent


class Result(msgspec.Struct, frozen=True, tag="result"):
    """Decoding speed of both files, one token at a time; None where not measured."""

    tokens_per_second_before: float | None = None
    tokens_per_second_after: float | None = None


class Failure(msgspec.Struct, frozen=True, tag="failure"):
    """The error in place of a result. `code` is one of `errors.py`."""

    code: str
    message: str
    fix: str = ""


def main() -> int:
    """Quantize, measure, write the result; the exit code is 0 or 1."""
    parser = argparse.ArgumentParser(prog="python -m localspec.worker.quantize")
    parser.add_argument("source", type=Path)
    parser.add_argument("destination", type=Path)
    parser.add_argument("--kind", default="q4_0")
    parser.add_argument("--threads", type=int, default=0)
    parser.add_argument("--measure", action="store_true")
    asked = parser.parse_args()
    die_with_parent()  # without its parent the result has no use
    # Native code may print to descriptor 1, so the answer gets a descriptor of its own.
    answer = os.fdopen(os.dup(1), "wb")
    os.umask(0o022)  # native code creates the model with the mode that this leaves
    os.dup2(2, 1)
    try:
        said: Result | Failure = _run(asked)
    except LocalSpecError as error:
        said = Failure(error.code, error.message, error.fix)
    with answer:
        answer.write(msgspec.json.encode(said))
    return isinstance(said, Failure)


def _run(asked: argparse.Namespace) -> Result:
    # Imported late: --help and bad arguments need no native library.
    from localspec.engine.llama.quantize import measure_decode, quantize  # noqa: PLC0415 - see above

    quantize(asked.source, asked.destination, kind=asked.kind, threads=asked.threads)
    if not asked.measure:
        return Result()
    before = measure_decode(asked.source, threads=asked.threads)
    return Result(before, measure_decode(asked.destination, threads=asked.threads))


if __name__ == "__main__":
    sys.exit(main())
