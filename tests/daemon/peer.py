"""A worker that follows a script: it speaks the real frames and really crashes, hangs and waits.

How it loads is decided by the model's name, what it answers by the first word of the prompt:

| model | loading |
| --- | --- |
| refused... | says Refused and leaves |
| mortal... | dies of SIGILL, unless it was told to use safe kernels |
| doomed... | always dies of SIGILL |
| stopped... | dies of SIGUSR1, which is no fault of the worker |
| hungry... | aborts for want of memory, unless it was told to plan for less |
| hunted... | dies of SIGKILL, as often as the file .shots beside the model has bytes |
| gated... | reports 42 %, then waits until the FIFO beside the model is opened |
| brittle... | is ready at once, and dies of SIGSEGV of every request |
| anything else | is ready at once |

| prompt | answer |
| --- | --- |
| say a b c | one delta per word |
| wait | one delta, then silence until it is cancelled; on a later worker 16 tokens before that |
| die a b c | one delta, then SIGKILL, until no word is left |
| cancelled | how many requests were cancelled so far |
| clock | when it says so, in nanoseconds of the clock that all processes here share |
| crash | one delta, then SIGSEGV |
| leave | exit code 0 without a goodbye |
| fail | Failed: the prompt does not fit the context |
| rubbish | bytes that are no frame |
"""

from __future__ import annotations

import argparse
import os
import select
import signal
import socket
import sys
import time
from pathlib import Path

from localspec.types import FinishReason, SourceCount
from localspec.wire import frames
from localspec.wire.messages import (
    Cancel,
    Command,
    Delta,
    DeviceMemory,
    Event,
    Failed,
    Finished,
    Fork,
    Generate,
    Goodbye,
    Heartbeat,
    Load,
    Progress,
    Quit,
    Ready,
    Refused,
    Replay,
    Replayed,
    SpeculationReport,
    Started,
    Trace,
)
from localspec.wire.values import Timings, Usage
from localspec_daemon.supervisor.suspects import TRIAL_TOKENS


class Peer:
    """One scripted worker on one connection."""

    def __init__(self, connection: socket.socket) -> None:
        self.connection = connection
        self.running: dict[str, Generate] = {}
        self.brittle = False
        self.cancelled = 0
        self.steps = 0

    def run(self) -> None:
        """Obeys commands until the supervisor quits or disconnects."""
        load = self.receive()
        assert isinstance(load, Load)
        self.load(load)
        self.brittle = load.model.startswith("brittle")
        while True:
            match self.receive():
                case Generate() as request:
                    self.running[request.id] = request
                    self.beat()  # before the answer: who has read that hears nothing later
                    self.answer(request)
                    if request.id in self.running:
                        continue
                case Replay() as asked:
                    self.replay(asked)
                case Cancel(id=id_) if id_ in self.running:
                    self.cancelled += 1
                    self.finish(self.running[id_], "cancelled", 1)
                case Quit():
                    self.send(Goodbye())
                    return
                case _:
                    pass
            self.beat()

    def load(self, load: Load) -> None:
        """Behaves as the model's name demands."""
        self.send(Progress("target", 0.0))
        if load.model.startswith("refused"):
            self.send(Refused("bad_gguf", "this file is a joke.", "Laugh."))
            sys.exit(0)
        mortal = load.model.startswith("mortal") and not load.safe_kernels
        if mortal or load.model.startswith("doomed"):
            sys.stderr.write("illegal instruction in a kernel\n")
            os.kill(os.getpid(), signal.SIGILL)
        if load.model.startswith("hungry") and load.smaller < 2:
            sys.stderr.write("failed to allocate buffer of size 42\n")  # as llama.cpp does it
            os.kill(os.getpid(), signal.SIGABRT)
        if load.model.startswith("stopped"):
            os.kill(os.getpid(), signal.SIGUSR1)
        if load.model.startswith("hunted"):
            self.hunted(load.target_path + ".shots")
        if load.model.startswith("gated"):
            self.send(Progress("target", 0.42))
            self.wait_at(load.target_path + ".fifo")
        self.send(ready(load))
        self.beat()

    def hunted(self, shots: str) -> None:
        """Dies of SIGKILL for as many loads as the file has bytes."""
        left = Path(shots).read_bytes()
        Path(shots).write_bytes(left[1:])
        if left:
            os.kill(os.getpid(), signal.SIGKILL)

    def wait_at(self, fifo: str) -> None:
        """Waits until the FIFO was opened and closed, or for a command of the supervisor."""
        gate = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
        select.select([gate, self.connection.fileno()], [], [])
        os.close(gate)

    def answer(self, request: Generate) -> None:
        """Behaves as the first word of the prompt demands."""
        text = request.prompt or "".join(
            message.content for message in request.messages or () if message.role == "user"
        )
        word, *words = text.split() or [""]
        if word == "fail":
            details: dict[str, int | str] = {"n_prompt_tokens": 9000, "n_ctx": 8192}
            code = "context_length_exceeded"
            self.send(Failed(request.id, code, "too long.", "Shorten it.", "messages", details))
            del self.running[request.id]
            return
        self.send(Started(request.id, len(text), 2))
        if word == "cancelled":
            words = [str(self.cancelled)]
        if word == "clock":
            words = [str(time.monotonic_ns())]
        if word == "rubbish":
            self.connection.sendall(b"\x00\x00\x00\x03abc")
            return
        if word == "leave":
            os._exit(0)
        said = len(request.so_far.tokens) if request.so_far else 0
        if word in {"wait", "crash"} and not said:
            self.delta(request, f"{word}ing")
        elif word == "wait":
            self.delta(request, "", TRIAL_TOKENS)
        if word == "crash" or self.brittle:
            os.kill(os.getpid(), signal.SIGSEGV)
        if word != "wait":
            self.speak(request, words, said, mortal=word == "die")

    def speak(self, request: Generate, words: list[str], said: int, *, mortal: bool) -> None:
        """Sends the remaining words, or a single one before death."""
        for each in words[said:]:
            self.delta(request, each)
            if mortal and each is not words[-1]:
                os.kill(os.getpid(), signal.SIGKILL)
        self.finish(request, "stop", len(words))

    def replay(self, asked: Replay) -> None:
        """Sends one made-up figure for each word of the text."""
        if asked.request.prompt == "crash":
            os.kill(os.getpid(), signal.SIGSEGV)
        count = len(asked.text.split())
        lookup = Trace(True, [1] * count, [0.5] * count)
        after = Fork((asked.client, "other"), 0.25)
        figures = [0.5] * count
        self.send(Replayed(asked.id, 10, 2, count, 24, figures, figures, after, {"lookup": lookup}))

    def delta(self, request: Generate, text: str, tokens: int = 1) -> None:
        """Returns the event of one step."""
        self.steps += 1
        origin = "lookup" if self.steps % 2 else "target"
        decided = [self.steps] * tokens
        origins = [(len(text), origin)]
        sources = [origin] * tokens
        self.send(Delta(request.id, text, decided, origins, decided=decided, decided_by=sources))

    def finish(self, request: Generate, reason: FinishReason, count: int) -> None:
        """Returns the last event; its figures are made up, but consistent."""
        del self.running[request.id]
        sources = {
            "lookup": SourceCount(4, 3, [2, 2], [2, 1]),
            "model": SourceCount(2, 1, [2], [1]),
        }
        report = SpeculationReport(
            "speculating", "coupled", 3, 6, 4, sources, 0.01, 0.2, 0.001, 0.05
        )
        timings = Timings(2, 8, 50.0, 6.25, 160.0, count, 200.0, 20.0, 50.0, 6, 4)
        usage = Usage(10, count, 2)
        seed = request.sampling.seed
        self.send(Finished(request.id, reason, usage, timings, report, seed))

    def beat(self) -> None:
        """Sends heartbeats."""
        active = len(self.running)
        self.send(
            Heartbeat(
                self.steps, active, 0, 10, 3, {"lookup": 4}, {"lookup": 3}, {"speculating": 1},
                50.0, {1: 20.0, 4: 60.0}, {"model": 4.0}, 0.25,
            )
        )  # fmt: skip

    def send(self, event: Event) -> None:
        """Writes one frame."""
        self.connection.sendall(frames.pack(event))

    def receive(self) -> Command:
        """Reads one frame; exits when the supervisor has gone."""
        header = self.read(frames.HEADER_BYTES)
        return frames.command(self.read(frames.body_bytes(header)))

    def read(self, count: int) -> bytes:
        """Reads exactly this many bytes."""
        data = self.connection.recv(count, socket.MSG_WAITALL)
        if len(data) < count:
            os._exit(1)
        return data


def ready(load: Load) -> Ready:
    """Returns the event of a worker that supports everything."""
    return Ready(
        model=load.model,
        target_path=load.target_path,
        draft_path=load.draft_path,
        n_vocab=100,
        context=8192,
        context_train=32768,
        parameters=1_500_000_000,
        size_bytes=1_000_000_000,
        drafters=["lookup"],
        speculation_off=None,
        exactness="standard",
        exactness_detail="1, 2 and 4 rows agree",
        safe_kernels=load.safe_kernels,
        llama_build="scripted",
        devices=[DeviceMemory("CPU", "weights", 1_000_000_000)],
        load_seconds=0.5,
    )


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--fd", type=int, required=True)
    Peer(socket.socket(fileno=parser.parse_args().fd)).run()
