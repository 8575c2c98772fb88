"""The report as tables and as Markdown. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import msgspec

from localspec.bench.arms import PLAIN
from localspec.bench.results import Results, Source, staircase
from localspec.bench.summary import ALL, Cell, Ratio, Summary

NONE = "-"
_WORD = re.compile(r"[^\W\d_]{3}")


class Table(msgspec.Struct, frozen=True):
    """One table of a report; every row has as many cells as `head`. `note` says how to read it.

    The first `labels` cells of a row name it.
    """

    title: str
    head: list[str]
    rows: list[list[str]]
    note: str = ""
    labels: int = 1

    def is_text(self, place: int) -> bool:
        """Whether a column holds words, which are aligned left; figures are aligned right."""
        return not place or any(_WORD.search(row[place]) for row in self.rows)


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'s' * (number != 1)}"


def heading(results: Results) -> list[str]:
    """The lines of the heading: model, machine and settings of the measurement."""
    model, settings = results.model, results.settings
    how = "greedy" if not settings.temperature else f"T = {settings.temperature:g}"
    prompts = len({answer.prompt for answer in results.answers(PLAIN)})
    drafters = ", ".join(model.get("drafters") or []) or "none"
    build = (model.get("llama_build") or "unknown build").partition(";")[0]
    exactness = model.get("exactness", "unknown")
    what = f"{model['name']}, exactness {exactness}, drafters {drafters}, {build}"
    amount = (
        f"{_count(prompts, 'prompt')}, {_count(settings.repeats, 'repeat')}, "
        f"at most {settings.max_tokens} tokens, "
        f"{how}, seed {settings.seed}, {settings.concurrency} at a time"
    )
    if settings.pause_seconds:
        amount += f", {settings.pause_seconds:g} s before later turns"
    facts = [f"{results.created}, localspec {results.version}, {results.machine}", what, amount]
    if results.table:
        facts.append(
            f"on a simulated machine: times are those of the table of {results.table.name}"
        )
    if model.get("speculation_off"):
        what = "no draft model" if model.get("drafters") else "speculation is off"
        facts.append(f"{what}: {model['speculation_off']}")
    return facts + [f"left out: {name} ({why})" for name, why in results.skipped.items()]


def tables(results: Results, summary: Summary) -> list[Table]:
    """All tables of the report, the main figure first; only measured ones."""
    found = [
        _ratios(summary),
        _bounds(summary),
        _speeds(summary),
        _spread(summary),
        _work(summary),
        _waits(summary),
        _wholes(summary),
        _positions(summary),
        _reliability(summary),
        _staircase(results),
    ]
    return [table for table in found if table.rows]


def machines(found: Sequence[tuple[Results, Summary]], arm: str) -> Table:
    """One line for each simulated machine: the results of an arm there."""
    return Table(
        f"Every machine: decode speed of {arm} as a ratio to plain",
        ["machine", "worst slice", "its ratio", ALL, "tuned", "bound", "reached", "texts equal"],
        [_on_machine(results, summary, arm) for results, summary in found],
        "As in the reports above.",
    )


def _on_machine(results: Results, summary: Summary, arm: str) -> list[str]:
    name = results.table.name if results.table else results.machine
    means = {
        slice_name: cells[arm].ratio
        for slice_name, cells in summary.cells.items()
        if slice_name != ALL
    }
    known = {slice_name: ratio.mean for slice_name, ratio in means.items() if ratio}
    worst = min(known, key=known.__getitem__)
    whole = summary.cells[ALL][arm]
    equal = f"{whole.equal} of {whole.compared}"
    return [name, worst, f"{known[worst]:.2f}", *_reached(whole), equal]


def _ratios(summary: Summary) -> Table:
    arms = [arm for arm in summary.arms if arm != PLAIN]
    return Table(
        "Decode speed as a ratio to plain",
        ["slice", "prompts", *arms],
        [
            [name, str(cells[PLAIN].prompts), *(_interval(cells[arm].ratio) for arm in arms)]
            for name, cells in summary.cells.items()
        ],
        "Geometric mean over prompts with its 95 % bootstrap interval; above 1 is faster.",
    )


def _bounds(summary: Summary) -> Table:
    arms = [arm for arm, cell in summary.cells[ALL].items() if cell.bound]
    return Table(
        "How much of what was possible was reached",
        ["slice", "arm", "ratio", "tuned", "bound", "reached"],
        [
            [name, arm, *_reached(cells[arm])]
            for name, cells in summary.cells.items()
            for arm in arms
        ],
        "Bound: the ratio of the best possible decisions, which know what survives, on plain's own "
        "texts with the arm's drafters and this machine's costs. Reached: ratio by bound. Tuned: "
        "that of the best fixed depths for each prompt, chosen afterwards.",
        labels=2,
    )


def _reached(cell: Cell) -> list[str]:
    ratio = _figure(cell.ratio.mean if cell.ratio else None, "{:.2f}")
    if not cell.bound:
        return [ratio, NONE, NONE, NONE]
    bound = cell.bound
    return [ratio, f"{bound.tuned:.2f}", f"{bound.mean:.2f}", f"{bound.reached:.0%}"]


def _speeds(summary: Summary) -> Table:
    rows = [
        [name, *(_figure(cells[arm].tokens_per_second, "{:.1f}") for arm in summary.arms)]
        for name, cells in summary.cells.items()
    ]
    overall = [_figure(summary.throughput.get(arm), "{:.1f}") for arm in summary.arms]
    return Table(
        "Decode tokens per second",
        ["slice", *summary.arms],
        [*rows, ["throughput", *overall]],
        "Median over repeats. The first token of an answer counts as the prompt's. Throughput is "
        "all tokens by wall clock, prompts included.",
    )


def _spread(summary: Summary) -> Table:
    cells = summary.cells[ALL]
    return Table(
        "Prompt by prompt, all slices",
        ["arm", "ratio p5", "p50", "p95", "worst prompt", "its ratio", "texts equal to plain's"],
        [
            [
                arm,
                *(f"{value:.2f}" for value in (ratio.p5, ratio.p50, ratio.p95)),
                ratio.worst,
                f"{ratio.by_prompt[ratio.worst]:.2f}",
                f"{cells[arm].equal} of {cells[arm].compared}",
            ]
            for arm in summary.arms
            if (ratio := cells[arm].ratio)
        ],
    )


def _work(summary: Summary) -> Table:
    return Table(
        "Rounds and acceptance",
        ["arm", "slice", "rounds", "tokens per round", "accepted by source", "routes"],
        [
            [
                arm,
                name,
                str(cell.rounds),
                _figure(cell.tokens_per_round, "{:.2f}"),
                ", ".join(_share(source, count) for source, count in cell.sources.items()) or NONE,
                ", ".join(f"{count} {reason}" for reason, count in cell.reasons.items()),
            ]
            for arm in summary.arms
            if arm != PLAIN
            for name in summary.slices
            if (cell := summary.cells[name][arm]).rounds is not None
        ],
        "A round is one forward of the target while decoding.",
        labels=2,
    )


def _waits(summary: Summary) -> Table:
    return Table(
        "Time to first text, all slices",
        ["arm", "prompt was", "answers", "p50", "p95"],
        [
            [arm, kind, str(waits.count), _seconds(waits.p50), _seconds(waits.p95)]
            for arm, cell in summary.cells[ALL].items()
            for kind, waits in cell.first_text.items()
        ],
        "cold: read from its beginning; conversation: a later turn; replay: most of it was still "
        "cached, because another arm had just asked the same. Compare equals with equals.",
        labels=2,
    )


def _wholes(summary: Summary) -> Table:
    return Table(
        "Time of a whole answer",
        ["slice", *summary.arms],
        [
            [name, *(_seconds(cells[arm].seconds) for arm in summary.arms)]
            for name, cells in summary.cells.items()
        ],
        "Median of the client's wall clock, prompt included. Arms whose texts differ in length "
        "are compared by decode speed only.",
    )


def _positions(summary: Summary) -> Table:
    return Table(
        "Acceptance by position in the draft, all slices",
        ["arm", "source", *(str(place) for place in range(1, 9))],
        [
            [arm, source, *(f"{share:.0%}" if share is not None else NONE for share in shares)]
            for arm, cell in summary.cells[ALL].items()
            for source, count in cell.sources.items()
            for shares in [[*by_position(count), *[None] * 8][:8]]
        ],
        "Share of the tokens drafted at a position that were kept; all before them were kept too.",
        labels=2,
    )


def _reliability(summary: Summary) -> Table:
    return Table(
        "Predicted against observed acceptance",
        ["source", "predicted", "mean", "observed", "tokens"],
        [
            [
                source,
                f"{one.low:.0%} to {one.high:.0%}",
                f"{one.predicted:.1%}",
                f"{one.observed:.1%}",
                str(one.count),
            ]
            for source, bins in summary.reliability.items()
            for one in bins
        ],
        "What was expected of a source's next token, and how often it was the text's: at every "
        "token of plain's texts for which the source had a proposal.",
        labels=2,
    )


def _staircase(results: Results) -> Table:
    stairs, behind = staircase(results.model), results.model.get("far_tokens") or 0
    far = staircase(results.model, behind)
    return Table(
        "Cost of one forward by rows",
        ["rows", "ms", "relative to the fewest", "ms per row", f"ms behind {behind} tokens"],
        [
            [str(n), f"{ms:.1f}", f"{ms / stairs[0][1]:.2f}", f"{ms / n:.1f}", f"{slow:.1f}"]
            for (n, ms), (_, slow) in zip(stairs, far, strict=True)
        ],
        "As the daemon measured it. A round that verifies n - 1 drafted tokens has n rows.",
    )


def by_position(count: Source) -> list[float | None]:
    """The accepted share at each position of a draft; None where nothing was drafted."""
    accepted = [*count.accepted_by_position, *[0] * len(count.drafted_by_position)]
    return [
        kept / drafted if drafted else None
        for drafted, kept in zip(count.drafted_by_position, accepted, strict=False)
    ]


def markdown(results: Results, summary: Summary) -> str:
    """The report as one Markdown document."""
    return "\n".join(_lines(results, summary)) + "\n"


def _lines(results: Results, summary: Summary) -> Iterator[str]:
    yield "# LocalSpec bench"
    yield ""
    yield from (f"* {_escaped(line)}" for line in heading(results))
    for table in tables(results, summary):
        yield ""
        yield from lines(table)


def lines(table: Table, *, level: int = 2) -> Iterator[str]:
    """One table as Markdown, under a heading of this level."""
    yield f"{'#' * level} {table.title}"
    yield ""
    yield _row(table.head)
    yield _row(["---"] * len(table.head))
    yield from (_row([_escaped(cell) for cell in row]) for row in table.rows)
    if table.note:
        yield ""
        yield table.note


def _row(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _escaped(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _interval(ratio: Ratio | None) -> str:
    if not ratio:
        return NONE
    if len(ratio.by_prompt) == 1:
        return f"{ratio.mean:.2f}"  # one prompt does not tell how others would vary
    return f"{ratio.mean:.2f} [{ratio.low:.2f}, {ratio.high:.2f}]"


def _figure(value: float | None, form: str) -> str:
    return NONE if value is None else form.format(value)


def _seconds(value: float | None) -> str:
    if value is None:
        return NONE
    return f"{value * 1000:.0f} ms" if value < 1 else f"{value:.2f} s"


def _share(source: str, count: Source) -> str:
    return f"{source} {count.accepted} of {count.drafted}" + (
        f" ({count.accepted / count.drafted:.0%})" if count.drafted else ""
    )
