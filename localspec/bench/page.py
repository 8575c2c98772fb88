"""The report as one HTML page: no script, no font, nothing fetched from anywhere. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from localspec.bench import plots, report
from localspec.bench.report import Table
from localspec.bench.results import Results, staircase
from localspec.bench.summary import Summary

LIGHT = (
    "#2e84de", "#5a1401", "#e89f19", "#201e5b", "#681ba5",
    "#937383", "#8d2c42", "#2bc0cf", "#d16211", "#000eff",
)  # fmt: skip
DARK = (
    "#42cf83", "#9304fb", "#f3a1fc", "#c4f107", "#b117a1",
    "#3c9f39", "#b579ff", "#437028", "#d75dab", "#3ffcc2",
)  # fmt: skip
"""Found by a search: any two differ even to people who see no red, no green or no blue."""
LIGHT_PAPER, DARK_PAPER = "#ffffff", "#14171c"

STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem;
  background: var(--paper); color: var(--ink) }
h1 { font-size: 1.5rem } h2 { font-size: 1.1rem; margin-top: 2.2rem }
.facts, .note { color: var(--soft) } .facts { padding-left: 1.2rem }
.wide { overflow-x: auto }
table { border-collapse: collapse; font-variant-numeric: tabular-nums }
td, th { padding: .2rem .8rem .2rem 0; text-align: right; white-space: nowrap;
  border-bottom: 1px solid var(--rule) }
.word { text-align: left }
svg { min-width: 36rem; width: 100%; height: auto; max-width: 760px; display: block }
svg text { font: 12px system-ui, sans-serif; fill: var(--ink);
  paint-order: stroke; stroke: var(--paper); stroke-width: 3px }
.grid { stroke: var(--rule) } .one { stroke: var(--ink); stroke-dasharray: 4 3 }
.interval { stroke: var(--ink); fill: none; stroke-width: 1.2 }
.bound { stroke: var(--ink); stroke-width: 2.5 }
.curve { fill: none; stroke-width: 2 }
.again { opacity: .5 } .curve.again { stroke-dasharray: 6 4 }
.legend { display: flex; flex-wrap: wrap; gap: .2rem 1.2rem; margin: .5rem 0 }
.legend i { display: inline-block; width: .8em; height: .8em; margin-right: .4em }
"""


def html(results: Results, summary: Summary) -> str:
    """Render the whole page."""
    figures = [
        ("Speed-up per slice", plots.speedups(summary)),
        ("Cost of one forward", plots.cost_staircase(_stairs(results))),
        ("Acceptance by position", plots.acceptance(summary)),
        ("Predicted against observed acceptance", plots.reliability(summary)),
    ]
    facts = "".join(f"<li>{escape(line)}</li>" for line in report.heading(results))
    drawn = "".join(f"<h2>{escape(title)}</h2>{plot}" for title, plot in figures if plot)
    written = "".join(_table(table) for table in report.tables(results, summary))
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width">'
        '<meta name="color-scheme" content="light dark">'
        f"<title>LocalSpec bench</title><style>{_colours()}{STYLE}</style>"
        f'<h1>LocalSpec bench</h1><ul class="facts">{facts}</ul>{drawn}{written}</html>\n'
    )


def _stairs(results: Results) -> dict[str, list[tuple[int, float]]]:
    stairs = {"at the beginning of a text": staircase(results.model)}
    if behind := results.model.get("far_tokens"):
        stairs[f"behind {behind} tokens"] = staircase(results.model, behind)
    return stairs


def _colours() -> str:
    light = f"--paper: {LIGHT_PAPER}; --ink: #1b1f24; --soft: #57606a; --rule: #d8dee4;"
    dark = f"--paper: {DARK_PAPER}; --ink: #e6e8eb; --soft: #9aa4b0; --rule: #353c46;"
    series = "".join(
        f"i.c{n} {{ background: var(--c{n}) }} svg .c{n} {{ fill: var(--c{n}) }} "
        f".s{n} {{ stroke: var(--c{n}) }}\n"
        for n in range(plots.COLOURS)
    )
    return (
        f":root {{ {light} {_named(LIGHT)} }}\n"
        f"@media (prefers-color-scheme: dark) {{ :root {{ {dark} {_named(DARK)} }} }}\n{series}"
    )


def _named(palette: tuple[str, ...]) -> str:
    return " ".join(f"--c{n}: {colour};" for n, colour in enumerate(palette))


def _table(table: Table) -> str:
    head = _row(table, "th", table.head)
    rows = "".join(_row(table, "td", row) for row in table.rows)
    note = f'<p class="note">{escape(table.note)}</p>' if table.note else ""
    return (
        f'<h2>{escape(table.title)}</h2><div class="wide"><table>{head}{rows}</table></div>{note}'
    )


def _row(table: Table, tag: str, cells: Sequence[str]) -> str:
    kinds = [' class="word"' if table.is_text(place) else "" for place in range(len(cells))]
    drawn = (
        f"<{tag}{kind}>{escape(cell)}</{tag}>" for kind, cell in zip(kinds, cells, strict=True)
    )
    return f"<tr>{''.join(drawn)}</tr>"
