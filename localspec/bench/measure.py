"""Runs a measurement: every arm answers every prompt, arms interleaved prompt by prompt.

A machine gets slower and faster by itself within minutes. Arms are therefore compared only over the
same prompt asked within the same minute. The arm that begins rotates, so that neither a drift nor a
cache that an earlier arm has filled always favours the same arm. Another server is asked only while
our daemon has no idle work, which would take processors from it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate
from time import perf_counter, sleep
from typing import Any, TypeAlias, cast

import msgspec

from localspec.bench import results
from localspec.bench.arms import Arm
from localspec.bench.results import Answer, Batch, Settings, Source
from localspec.bench.suite import Prompt
from localspec.client import End, Event, Json, Piece
from localspec.errors import DaemonError, Forbidden, LocalSpecError, NotRunning, RequestError

IDLE_POLL_SECONDS = 1.25
"""Longer than the second between two reports of a worker about its idle work."""
IDLE_PATIENCE_SECONDS = 1800.0
"""In a new home the daemon measures the default pair for five to seven minutes on two cores. With a
patience of 120 the first answer of a llama-server came at 1.6 tokens a second, in place of 26."""
REPLAY_SHARE = 0.5
"""Share of a cached prompt that makes it a replay: the words of a chat template are always cached,
but half of a prompt is not cached by chance."""

Told: TypeAlias = Callable[[int, str], None]
"""Called with the number of conversations that begin now, and with what is asked."""


@dataclass(slots=True)
class ReceivedStream:
    """One stream as it arrived. Times are of `perf_counter`; `end` is None until it has ended.

    `edges` are the places in the text, in characters, where tokens begin and end if the server
    sends origins; otherwise where pieces do.
    """

    text: str = ""
    edges: list[int] = field(default_factory=lambda: [0])
    pieces: int = 0
    began: float = field(default_factory=perf_counter)
    first: float | None = None
    last: float | None = None
    ended: float = 0.0
    end: End | None = None


def ask(arm: Arm, messages: Sequence[Json], settings: Settings) -> ReceivedStream:
    """Ask one question and listen until the answer ends. Raises what `Client.chat` raises."""
    fields: dict[str, Any] = {
        "max_tokens": settings.max_tokens,
        "temperature": settings.temperature,
        "seed": settings.seed,
        **arm.fields,
        "prediction": arm.prediction(messages[-1]["content"]),
    }
    received = ReceivedStream()
    texts: list[str] = []
    try:
        # Closed also after an interrupt, so that the server stops answering at once.
        stream = cast("Generator[Event]", arm.client.chat(messages, **fields))
        with closing(stream) as events:
            for event in events:
                if isinstance(event, Piece):
                    received.last = perf_counter()
                    received.first = received.first or received.last
                    received.pieces += 1
                    texts.append(event.text)
                    sizes = [size for size, _ in event.origins] or [len(event.text)]
                    received.edges += list(accumulate(sizes, initial=received.edges.pop()))
                elif isinstance(event, End):
                    received.end = event
    except LocalSpecError as error:
        raise _named(arm, error) from error
    received.ended = perf_counter()
    received.text = "".join(texts)
    return received


def rotated(arms: Sequence[Arm], first: int) -> Sequence[Arm]:
    """All arms in order, starting with arm number `first` and going round."""
    first %= len(arms)
    return (*arms[first:], *arms[:first])


def until_idle(asked: Arm, arms: Sequence[Arm], tell: Told = lambda _, __: None) -> None:
    """Wait until our daemon is idle if another server is about to be asked.

    Raises DaemonError if our daemon still computes after IDLE_PATIENCE_SECONDS.
    """
    ours = next((arm.client for arm in arms if not arm.foreign), None)
    until = perf_counter() + IDLE_PATIENCE_SECONDS
    while asked.foreign and ours:
        sleep(IDLE_POLL_SECONDS)
        if not any(model.get("idle_work") for model in ours.status().get("models", [])):
            break
        tell(0, f"{asked.name}: waits while the daemon measures for itself")
        if perf_counter() > until:
            raise DaemonError(
                f"The daemon has computed for itself for half an hour, an index perhaps; beside "
                f"that {asked.name} would be slower than it is.",
                fix="Ask again when `localspec status --json` says idle_work false.",
            )


def _named(arm: Arm, error: LocalSpecError) -> LocalSpecError:
    """The error, naming the server in place of our daemon if another server failed."""
    if not arm.foreign or isinstance(error, RequestError):
        return error
    kind = type(error) if isinstance(error, NotRunning | Forbidden) else DaemonError
    return kind(
        f"The server at {arm.name} failed: {error.message}",
        fix="Look at that server's own log, or leave it out of --against.",
    )


def converse(arm: Arm, prompt: Prompt, repeat: int, settings: Settings) -> list[Answer]:
    """Hold one conversation; later turns follow this arm's own earlier answers."""
    messages: list[Json] = []
    answers = []
    for turn, question in enumerate(prompt.turns):
        messages.append({"role": "user", "content": question})
        if turn:
            sleep(settings.pause_seconds)
        received = ask(arm, messages, settings)
        messages.append({"role": "assistant", "content": received.text})
        answer = _answer(arm, prompt, turn, repeat, received)
        answers.append(_server_times(answer, received) if settings.simulated else answer)
    return answers


def _answer(arm: Arm, prompt: Prompt, turn: int, repeat: int, received: ReceivedStream) -> Answer:
    end = received.end or End("")
    timings, report = end.timings, end.speculation
    counted = timings.get("predicted_n", end.usage.get("completion_tokens"))
    if "predicted_ms" in timings:
        decode_seconds = timings["predicted_ms"] / 1000
    else:
        decode_seconds = (received.last or 0.0) - (received.first or 0.0)
    cached = (end.usage.get("prompt_tokens_details") or {}).get("cached_tokens")
    cached = timings.get("cache_n", cached or 0)
    prompt_tokens = end.usage.get("prompt_tokens", cached + timings.get("prompt_n", 0))
    return Answer(
        prompt=prompt.name,
        slice=prompt.slice,
        turn=turn,
        repeat=repeat,
        arm=arm.name,
        kind=_kind(turn, cached, prompt_tokens),
        text=received.text,
        finish=end.reason,
        tokens=received.pieces if counted is None else counted,
        prompt_tokens=prompt_tokens,
        cached_tokens=cached,
        decode_seconds=decode_seconds,
        ttft_seconds=received.first - received.began if received.first else None,
        seconds=received.ended - received.began,
        rounds=report.get("rounds"),
        reason=report.get("reason"),
        sources={name: _source(count) for name, count in report.get("sources", {}).items()},
    )


def _server_times(answer: Answer, received: ReceivedStream) -> Answer:
    """The answer with only the server's times: there is no client on a simulated machine."""
    first = received.end.speculation.get("ttft_seconds", 0.0) if received.end else 0.0
    whole = first + answer.decode_seconds
    return msgspec.structs.replace(answer, ttft_seconds=first, seconds=whole)


def _kind(turn: int, cached_tokens: int, prompt_tokens: int) -> str:
    if turn:
        return results.CONVERSATION
    return results.REPLAY if cached_tokens > REPLAY_SHARE * prompt_tokens else results.COLD


def _source(count: Json) -> Source:
    return Source(
        count["drafted"],
        count["accepted"],
        count["drafted_by_position"],
        count["accepted_by_position"],
    )


def schedule(
    arms: Sequence[Arm], prompts: Sequence[Prompt], repeats: int, concurrency: int
) -> Iterator[tuple[int, Sequence[Prompt], Arm]]:
    """(repeat, prompts asked at the same time, arm), in the order of asking."""
    groups = [prompts[at : at + concurrency] for at in range(0, len(prompts), concurrency)]
    for repeat in range(repeats):
        for number, group in enumerate(groups):
            for arm in rotated(arms, repeat + number):
                yield repeat, group, arm


def measure(
    arms: Sequence[Arm], prompts: Sequence[Prompt], settings: Settings, tell: Told
) -> tuple[list[Batch], dict[str, str]]:
    """Ask everything. Returns the batches, and the refused prompts with their reasons.

    A refused prompt is not asked again. Every other error ends the measurement.
    """
    batches: list[Batch] = []
    skipped: dict[str, str] = {}
    for repeat, group, arm in schedule(arms, prompts, settings.repeats, settings.concurrency):
        asked = [prompt for prompt in group if prompt.name not in skipped]
        until_idle(arm, arms, tell)
        tell(len(group), f"{arm.name}: {group[0].name}")
        began = perf_counter()
        talk = partial(converse, arm, repeat=repeat, settings=settings)
        told = together(talk, asked)
        seconds = perf_counter() - began
        answers = [answer for found in told if isinstance(found, list) for answer in found]
        if settings.simulated:
            seconds = sum(answer.seconds for answer in answers)
        skipped |= {
            prompt.name: f"{arm.name}: {found.message}"
            for prompt, found in zip(asked, told, strict=True)
            if isinstance(found, RequestError)
        }
        batches.append(Batch(arm.name, repeat, seconds, answers))
    return batches, skipped


def together(
    talk: Callable[[Prompt], list[Answer]], prompts: Sequence[Prompt]
) -> list[list[Answer] | RequestError]:
    """The answers of `talk` to all prompts at the same time, or the error in their place."""

    def said(prompt: Prompt) -> list[Answer] | RequestError:
        try:
            return talk(prompt)
        except RequestError as error:
            return error

    if len(prompts) <= 1:  # in this thread, where Ctrl-C arrives
        return [said(prompt) for prompt in prompts]
    with ThreadPoolExecutor(len(prompts)) as threads:
        return list(threads.map(said, prompts))
