"""Computes figures from answers: per slice and arm, compared with plain by prompt. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec

from localspec.bench import hindsight
from localspec.bench.arms import PLAIN
from localspec.bench.hindsight import Bin, Possible
from localspec.bench.results import (
    COLD,
    CONVERSATION,
    REPLAY,
    Answer,
    Results,
    Source,
    median_rate,
    rate,
)
from localspec.bench.statistics import bootstrap, geometric_mean, median, percentile

ALL = "all"


class Ratio(msgspec.Struct, frozen=True):
    """Decode speed relative to plain's.

    `by_prompt` maps a prompt to the median over repeats of the two arms' rates in the same repeat.
    `mean` is geometric over prompts; `low` and `high` are its 95 % bootstrap interval.
    """

    mean: float
    low: float
    high: float
    p5: float
    p50: float
    p95: float
    worst: str
    by_prompt: dict[str, float]


class Bound(msgspec.Struct, frozen=True):
    """The ratio to plain that the best possible decisions would have reached on the same texts.

    `mean` is geometric over `prompts` prompts. `reached` is the measured ratio on these, divided by
    `mean`. `tuned` is the ratio of the best fixed setting for each prompt.
    """

    mean: float
    tuned: float
    reached: float
    prompts: int


class Waits(msgspec.Struct, frozen=True):
    """Seconds to the first text, p50 and p95 over `count` answers of one kind."""

    count: int
    p50: float
    p95: float


class Cell(msgspec.Struct, frozen=True):
    """One arm on one slice; None stands for what was not measured or not reported.

    `tokens_per_second` is the median over repeats; `seconds` the median time of one whole answer.
    `equal` of `compared` answers have the text of plain in the same repeat.
    """

    arm: str
    slice: str
    prompts: int
    tokens_per_second: float | None
    seconds: float | None
    ratio: Ratio | None
    first_text: dict[str, Waits]
    equal: int
    compared: int
    tokens: int
    rounds: int | None
    sources: dict[str, Source]
    reasons: dict[str, int]
    bound: Bound | None = None

    @property
    def tokens_per_round(self) -> float | None:
        """Tokens per target forward of the decode phase."""
        return self.tokens / self.rounds if self.rounds else None


class Summary(msgspec.Struct, frozen=True):
    """Cells by slice and arm, the slice "all" last; `throughput` is tokens/s by wall clock.

    `reliability` is by source, from the replays.
    """

    slices: list[str]
    arms: list[str]
    cells: dict[str, dict[str, Cell]]
    throughput: dict[str, float]
    reliability: dict[str, list[Bin]] = {}


def summarize(results: Results) -> Summary:
    """Compute every figure of the report."""
    answers = {arm: results.answers(arm) for arm in results.arms}
    slices = list(dict.fromkeys(answer.slice for answer in answers[PLAIN]))
    possible = hindsight.possible(results)
    cells = {
        name: {
            arm: _cell(arm, name, answers[arm], answers[PLAIN], possible.get(arm, {}))
            for arm in results.arms
        }
        for name in (*slices, ALL)
    }
    throughput = {arm: value for arm in results.arms if (value := _throughput(results, arm))}
    reliability = hindsight.reliability(results.replays)
    return Summary([*slices, ALL], results.arms, cells, throughput, reliability)


def _cell(
    arm: str,
    slice_name: str,
    answers: list[Answer],
    plain: list[Answer],
    possible: dict[str, Possible],
) -> Cell:
    mine, base = (
        [answer for answer in each if slice_name in (ALL, answer.slice)]
        for each in (answers, plain)
    )
    texts = {(one.prompt, one.turn, one.repeat): one.text for one in base}
    compared = [one for one in mine if (one.prompt, one.turn, one.repeat) in texts]
    reported = [one for one in mine if one.rounds is not None]
    ratio = None if arm == PLAIN else compare(mine, base)
    return Cell(
        arm=arm,
        slice=slice_name,
        prompts=len({one.prompt for one in mine}),
        tokens_per_second=median_rate(mine),
        seconds=median([one.seconds for one in mine]) if mine else None,
        ratio=ratio,
        first_text=_first_text(mine),
        equal=sum(one.text == texts[one.prompt, one.turn, one.repeat] for one in compared),
        compared=len(compared),
        tokens=sum(one.tokens for one in reported),
        rounds=sum(one.rounds or 0 for one in reported) if reported else None,
        sources=merged(one.sources for one in mine),
        reasons=_counted(one.reason for one in mine if one.reason),
        bound=bounded(ratio, possible) if ratio else None,
    )


def compare(answers: Sequence[Answer], plain: Sequence[Answer]) -> Ratio | None:
    """The ratio of the decode speeds of `answers` and of plain's; None if none can be compared."""
    by_prompt: dict[str, float] = {}
    for prompt in dict.fromkeys(one.prompt for one in plain):
        pairs = _paired(answers, plain, prompt)
        if pairs:
            by_prompt[prompt] = median([mine / base for mine, base in pairs])
    if not by_prompt:
        return None
    ratios = list(by_prompt.values())
    low, high = bootstrap(ratios, geometric_mean)
    return Ratio(
        mean=geometric_mean(ratios),
        low=low,
        high=high,
        p5=percentile(ratios, 0.05),
        p50=median(ratios),
        p95=percentile(ratios, 0.95),
        worst=min(by_prompt, key=by_prompt.__getitem__),
        by_prompt=by_prompt,
    )


def bounded(ratio: Ratio, possible: Mapping[str, Possible]) -> Bound | None:
    """The bound over the prompts that have one; None if none has."""
    known = [prompt for prompt in ratio.by_prompt if prompt in possible]
    if not known:
        return None
    mine = geometric_mean([ratio.by_prompt[prompt] for prompt in known])
    best = geometric_mean([possible[prompt].best for prompt in known])
    tuned = geometric_mean([possible[prompt].tuned for prompt in known])
    return Bound(best, tuned, mine / best, len(known))


def _paired(
    answers: Sequence[Answer], plain: Sequence[Answer], prompt: str
) -> list[tuple[float, float]]:
    """The two arms' rates on one prompt by repeat, so that drift between repeats cancels out."""
    pairs = []
    for repeat in {one.repeat for one in plain}:
        mine, base = (
            rate([one for one in each if (one.prompt, one.repeat) == (prompt, repeat)])
            for each in (answers, plain)
        )
        if mine and base:
            pairs.append((mine, base))
    return pairs


def _first_text(answers: Sequence[Answer]) -> dict[str, Waits]:
    found = {}
    for kind in (COLD, CONVERSATION, REPLAY):
        waits = [
            one.ttft_seconds for one in answers if one.kind == kind and one.ttft_seconds is not None
        ]
        if waits:
            found[kind] = Waits(len(waits), median(waits), percentile(waits, 0.95))
    return found


def merged(reports: Iterable[dict[str, Source]]) -> dict[str, Source]:
    """The summed counts of many answers, by source."""
    total: dict[str, Source] = {}
    for sources in reports:
        for name, count in sources.items():
            before = total.get(name, Source(0, 0, [], []))
            total[name] = Source(
                before.drafted + count.drafted,
                before.accepted + count.accepted,
                _added(before.drafted_by_position, count.drafted_by_position),
                _added(before.accepted_by_position, count.accepted_by_position),
            )
    return total


def _added(one: list[int], other: list[int]) -> list[int]:
    longer, shorter = sorted((one, other), key=len, reverse=True)
    return [
        a + b for a, b in zip(longer, shorter + [0] * (len(longer) - len(shorter)), strict=True)
    ]


def _counted(words: Iterable[str]) -> dict[str, int]:
    counts: dict[str, int] = {}
    for word in words:
        counts[word] = counts.get(word, 0) + 1
    return counts


def _throughput(results: Results, arm: str) -> float | None:
    """The median over repeats of an arm's tokens divided by the wall clock of its batches."""
    rates = []
    for repeat in range(results.settings.repeats):
        batches = [batch for batch in results.batches if (batch.arm, batch.repeat) == (arm, repeat)]
        seconds = sum(batch.seconds for batch in batches if batch.answers)
        tokens = sum(answer.tokens for batch in batches for answer in batch.answers)
        if seconds:
            rates.append(tokens / seconds)
    return median(rates) if rates else None
