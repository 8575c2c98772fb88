"""Plots as SVG. Pure.

Colours are classes `c0`, `c1` ... of the page; text and lines take the page's text colour. So plots
follow the page's light and dark themes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from html import escape
from typing import NamedTuple

from localspec.bench.arms import PLAIN
from localspec.bench.hindsight import Bin
from localspec.bench.report import by_position
from localspec.bench.summary import ALL, Cell, Ratio, Summary

COLOURS = 10
"""Colours of the page; further sources reuse them, pale and dashed."""
WIDTH = 760
LEFT, RIGHT, TOP, BOTTOM = 120, 96, 12, 40
BAR, GAP = 14, 12
LABEL = 24
"""Room for a label of two digits."""
MAX_POSITIONS = 16
MIN_DRAFTED = 10
"""Fewest drafted tokens for a point of a line: a share of fewer tokens is noise."""
MAX_RADIUS = 9.0
TICKS = 6


class Axis(NamedTuple):
    """A linear map from values to pixels."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        """Map a value to its pixel."""
        share = (value - self.low) / ((self.high - self.low) or 1)
        return self.start + share * (self.end - self.start)

    @property
    def step(self) -> float:
        """A round distance of which about TICKS fit."""
        rough = (self.high - self.low or 1) / TICKS
        power = 10.0 ** math.floor(math.log10(rough))
        return next(power * by for by in (1, 2, 5, 10) if power * by >= rough * (1 - 1e-9))

    def ticks(self) -> list[float]:
        """Round values inside the axis."""
        step = self.step
        first = math.ceil(self.low / step - 1e-9)
        return [i * step for i in range(first, math.floor(self.high / step + 1e-9) + 1)]

    def rounded(self) -> Axis:
        """The axis extended up to a tick that no value exceeds."""
        return self._replace(high=math.ceil(self.high / self.step - 1e-9) * self.step)


class Side(NamedTuple):
    """One axis of a plot: its name, the form and spacing of its values, and its upper end."""

    label: str
    show: Callable[[float], str] = "{:g}".format
    spaced: Callable[[float], float] = float
    high: float | None = None


class Line(NamedTuple):
    """One labelled curve."""

    label: str
    points: Sequence[tuple[float, float]]


def legend(labels: Sequence[str]) -> str:
    """The legend of the colours, as HTML."""
    items = (
        f'<span><i class="c{_shade(i)}"></i>{escape(label)}</span>'
        for i, label in enumerate(labels)
    )
    return f'<p class="legend">{"".join(items)}</p>'


def _shade(place: int) -> str:
    """The end of a source's CSS class: its colour, and "again" if the colour is used before."""
    return f"{place % COLOURS}{' again' * (place >= COLOURS)}"


def speedups(summary: Summary) -> str:
    """Bars of the ratio to plain, one for each arm and slice, with their intervals; "" for none.

    A known bound is marked by a stroke, and the figure then reads "ratio of bound".
    """
    arms = [arm for arm in summary.arms if arm != PLAIN]
    bars = {
        name: [(i, cells[arm]) for i, arm in enumerate(arms) if cells[arm].ratio]
        for name, cells in summary.cells.items()
    }
    ends = [_end(cell) for slice_bars in bars.values() for _, cell in slice_bars]
    if not ends:
        return ""
    x = Axis(0, max(1.1, *ends), LEFT, WIDTH - RIGHT).rounded()
    rows: list[str] = []
    texts: list[str] = []  # drawn last, in front of the bars and of the line at 1
    y = float(TOP)
    for name, slice_bars in bars.items():
        height = BAR * len(slice_bars)
        texts.append(_text(LEFT - 8, y + height / 2 + 4, name, "end"))
        for row, (colour, cell) in enumerate(slice_bars):
            rows.append(_row(x, y + row * BAR, colour, cell))
            texts.append(_figures(x, y + row * BAR, cell))
        y += height + GAP
    frame = [_tick_below(x, value, y, f"{value:g}") for value in x.ticks()]
    one = f'<line class="one" x1="{x(1):.1f}" x2="{x(1):.1f}" y1="{TOP}" y2="{y:.1f}"/>'
    bounded = any(cell.bound for slice_bars in bars.values() for _, cell in slice_bars)
    told = "decode speed, plain = 1" + "; the thick stroke is the bound" * bounded
    label = _text((x.start + x.end) / 2, y + 36, told, "middle")
    return legend(arms) + _svg(
        [*frame, *rows, one, *texts, label], y + BOTTOM, "Speed-up per slice"
    )


def _end(cell: Cell) -> float:
    """The largest value drawn for a cell."""
    high = max(cell.ratio.high, cell.ratio.mean) if cell.ratio else 0.0
    return max(high, cell.bound.mean if cell.bound else 0.0)


def _row(x: Axis, y: float, colour: int, cell: Cell) -> str:
    """The bar of a cell with its bound."""
    stroke = ""
    if cell.bound:
        stroke = f'<path class="bound" d="M{x(cell.bound.mean):.1f} {y + 1:.1f}v{BAR - 2}"/>'
    return (_bar(x, y, colour, cell.ratio) if cell.ratio else "") + stroke


def _figures(x: Axis, y: float, cell: Cell) -> str:
    """The ratio and the bound as text, right of the bar."""
    figure = f"{cell.ratio.mean:.2f}" if cell.ratio else ""
    if cell.bound:
        figure += f" of {cell.bound.mean:.2f}"
    return _text(x(_end(cell)) + 6, y + BAR / 2 + 4, figure, "start")


def _bar(x: Axis, y: float, colour: int, ratio: Ratio) -> str:
    middle = y + BAR / 2
    width = x(ratio.mean) - x.start
    return (
        f'<rect class="c{_shade(colour)}" x="{x.start:.1f}" y="{y + 1:.1f}" '
        f'width="{width:.1f}" height="{BAR - 2}"/>'
        f'<path class="interval" d="M{x(ratio.low):.1f} {middle:.1f}H{x(ratio.high):.1f}'
        f'M{x(ratio.low):.1f} {middle - 3:.1f}v6M{x(ratio.high):.1f} {middle - 3:.1f}v6"/>'
    )


def cost_staircase(stairs: Mapping[str, Sequence[tuple[int, float]]]) -> str:
    """Curves of a forward's milliseconds by rows, one a label; "" with fewer than two rows."""
    lines = [
        Line(name, [(float(rows), ms) for rows, ms in each])
        for name, each in stairs.items()
        if len(each) > 1  # a point is no curve
    ]
    if not lines:
        return ""
    doubling = Side("rows in one forward, doubling", spaced=math.log2)
    return _curves(lines, doubling, Side("milliseconds"))


def acceptance(summary: Summary) -> str:
    """The accepted share by position in the draft, one line per arm and source; "" for none."""
    lines = []
    for arm, cell in summary.cells[ALL].items():
        for source, count in cell.sources.items():
            drafted = count.drafted_by_position
            points = [
                (float(place), share)
                for place, share in enumerate(by_position(count)[:MAX_POSITIONS], 1)
                if share is not None and drafted[place - 1] >= MIN_DRAFTED
            ]
            if points:
                lines.append(Line(f"{arm}: {source}", points))
    if not lines:
        return ""
    return _curves(
        lines, Side("position in the draft"), Side("accepted", show="{:.0%}".format, high=1.0)
    )


def reliability(summary: Summary) -> str:
    """Expected against observed acceptance of each source's next token; "" if there is none.

    The area of a dot shows how many tokens it stands for.
    """
    if not summary.reliability:
        return ""
    bottom, side = 372.0, 360.0
    x, y = Axis(0, 1, LEFT, LEFT + side), Axis(0, 1, bottom, bottom - side)
    most = max(one.count for bins in summary.reliability.values() for one in bins)
    parts = []
    for value in x.ticks():
        parts.append(_tick_below(x, value, bottom, f"{value:.0%}"))
        parts.append(
            f'<line class="grid" x1="{x(0):.1f}" x2="{x(1):.1f}" '
            f'y1="{y(value):.1f}" y2="{y(value):.1f}"/>'
        )
        parts.append(_text(LEFT - 8, y(value) + 4, f"{value:.0%}", "end"))
    parts.append(
        f'<line class="one" x1="{x(0):.1f}" y1="{y(0):.1f}" x2="{x(1):.1f}" y2="{y(1):.1f}"/>'
    )
    for colour, bins in enumerate(summary.reliability.values()):
        parts.append(_path(colour, [(x(one.predicted), y(one.observed)) for one in bins]))
        parts += [_dot(colour, x(one.predicted), y(one.observed), one, most) for one in bins]
    parts.append(_text(x(0.5), bottom + 36, "predicted", "middle"))
    parts.append(_text(LEFT - 8, y(0.9) + 4, "observed", "end"))
    labels = legend(list(summary.reliability))
    return labels + _svg(parts, bottom + BOTTOM, "Predicted against observed acceptance")


def _dot(colour: int, px: float, py: float, one: Bin, most: int) -> str:
    radius = max(2.0, MAX_RADIUS * math.sqrt(one.count / most))
    return (
        f'<circle class="c{_shade(colour)}" cx="{px:.1f}" cy="{py:.1f}" r="{radius:.1f}">'
        f"<title>{one.count} tokens, {one.predicted:.1%} predicted, {one.observed:.1%} observed"
        "</title></circle>"
    )


def _path(colour: int, dots: Sequence[tuple[float, float]]) -> str:
    path = "L".join(f"{px:.1f} {py:.1f}" for px, py in dots)
    return f'<path class="curve s{_shade(colour)}" d="M{path}"/>'


def _curves(lines: Sequence[Line], across: Side, upward: Side) -> str:
    """Lines through their points; the vertical axis is linear and begins at 0."""
    bottom = 280.0
    places = sorted({place for line in lines for place, _ in line.points})
    top = upward.high or max(value for line in lines for _, value in line.points)
    spaced = Axis(across.spaced(places[0]), across.spaced(places[-1]), LEFT, WIDTH - RIGHT)
    x = {place: spaced(across.spaced(place)) for place in places}
    y = Axis(0, top, bottom, TOP + 16)
    parts = [_text(LEFT - 8, TOP + 2, upward.label, "end")]
    for value in y.ticks():
        parts.append(
            f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" '
            f'y1="{y(value):.1f}" y2="{y(value):.1f}"/>'
        )
        parts.append(_text(LEFT - 8, y(value) + 4, upward.show(value), "end"))
    parts += [
        _text(px, bottom + 18, across.show(place), "middle") for place, px in _labelled(x).items()
    ]
    for colour, line in enumerate(lines):
        dots = [(x[place], y(value)) for place, value in line.points]
        parts.append(_path(colour, dots))
        for px, py in dots:
            parts.append(f'<circle class="c{_shade(colour)}" cx="{px:.1f}" cy="{py:.1f}" r="3"/>')
    parts.append(_text((LEFT + WIDTH - RIGHT) / 2, bottom + 36, across.label, "middle"))
    labels = legend([line.label for line in lines])
    return labels + _svg(parts, bottom + BOTTOM, f"{upward.label} by {across.label}")


def _labelled(x: Mapping[float, float]) -> dict[float, float]:
    """Places whose labels do not touch: the first, then those most often divisible by 2."""
    shown: list[float] = []
    first = min(x)
    for place in sorted(x, key=lambda place: (place != first, -(int(place) & -int(place)))):
        if all(abs(x[place] - x[other]) >= LABEL for other in shown):
            shown.append(place)
    return {place: x[place] for place in sorted(shown)}


def _tick_below(x: Axis, value: float, y: float, text: str) -> str:
    return (
        f'<line class="grid" x1="{x(value):.1f}" x2="{x(value):.1f}" y1="{TOP}" y2="{y:.1f}"/>'
        + _text(x(value), y + 18, text, "middle")
    )


def _text(x: float, y: float, text: str, anchor: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(text)}</text>'


def _svg(parts: Sequence[str], height: float, title: str) -> str:
    return (
        f'<div class="wide"><svg viewBox="0 0 {WIDTH} {height:.0f}" role="img" '
        f'xmlns="http://www.w3.org/2000/svg"><title>{escape(title)}</title>{"".join(parts)}</svg>'
        "</div>"
    )
