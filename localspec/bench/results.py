"""Results of a measurement: plain values, written to results.json and read by the reports."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import msgspec

from localspec.bench.statistics import median
from localspec.machine import Host, Machine
from localspec.wire.messages import Trace

COLD, CONVERSATION, REPLAY = "cold", "conversation", "replay"


class Source(msgspec.Struct, frozen=True):
    """Tokens that one source drafted and the target accepted, in total and by position."""

    drafted: int
    accepted: int
    drafted_by_position: list[int]
    accepted_by_position: list[int]


class Answer(msgspec.Struct, frozen=True):
    """One answer to one turn, as the client saw it and as the server reported it.

    `kind` is "conversation" after the first turn. Before, it is "replay" if the server still had
    most of the prompt in its cache, and "cold" if not. `seconds` and `ttft_seconds` are the
    client's wall clock. `decode_seconds` is the time of all tokens but the first. Figures that a
    server does not report are None.
    """

    prompt: str
    slice: str
    turn: int
    repeat: int
    arm: str
    kind: str
    text: str
    finish: str
    tokens: int
    prompt_tokens: int
    cached_tokens: int
    decode_seconds: float
    ttft_seconds: float | None
    seconds: float
    rounds: int | None = None
    reason: str | None = None
    sources: dict[str, Source] = {}


class Batch(msgspec.Struct, frozen=True):
    """Answers of one arm that were asked for at the same time; `seconds` is until all had ended."""

    arm: str
    repeat: int
    seconds: float
    answers: list[Answer]


class Replay(msgspec.Struct, frozen=True):
    """One of plain's texts, run through the engine again: each drafter's proposals at each token.

    A round drafts at most `max_draft` tokens. `predicts` means that the drafters were given a
    prediction. The text followed `prompt_tokens` tokens.
    """

    prompt: str
    turn: int
    tokens: int
    max_draft: int
    drafters: dict[str, Trace]
    predicts: bool = False
    prompt_tokens: int = 0


class Settings(msgspec.Struct, frozen=True):
    """Settings of a measurement. `max_tokens` limits each answer; the pause precedes later turns.

    `simulated` means that all times are the server's, whose clock is a simulated machine's.
    """

    max_tokens: int = 128
    repeats: int = 3
    temperature: float = 0.0
    seed: int = 0
    concurrency: int = 1
    pause_seconds: float = 0.0
    simulated: bool = False


class Results(msgspec.Struct, frozen=True):
    """One whole measurement.

    `model` is the model's entry in the daemon's status after the last answer. `skipped` maps each
    prompt that a server refused to the reason; such a prompt counts in no arm. `replays` are of
    plain's texts in the first repeat, if the bound was asked for. `table` is the simulated machine,
    or None.
    """

    version: str
    created: str
    machine: str
    settings: Settings
    model: dict[str, Any]
    arms: list[str]
    batches: list[Batch]
    skipped: dict[str, str] = {}
    replays: list[Replay] = []
    table: Machine | None = None

    def answers(self, arm: str) -> list[Answer]:
        """Every answer of an arm to the prompts that no server refused."""
        return [
            answer
            for batch in self.batches
            if batch.arm == arm
            for answer in batch.answers
            if answer.prompt not in self.skipped
        ]


def staircase(model: Mapping[str, Any], cells: float = 0) -> list[tuple[int, float]]:
    """(rows, milliseconds) of the target's forward after `cells` tokens, ascending in rows.

    Interpolated linearly between the near and the far costs in a model's status.
    """
    near, far = model.get("cost_ms_by_rows") or {}, model.get("far_ms_by_rows") or {}
    return sorted((int(rows), ms) for rows, ms in _behind(model, near, far, cells).items())


def draft_ms(model: Mapping[str, Any], cells: float = 0) -> dict[str, float]:
    """The cost of one drafted token after `cells` tokens, for each source that is not free."""
    return _behind(model, model.get("draft_ms") or {}, model.get("far_draft_ms") or {}, cells)


def host(model: Mapping[str, Any]) -> Host:
    """Host time of a round, from a model's status; zero where the status does not tell."""
    return Host(model.get("host_ms") or 0.0, model.get("host_row_ms") or 0.0)


def _behind(
    model: Mapping[str, Any], near: Mapping[str, float], far: Mapping[str, float], cells: float
) -> dict[str, float]:
    share = cells / (model.get("far_tokens") or math.inf)
    return {name: ms + share * (far.get(name, ms) - ms) for name, ms in near.items()}


def rate(answers: list[Answer]) -> float | None:
    """Decode tokens per second of several answers together; None if nothing was decoded.

    The first token of an answer comes from the prompt's forward; it adds no tokens and no time.
    """
    tokens = sum(max(0, answer.tokens - 1) for answer in answers)
    seconds = sum(answer.decode_seconds for answer in answers)
    return tokens / seconds if tokens and seconds > 0 else None


def median_rate(answers: list[Answer]) -> float | None:
    """The median over repeats of each repeat's rate."""
    repeats = {answer.repeat for answer in answers}
    rates = [rate([answer for answer in answers if answer.repeat == one]) for one in repeats]
    known = [value for value in rates if value is not None]
    return median(known) if known else None
