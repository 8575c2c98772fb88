"""Whether a build of llama.cpp works: `python -m localspec.bench.proof`, which `make` runs.

A pair of tiny random models is loaded in a real worker process, once without offloading and once
for each device that llama.cpp offloads to. The worker answers with forwards of one row and of
several, drafts and rollback. Its logits must be finite, and must agree between forwards of one row
and of several and between devices. A faulty build may import well and die only in a process with
other libraries; each trial runs in a process of its own, whose death is seen as a signal.
"""

from __future__ import annotations

import contextlib
import math
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, Literal, Self, TypeVar

import msgspec

from localspec.bench import kernels, native, shapes
from localspec.config import Cache, Config, Engine, Placement
from localspec.errors import EngineError, LocalSpecError
from localspec.types import SamplingParams, SpeculationParams
from localspec.wire import frames
from localspec.wire.messages import (
    Command,
    Event,
    Failed,
    Finished,
    Generate,
    Load,
    Quit,
    Ready,
    Refused,
    Replay,
    Replayed,
)

_PROMPT = "The quick brown fox jumps over the lazy dog, and the dog does not mind. " * 3
_TEXT = "Pack my box with five dozen liquor jugs."
_TOKENS = 12
_CONTEXT = 512
_TOLERANCE = 0.25
"""Largest difference of logits between kernels; the largest logit is about 3 above the mean."""
_PATIENCE_SECONDS = 120.0
_LAST_LINES = 12

_E = TypeVar("_E", bound=Event)


class Device(msgspec.Struct, frozen=True):
    """A device, as `engine/llama/devices.py` lists it."""

    name: str
    description: str
    kind: Literal["cpu", "gpu", "igpu", "accel", "meta"]
    id: str
    free_bytes: int
    total_bytes: int


class Build(msgspec.Struct, frozen=True):
    """A build of llama.cpp: its own description, its devices, and a fault of its library.

    `exported_runtime` is that of `engine/llama/devices.py`.
    """

    llama: str
    devices: list[Device]
    exported_runtime: str = ""

    @property
    def flaw(self) -> str:
        """A sentence about a fault that trials may not show; empty if there is none."""
        if not self.exported_runtime:
            return ""
        return (
            f"{self.exported_runtime} exports a C++ runtime of its own; in a process with other "
            "libraries that may crash."
        )

    @property
    def offloading(self) -> list[Device]:
        """The devices that take layers, in the order of `tensor_split`.

        As in llama.cpp, each card counts once, and integrated GPUs count only without others.
        """
        cards: dict[str, Device] = {}
        for device in self.devices:
            if device.kind == "gpu":
                cards.setdefault(device.id or device.name, device)
        return list(cards.values()) or [one for one in self.devices if one.kind == "igpu"]


class Trial(msgspec.Struct, frozen=True):
    """The result of one worker on one device, or of our kernels.

    `failure` is a sentence, empty where everything went well; `said` then describes the success.
    """

    device: str
    seconds: float
    failure: str = ""
    last_words: list[str] = []
    said: str = "loads and decodes"


class Logits(msgspec.Struct, frozen=True):
    """The numbers of a text, read in one forward, that are compared.

    `gaps` and `margins` are those of `Replayed`. `first` is the first margin again, from a forward
    of one row.
    """

    gaps: list[float]
    margins: list[float]
    first: float


def inspect() -> Build:
    """Inspect the installed build in a process of its own. Raises EngineError."""
    return native.ask(Build, "microbench.devices")


def trials(build: Build) -> Iterator[Trial]:
    """Run the trials: our own kernels, then without offloading, then each device that takes layers.

    If the build has a flaw, which trials may not show, a failed trial comes first.
    """
    if build.flaw:
        yield Trial("build", 0.0, build.flaw)
    yield _kernels()
    cards = build.offloading
    shares = [tuple(float(one is card) for one in cards) for card in cards]
    placements = [("CPU", Placement(gpu_layers=0))]
    placements += [
        (card.name, Placement(tensor_split=share if len(cards) > 1 else ()))
        for card, share in zip(cards, shares, strict=True)
    ]
    with tempfile.TemporaryDirectory(prefix="localspec-") as folder:
        target = shapes.write(Path(folder) / "target.gguf", shapes.SHAPES["tiny"], "q4_k_m")
        draft = shapes.write(Path(folder) / "draft.gguf", shapes.SHAPES["tiny"], "q4_0")
        expected: Logits | None = None
        for device, placement in placements:
            engine = Engine(
                slots=2,
                context=_CONTEXT,
                prefill_rows=64,
                exactness="standard",
                target=placement,
                draft=placement,
            )
            kept = Cache(memory_bytes=0, disk_bytes=0)  # a proof leaves nothing in the user's home
            settings = Config(engine=engine, cache=kept)
            load = Load("proof", str(target), str(draft), settings)
            began = time.monotonic()
            failure, words = "", []
            with _Worker(Path(folder)) as worker:
                try:
                    found = _answers(worker, load)
                    compare(found, expected)
                    expected = expected or found
                except EngineError as error:
                    failure, words = error.message, worker.last_words()
            yield Trial(device, time.monotonic() - began, failure, words)


def _kernels() -> Trial:
    """Check that our kernels were compiled well: each row has the bits that it has alone."""
    began = time.monotonic()
    try:
        tried = kernels.tried()
    except EngineError as error:
        return Trial("kernels", time.monotonic() - began, error.message)
    return Trial("kernels", time.monotonic() - began, tried.failure, said=str(tried))


def _answers(worker: _Worker, load: Load) -> Logits:
    """Load the pair, let it draft and verify, and read a text. Raises EngineError."""
    ready = worker.ask("loading", load, Ready)
    offloaded = load.config.engine.target.gpu_layers != 0
    if offloaded and not any(_is_device(held.device) for held in ready.devices):
        raise EngineError("no layer reached it.")
    worker.ask("decoding", _request("1"), Finished)
    several = worker.ask("reading several rows", Replay(_request("2"), _TEXT), Replayed)
    one = worker.ask("reading one row", Replay(_request("3"), ""), Replayed)
    worker.quit()
    return Logits(several.gaps, several.margins, one.after.gap)


def _is_device(buffer: str) -> bool:
    """Whether a buffer of this name lies in a device's own memory."""
    return not buffer.startswith(("CPU", "AMX")) and "Host" not in buffer


def compare(found: Logits, expected: Logits | None) -> None:
    """Compare logits. Raises EngineError for NaN, and for differences beyond the bounds."""
    numbers = [*found.gaps, *found.margins, found.first]
    if not all(map(math.isfinite, numbers)):
        raise EngineError("its logits are not finite.")
    apart = abs(found.margins[0] - found.first)
    if apart > _TOLERANCE:
        raise EngineError(f"a forward of one row and one of several differ by {apart:.2f}.")
    if expected is not None:
        others = [*expected.gaps, *expected.margins, expected.first]
        apart = max(abs(mine - other) for mine, other in zip(numbers, others, strict=True))
        if apart > _TOLERANCE:
            raise EngineError(f"its logits differ from the CPU's by {apart:.2f}.")


def _request(id_: str) -> Generate:
    return Generate(
        id=id_,
        endpoint="completion",
        client="proof",
        sampling=SamplingParams(temperature=0),
        speculation=SpeculationParams(mode="always"),
        max_tokens=_TOKENS,
        prompt=_PROMPT,
        ignore_eos=True,
    )


class _Worker:
    """A worker process and our end of its socket. It blocks, and does one thing at a time."""

    def __init__(self, cache: Path) -> None:
        ours, theirs = socket.socketpair()
        self._socket = ours
        self._stderr: BinaryIO = tempfile.TemporaryFile()  # noqa: SIM115 - closed in __exit__
        with theirs:
            self._process = subprocess.Popen(  # noqa: S603 - our own module and interpreter
                [sys.executable, "-P", "-m", "localspec.worker", "--fd", str(theirs.fileno())],
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=self._stderr,
                stderr=self._stderr,
                env=os.environ | {"XDG_CACHE_HOME": str(cache)},
            )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()
        self._process.kill()
        self._process.wait()
        self._stderr.close()

    def ask(self, doing: str, command: Command, answer: type[_E]) -> _E:
        """Send `command` and return the first event of type `answer`. Raises EngineError."""
        deadline = time.monotonic() + _PATIENCE_SECONDS
        try:
            self._socket.sendall(frames.pack(command))
            while True:
                event = self._receive(deadline)
                if isinstance(event, answer):
                    return event
                if isinstance(event, Refused | Failed):
                    raise EngineError(f"{doing} failed: {event.message}")
        except TimeoutError:
            raise EngineError(f"{doing} took more than {_PATIENCE_SECONDS:g} s.") from None
        except OSError:  # the worker ended before it read the command, or while it answered
            raise EngineError(f"the worker {self._ending()} while {doing}.") from None

    def quit(self) -> None:
        """Shut the worker down. Raises EngineError if it ends with an error, or not at all."""
        with contextlib.suppress(OSError):  # it has ended already, and `_ending` tells how
            self._socket.sendall(frames.pack(Quit()))
        ending = self._ending()
        if self._process.returncode != 0:  # None of one that stays
            raise EngineError(f"the worker {ending} when it was to leave.")

    def last_words(self) -> list[str]:
        """End the worker if it still runs, and return the last lines it wrote."""
        self._process.kill()
        self._process.wait()
        self._stderr.seek(0)
        return self._stderr.read().decode("utf-8", "replace").splitlines()[-_LAST_LINES:]

    def _receive(self, deadline: float) -> Event:
        return frames.event(
            self._read(frames.body_bytes(self._read(frames.HEADER_BYTES, deadline)), deadline)
        )

    def _read(self, count: int, deadline: float) -> bytes:
        data = b""
        while len(data) < count:
            self._socket.settimeout(max(0.001, deadline - time.monotonic()))
            more = self._socket.recv(count - len(data))
            if not more:
                raise ConnectionError
            data += more
        return data

    def _ending(self) -> str:
        """Wait for the worker's end, and describe it in words."""
        try:
            return native.ending(self._process.wait(_PATIENCE_SECONDS))
        except subprocess.TimeoutExpired:
            return "closed its channel and stayed"


def main() -> int:
    """Print the result for each device; the exit code is 0 only if all went well.

    The last words of a worker that failed go to standard error.
    """
    failed = False
    try:
        for trial in trials(inspect()):
            said = trial.failure or f"{trial.said}, {trial.seconds:.1f} s"
            print(f"{trial.device}: {said}", flush=True)  # noqa: T201 - a program of its own
            for line in trial.last_words:
                print(f"    {line}", file=sys.stderr, flush=True)  # noqa: T201 - the same
            failed = failed or bool(trial.failure)
    except LocalSpecError as error:
        print(error)  # noqa: T201 - the same
        failed = True
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
