"""An answer that has begun on one worker goes on with another as if nothing had been."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from worker_peer import CONTEXT, Heard, Worker

from localspec.engine.shifting import gone
from localspec.types import SamplingParams, SpeculationParams
from localspec.wire.messages import Delta, Generate, Message
from localspec.wire.values import TokenLogprob
from localspec_daemon.supervisor.resumption import Stream

ALWAYS = SpeculationParams(mode="always")
PRINTABLE = dict.fromkeys(range(32, 127), 40.0)
SEEDED = SamplingParams(temperature=0.9, seed=3, logit_bias=PRINTABLE)
PENALIZED = SamplingParams(
    temperature=0.7, seed=5, frequency_penalty=0.7, presence_penalty=0.3, penalty_last_n=32
)
SCHEMA = {"type": "json_schema", "json_schema": {"schema": {"type": "array"}}}
PROMPT = "hello world, hello world, hello"

CHAT: dict[str, Any] = {"messages": [Message("user", "hi")], "endpoint": "chat"}

CASES: dict[str, dict[str, Any]] = {
    "greedy": {"speculation": ALWAYS},
    "seeded": {"sampling": SEEDED, "speculation": ALWAYS},
    "penalties": {"sampling": PENALIZED, "speculation": ALWAYS},
    "soup of half characters": {"sampling": SamplingParams(temperature=1.5, seed=8)},
    "logprobs": {"sampling": SamplingParams(temperature=1.5, seed=8), "logprobs": 2},
    "grammar": {
        "sampling": SamplingParams(temperature=1.2, seed=2),
        "response_format": SCHEMA,
        "ignore_eos": False,
    },
    "rejection": {
        "sampling": SEEDED,
        "speculation": SpeculationParams(mode="off", verify="rejection"),
    },
    "chat": CHAT,
    "echo": {"echo": True, "sampling": SEEDED},
    "end": {
        "sampling": SamplingParams(temperature=1, seed=4, logit_bias={261: 3.0}),
        "ignore_eos": False,
    },
}


def resumed(worker: Worker, asked: Generate, heard: Heard, count: int) -> tuple[Generate, Heard]:
    """Answer of a worker that gets the first `count` deltas of another worker's answer."""
    stream = Stream(asked)
    assert heard.started is not None
    stream.take(heard.started)
    for delta in heard.deltas[:count]:
        stream.take(delta)
    command = stream.command()
    assert isinstance(command, Generate)
    return command, worker.answer(command)[0]


def decided(*heard: Sequence[Delta]) -> list[tuple[int, str]]:
    """Tokens of the deltas, and their sources."""
    return [
        pair
        for deltas in heard
        for delta in deltas
        for pair in zip(delta.decided, delta.decided_by, strict=True)
    ]


def logprobs(*heard: Sequence[Delta]) -> list[TokenLogprob]:
    """Log probabilities that were sent."""
    return [each for deltas in heard for delta in deltas for each in delta.logprobs]


def same(worker: Worker, asked: Generate, cuts: Sequence[float] = (0, 0.2, 0.5, 0.9, 1)) -> Heard:
    """Assert that the answer does not depend on where its worker died; gives that answer."""
    whole = worker.answer(asked)[0]
    for cut in cuts:
        count = round(cut * len(whole.deltas))
        _, rest = resumed(worker, asked, whole, count)
        before = whole.deltas[:count]
        assert "".join(delta.text for delta in before) + rest.text == whole.text
        tokens = [token for token, _ in decided(before, rest.deltas)]
        assert tokens == [token for token, _ in decided(whole.deltas)]
        assert logprobs(before, rest.deltas) == logprobs(whole.deltas)
        assert rest.finished.reason == whole.finished.reason
        usage, expected = rest.finished.usage, whole.finished.usage
        assert usage.prompt_tokens == expected.prompt_tokens
        assert usage.completion_tokens == expected.completion_tokens
        if count:
            assert usage.cached_tokens == expected.cached_tokens
        assert rest.finished.seed == whole.finished.seed
    return whole


@pytest.mark.parametrize("case", CASES)
def test_where_a_worker_died_does_not_show(worker: Worker, case: str) -> None:
    """Text, tokens, end and counts are those of an answer by one worker, wherever it was cut."""
    fields = CASES[case]
    asked = worker.request(None if fields is CHAT else PROMPT, **{"max_tokens": 32} | fields)
    whole = same(worker, asked)
    assert len(whole.deltas) > 4


def test_a_stop_string_may_be_cut_in_two(worker: Worker) -> None:
    """A held part of it is held on the next worker too, and never sent."""
    text = worker.one(PROMPT, sampling=SEEDED, max_tokens=40).text
    stop = text[20:26]
    asked = worker.request(PROMPT, sampling=SEEDED, max_tokens=40, stop=[stop, stop[:3] + "\n"])
    whole = worker.answer(asked)[0]
    held = [
        index for index, delta in enumerate(whole.deltas, 1) if delta.decided and not delta.text
    ]
    assert held
    cuts = [index / len(whole.deltas) for index in held]
    assert same(worker, asked, cuts).text == text[: text.index(stop)]


def test_figures_go_on_and_pauses_are_not_in_them(worker: Worker) -> None:
    """Rounds, drafts and predicted tokens of both workers; times that do not go backwards."""
    text = worker.one(PROMPT, sampling=SEEDED, max_tokens=150).text
    asked = worker.request(
        PROMPT, sampling=SEEDED, max_tokens=150, speculation=ALWAYS, prediction=text
    )
    whole = worker.answer(asked)[0]
    count = len(whole.deltas) // 2
    command, rest = resumed(worker, asked, whole, count)
    assert command.so_far is not None
    spent, report = command.so_far.spent, rest.finished.speculation
    assert 0 < spent.predicted < rest.finished.usage.predicted_tokens
    assert 0 < spent.rounds < report.rounds
    assert 0 < sum(source.accepted for source in spent.sources.values()) < report.accepted
    assert report.ttft_seconds == pytest.approx(spent.ttft_seconds)
    timings = rest.finished.timings
    assert timings.prompt_ms == pytest.approx(spent.prompt_seconds * 1000)
    assert timings.predicted_ms > spent.decode_seconds * 1000
    assert timings.predicted_n == 150


def test_tokens_outside_the_vocabulary_are_refused(worker: Worker) -> None:
    """They never reach native code."""
    asked = worker.request(PROMPT, max_tokens=8)
    whole = worker.answer(asked)[0]
    whole.deltas[0].decided[0] = worker.ready.n_vocab
    _, rest = resumed(worker, asked, whole, 1)
    assert rest.failed.code == "invalid_request"


@pytest.mark.parametrize("discard", [0, 7])
def test_an_answer_that_has_forgotten_its_beginning_goes_on_behind_the_rest(
    worker: Worker, discard: int
) -> None:
    """As the target answers what it remembers; up to the first shift as if nothing had been."""
    asked = worker.request(
        PROMPT, max_tokens=2 * CONTEXT, shifts=True, keep=4, discard=discard, speculation=ALWAYS
    )
    whole = worker.answer(asked)[0]
    assert whole.finished.usage.completion_tokens == 2 * CONTEXT
    assert whole.started is not None
    for cut in (0.2, 0.45, 0.7, 0.99):
        count = round(cut * len(whole.deltas))
        command, rest = resumed(worker, asked, whole, count)
        assert command.so_far is not None
        known, written = command.so_far.tokens, [token for token, _ in decided(rest.deltas)]
        assert len(known) + len(written) == rest.finished.usage.completion_tokens == 2 * CONTEXT
        assert (rest.finished.reason, rest.finished.full) == ("length", whole.finished.full)
        text = [*command.so_far.prompt, *known]
        kept, forgotten = gone(len(text), CONTEXT, 4, discard)
        if not forgotten:
            assert (
                written[: CONTEXT - len(text)]
                == whole.tokens[len(known) :][: len(written)][: CONTEXT - len(text)]
            )
        left = text[:kept] + text[kept + forgotten :]
        assert len(left) < CONTEXT
        alone = worker.one(left, max_tokens=min(len(written), CONTEXT - len(left)))
        assert written[: len(alone.tokens)] == alone.tokens
