"""Compares how fast prompts are read here and by llama-server: `python -m localspec.bench.reading`.

    python -m localspec.bench.reading MODEL.gguf --server .venv/bin/llama-server --prompts FILE

Both servers run all the time, with homes of their own; llama-server has the flags of
docs/measuring.md and llama.cpp's own kernels. Each prompt is asked of both servers in turns and
read anew: alone, for the time to the first text, and several at a time, for the tokens of all
answers by wall clock. Then the prompts are asked here once more, while they are still cached: in
their slots, and after a restart. Prompts are JSON lines as in Spec-Bench; without a file they are
the suite's summaries and retrievals.
"""

from __future__ import annotations

import argparse
import os
import socket
import statistics
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NamedTuple

from localspec import config, paths
from localspec.bench import readiness, suite
from localspec.bench.arms import Arm, against
from localspec.bench.home import Home
from localspec.bench.measure import ReceivedStream, ask, rotated, until_idle
from localspec.bench.results import Settings
from localspec.bench.suite import Prompt
from localspec.errors import DaemonError, LocalSpecError

LONG = ("rag", "summarization")
ANEW = {"cache_prompt": False}
_PATIENCE_SECONDS = 120
"""A server that has not loaded its model after this long has failed."""


@contextmanager
def llama_server(program: Path, model: Path, streams: int, threads: int) -> Iterator[Arm]:
    """A llama-server with llama.cpp's own kernels, until the `with` ends. Raises DaemonError."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    flags = f"-c 32768 -np {streams} -kvu -t {threads} -b 512 -ub 512 -fa auto --cache-ram 0"
    command = [str(program), "-m", str(model), "--port", str(port), *flags.split()]
    quiet = subprocess.DEVNULL
    environment = os.environ | {"LOCALSPEC_ROWS": "0"}
    process = subprocess.Popen(command, env=environment, stdout=quiet, stderr=quiet)  # noqa: S603
    try:
        arm = against(f"http://127.0.0.1:{port}")
        until = time.monotonic() + _PATIENCE_SECONDS
        while True:
            try:
                ask(arm, _question("Hello"), Settings(max_tokens=1))
            except LocalSpecError as error:
                if process.poll() is not None or time.monotonic() > until:
                    raise DaemonError(f"{program} does not answer: {error}") from error
                time.sleep(readiness.POLL_SECONDS)
            else:
                break
        yield Arm("llama-server", arm.client, ANEW, foreign=True)
    finally:
        process.terminate()
        process.wait()


def _question(text: str) -> list[dict[str, str]]:
    return [{"role": "user", "content": text}]


def _asked(arm: Arm, prompt: Prompt, settings: Settings) -> ReceivedStream:
    return ask(arm, _question(prompt.turns[0]), settings)


class FirstText(NamedTuple):
    """Seconds until the first text arrived, and the number of the prompt's tokens."""

    seconds: float
    tokens: int


def first_texts(arm: Arm, prompts: Sequence[Prompt]) -> list[FirstText]:
    """The time to the first text of each prompt, asked one at a time."""
    brief, found = Settings(max_tokens=4), []
    for prompt in prompts:
        stream = _asked(arm, prompt, brief)
        tokens = stream.end.usage.get("prompt_tokens", 0) if stream.end else 0
        found.append(FirstText((stream.first or stream.ended) - stream.began, tokens))
    return found


def together(arm: Arm, prompts: Sequence[Prompt], settings: Settings) -> tuple[int, float]:
    """Tokens of all answers to prompts asked at the same time, and the seconds until all ended."""
    began = time.perf_counter()
    with ThreadPoolExecutor(len(prompts)) as threads:
        streams = list(threads.map(lambda prompt: _asked(arm, prompt, settings), prompts))
    seconds = time.perf_counter() - began
    ends = (stream.end.usage for stream in streams if stream.end)
    return sum(usage.get("completion_tokens", 0) for usage in ends), seconds


def compare(
    arms: Sequence[Arm], prompts: Sequence[Prompt], streams: int, tokens: int
) -> Iterator[str]:
    """Lines with the figures of each arm, which are asked in turns."""
    firsts: dict[str, list[FirstText]] = {arm.name: [] for arm in arms}
    for at, prompt in enumerate(prompts):
        for arm in _turns(arms, at):
            firsts[arm.name] += first_texts(arm, [prompt])
    for name, texts in firsts.items():
        rate = statistics.median(text.tokens / text.seconds for text in texts)
        yield f"{name}: first text, read anew, {_told(texts)}; {rate:.0f} tokens of prompts/s"
    tokens_of: dict[str, int] = defaultdict(int)
    seconds_of: dict[str, float] = defaultdict(float)
    groups = [prompts[at : at + streams] for at in range(0, len(prompts), streams)]
    for at, group in enumerate(groups):
        for arm in _turns(arms, at):
            told, seconds = together(arm, group, Settings(max_tokens=tokens))
            tokens_of[arm.name] += told
            seconds_of[arm.name] += seconds
    for name, told in tokens_of.items():
        rate = told / seconds_of[name]
        yield f"{name}: {streams} at a time, {rate:.1f} tokens/s ({told} of answers)"


def _turns(arms: Sequence[Arm], first: int) -> Iterator[Arm]:
    for arm in rotated(arms, first):
        until_idle(arm, arms)
        yield arm


def _told(texts: Sequence[FirstText]) -> str:
    seconds = [text.seconds for text in texts]
    return (
        f"{statistics.median(seconds):.2f} s in the median, {min(seconds):.2f} to "
        f"{max(seconds):.2f}"
    )


def kept(home: Home, prompts: Sequence[Prompt]) -> Iterator[str]:
    """Lines with the times of prompts that were read here before."""
    here = Arm("here", home.client)
    first_texts(here, prompts)
    yield f"here: first text of what is kept, {_told(first_texts(here, prompts))}"
    home.localspec("stop")
    home.localspec("start")
    began = time.perf_counter()
    first_texts(here, prompts[:1])
    yield f"here: after a restart, {time.perf_counter() - began:.2f} s with loading the model"
    yield f"here: after a restart, {_told(first_texts(here, prompts[1:]))}"


def main() -> None:
    """As the module says."""
    parser = argparse.ArgumentParser(prog="python -m localspec.bench.reading")
    parser.add_argument("model", type=Path)
    parser.add_argument("--server", type=Path)
    parser.add_argument("--prompts", type=Path)
    parser.add_argument("--slices", default=",".join(LONG))
    parser.add_argument("--limit", type=int, default=8, help="prompts of a slice")
    parser.add_argument("--streams", type=int, default=4)
    parser.add_argument("--tokens", type=int, default=64)
    parser.add_argument("--threads", type=int, default=2)
    asked = parser.parse_args()
    every = suite.spec_bench(asked.prompts) if asked.prompts else suite.builtin()
    prompts = suite.choose(every, asked.slices.split(","), asked.limit)

    def say(line: str) -> None:
        sys.stdout.write(line + "\n")
        sys.stdout.flush()

    say(f"{readiness.machine()}; {len(prompts)} prompts")
    with Home(config.load(paths.config_file())) as home:
        home.localspec("start")
        arms = [Arm("here", home.client, ANEW)]
        readiness.warm(arms, Settings())
        with ExitStack() as servers:
            if asked.server:
                other = llama_server(asked.server, asked.model, asked.streams, asked.threads)
                arms.append(servers.enter_context(other))
            for line in compare(arms, prompts, asked.streams, asked.tokens):
                say(line)
        for line in kept(home, prompts):
            say(line)


if __name__ == "__main__":
    main()
