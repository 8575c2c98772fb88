"""Makes the INT4 draft: llama.cpp requantizes a model in a process of its own."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import msgspec

from localspec import errors, paths
from localspec.catalog import header, pairing
from localspec.catalog.header import Header
from localspec.catalog.memory import show_bytes
from localspec.catalog.reader import Tensor
from localspec.catalog.transfer import Report, Step
from localspec.errors import DiskFull, EngineError, PullError

KINDS = {"q4_0": (32, 18)}
"""Types to convert to, with the elements and bytes of a block."""
_LOOK_SECONDS = 0.2


class Quantized(msgspec.Struct, frozen=True):
    """The result of requantizing. Speeds are those of one-token decoding, if measured."""

    path: Path
    bytes_before: int
    bytes_after: int
    tokens_per_second_before: float | None = None
    tokens_per_second_after: float | None = None

    def __str__(self) -> str:
        said = f"{show_bytes(self.bytes_after)} instead of {show_bytes(self.bytes_before)}"
        if self.tokens_per_second_before and self.tokens_per_second_after:
            gain = self.tokens_per_second_after / self.tokens_per_second_before
            said += (
                f", {self.tokens_per_second_after:.1f} tokens/s instead of "
                f"{self.tokens_per_second_before:.1f} ({gain:.1f} times)"
            )
        return said


def quantize(  # noqa: PLR0913 - six facts of one job, all but two of them by name
    source: Path,
    destination: Path,
    on_progress: Report,
    *,
    kind: str = "q4_0",
    threads: int = 0,
    measure: bool = True,
) -> Quantized:
    """Write `source` with every matrix as `kind` to `destination`, replacing it when complete.

    The new file has passed the header checks of any model and has the same tokens. The caller holds
    `locks.building`. Raises BadGGUF, ModelError, EngineError, DiskFull, PullError.
    """
    before = header.read(source)
    expected_bytes = _expected_bytes(before, kind)
    _check_room(destination, expected_bytes)
    with paths.beside(destination) as temporary:
        command = [sys.executable, "-P", "-m", "localspec.worker.quantize"]
        command += [str(source), str(temporary), f"--kind={kind}", f"--threads={threads}"]
        command += ["--measure"] * measure

        def look() -> None:
            done = temporary.stat().st_size if temporary.exists() else 0
            full = done >= expected_bytes
            stage: Any = "measuring" if full and measure else "quantizing"
            on_progress(Step(destination.stem, stage, min(done, expected_bytes), expected_bytes))

        said = _run(command, look)
        after = header.read(temporary)
        pairing.check(before, after).demand_same_tokens()
        _place(temporary, destination)
    return Quantized(
        destination,
        before.file_bytes,
        after.file_bytes,
        said.get("tokens_per_second_before"),
        said.get("tokens_per_second_after"),
    )


def _expected_bytes(source: Header, kind: str) -> int:
    block_elements, block_bytes = KINDS[kind]

    def size(tensor: Tensor) -> int:
        if len(tensor.shape) > 1 and not tensor.shape[0] % block_elements:
            return tensor.num_elements // block_elements * block_bytes
        return tensor.num_bytes

    return source.file_bytes - source.weight_bytes + sum(map(size, source.tensors))


def _check_room(destination: Path, needed_bytes: int) -> None:
    free = shutil.disk_usage(destination.parent).free
    if needed_bytes > free:
        raise DiskFull(
            f"{destination.name} needs {show_bytes(needed_bytes)}; "
            f"{destination.parent} has {show_bytes(free)} free.",
            fix="Make room and run the same command again.",
        )


def _place(temporary: Path, destination: Path) -> None:
    try:
        with temporary.open("rb") as file:
            os.fsync(file.fileno())
        temporary.replace(destination)
    except OSError as error:
        raise PullError(f"{destination} cannot be written: {error.strerror}.") from error


def _run(command: list[str], look: Any) -> dict[str, Any]:
    """The result that the worker wrote; raises the error it wrote, or EngineError if it died."""
    with tempfile.TemporaryFile() as log:
        with subprocess.Popen(  # noqa: S603 - our own module in our own interpreter
            command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=log
        ) as process:
            try:
                while process.poll() is None:
                    look()
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        process.wait(_LOOK_SECONDS)
                out, _ = process.communicate()
            finally:
                process.kill()  # a no-op for one that has ended
        log.seek(0)
        tail = log.read().decode("utf-8", "replace").strip().rpartition("\n")[2]
    try:
        said: dict[str, Any] = msgspec.json.decode(out, type=dict[str, Any])
    except msgspec.DecodeError:
        raise EngineError(f"The quantizer {_ending(process.returncode)}: {tail[:300]}") from None
    if said.pop("type") == "failure":
        raise errors.by_code(said["code"])(said["message"], fix=said["fix"])
    return said


def _ending(code: int) -> str:
    return f"was ended by {signal.Signals(-code).name}" if code < 0 else f"ended with {code}"
