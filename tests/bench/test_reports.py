"""Markdown, page and plots, written from results."""

from __future__ import annotations

import itertools
import re
from html.parser import HTMLParser
from xml.etree import ElementTree as ET

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from measured import MODEL, answer, results
from numpy.typing import NDArray

from localspec.bench import page, plots, report
from localspec.bench.results import Replay, Results, staircase
from localspec.bench.summary import summarize
from localspec.wire.messages import Trace

VOID = {"meta", "i"}
SVG = "{http://www.w3.org/2000/svg}"


def two_slices() -> Results:
    """Plain and auto on two slices."""
    return results(
        *(answer(name, "plain", 2.0) for name in ("qa/1", "edit/1", "edit/2")),
        answer("qa/1", "auto", 2.5),
        *(answer(name, "auto", 1.0) for name in ("edit/1", "edit/2")),
    )


def svgs(html: str) -> list[ET.Element]:
    """Every picture of a page, parsed strictly."""
    found = re.findall(r"<svg.*?</svg>", html, re.DOTALL)
    return [ET.fromstring(svg) for svg in found]  # noqa: S314  written by ourselves


def test_every_table_is_as_wide_as_its_head() -> None:
    """And the first one is the main figure: the ratio with its interval, by slice."""
    measured = two_slices()
    tables = report.tables(measured, summarize(measured))
    for table in tables:
        assert {len(row) for row in table.rows} == {len(table.head)}, table.title
    assert tables[0].rows == [
        ["qa", "1", "0.80"],
        ["edit", "2", "2.00 [2.00, 2.00]"],
        ["all", "3", "1.47 [0.80, 2.00]"],
    ]


def test_markdown_says_where_and_how_it_was_measured() -> None:
    """A figure without its machine and settings is a rumour."""
    measured = two_slices()
    text = report.markdown(measured, summarize(measured))
    for fact in ("a <fast> machine", "exactness strict", "3 prompts, 1 repeat,", "greedy"):
        assert fact in text
    assert "| lookup | 80% | 33% |" in text
    assert "| 4 | 60.0 | 3.00 | 15.0 |" in text


def test_a_pipe_in_a_name_does_not_break_a_row() -> None:
    """Prompt names come from files."""
    measured = results(answer("qa/a|b", "plain", 2.0), answer("qa/a|b", "auto", 1.0))
    (row,) = [
        line
        for line in report.markdown(measured, summarize(measured)).splitlines()
        if "a\\|b" in line
    ]
    assert row.replace("\\|", "").count("|") == 8


class Tags(HTMLParser):
    """Collects what a page would load, and whether its tags are closed."""

    def __init__(self) -> None:
        super().__init__()
        self.loads: list[str] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Remember it."""
        self.loads += [name for name, _ in attrs if name in ("src", "href", "xlink:href")]
        self.loads += [tag] * (tag in ("script", "link", "iframe", "img"))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        """Must close what was opened last."""
        if tag not in VOID:
            assert self.open.pop() == tag


def test_the_page_is_whole_and_fetches_nothing() -> None:
    """It can be sent by mail and opened without a network; colours are light and dark."""
    measured = two_slices()
    html = page.html(measured, summarize(measured))
    tags = Tags()
    tags.feed(html)
    assert tags.loads == []
    assert tags.open == []
    assert "url(" not in html
    assert "@import" not in html
    assert html.count("--c5: #") == html.count("--paper: #") == 2
    assert "prefers-color-scheme: dark" in html
    assert len(svgs(html)) == 3


def test_a_narrow_page_scrolls_what_would_be_too_small_to_read() -> None:
    """A plot is not shrunk to the width of a phone, nor is a table; words stand on the left."""
    measured = two_slices()
    html = page.html(measured, summarize(measured))
    assert re.findall(r"<svg", html) == re.findall(r"(?<=<div class=\"wide\">)<svg", html)
    assert "svg { min-width: " in html
    assert '<td class="word">auto</td>' in html
    assert '<td class="word">2.00' not in html


def in_hindsight() -> Results:
    """Two slices and a replay of one text, in which lookup was sometimes right."""
    trace = Trace(True, [0, 3, 2, 1, 0], [None, 0.9, 0.9, 0.4, 0.4])
    return msgspec.structs.replace(
        two_slices(), replays=[Replay("qa/1", 0, 5, 8, {"lookup": trace})]
    )


def test_a_bound_is_shown_beside_its_ratio() -> None:
    """In the table, in Markdown, and as a stroke on the bar; slices without one have a dash."""
    measured = in_hindsight()
    summary = summarize(measured)
    table = report.tables(measured, summary)[1]
    assert table.head == ["slice", "arm", "ratio", "tuned", "bound", "reached"]
    assert table.rows == [
        ["qa", "auto", "0.80", "1.33", "1.33", "60%"],
        ["edit", "auto", "2.00", "-", "-", "-"],
        ["all", "auto", "1.47", "1.33", "1.33", "60%"],
    ]
    assert "| qa | auto | 0.80 | 1.33 | 1.33 | 60% |" in report.markdown(measured, summary)
    (svg,) = svgs(plots.speedups(summary))
    strokes = [path for path in svg.iter(f"{SVG}path") if path.get("class") == "bound"]
    assert len(strokes) == 2


def test_reliability_is_a_dot_for_each_bin_where_it_belongs() -> None:
    """Predicted to the right, observed upward, the area by the number of tokens."""
    measured = in_hindsight()
    (svg,) = svgs(plots.reliability(summarize(measured)))
    low, high = sorted(svg.iter(f"{SVG}circle"), key=lambda dot: float(dot.get("cx", 0)))
    (one,) = [line for line in svg.iter(f"{SVG}line") if line.get("class") == "one"]
    left, right = float(one.get("x1", 0)), float(one.get("x2", 0))
    bottom, top = float(one.get("y1", 0)), float(one.get("y2", 0))
    for dot, predicted, observed in ((low, 0.4, 0.5), (high, 0.9, 1.0)):
        assert float(dot.get("cx", 0)) == pytest.approx(left + predicted * (right - left), abs=0.1)
        assert float(dot.get("cy", 0)) == pytest.approx(bottom + observed * (top - bottom), abs=0.1)
        assert dot.get("r") == f"{plots.MAX_RADIUS:.1f}"
        assert dot.findtext(f"{SVG}title", "").startswith("2 tokens")
    assert "| lookup | 40% to 50% | 40.0% | 50.0% | 2 |" in report.markdown(
        measured, summarize(measured)
    )
    assert len(svgs(page.html(measured, summarize(measured)))) == 4


def test_what_a_file_or_a_server_says_is_text_on_the_page() -> None:
    """Names of prompts, servers and machines cannot become markup."""
    evil = "</svg><script>alert(1)</script>"
    measured = results(
        answer(f"{evil}/1", "plain", 2.0),
        answer(f"{evil}/1", evil, 1.0, sources={}),
        model=MODEL | {"name": evil},
        skipped={"x": evil},
    )
    assert "<script" not in page.html(measured, summarize(measured))


def test_bars_are_as_long_as_the_ratios() -> None:
    """Twice as fast is a bar twice as long as the way to the line at 1."""
    measured = two_slices()
    (svg,) = svgs(plots.speedups(summarize(measured)))
    widths = [float(bar.get("width", 0)) for bar in svg.iter(f"{SVG}rect")]
    (one,) = [line for line in svg.iter(f"{SVG}line") if line.get("class") == "one"]
    reach = float(one.get("x1", 0)) - plots.LEFT
    assert widths == pytest.approx([reach * ratio for ratio in (0.8, 2.0, 3.2 ** (1 / 3))], abs=0.2)


def test_nothing_measured_draws_nothing() -> None:
    """No empty axes."""
    measured = results(answer("qa/1", "plain", 2.0), model={"name": "tiny"})
    summary = summarize(measured)
    assert plots.speedups(summary) == ""
    assert plots.acceptance(summary) == ""
    assert plots.reliability(summary) == ""
    assert plots.cost_staircase({"one": staircase(measured.model)}) == ""
    assert "<svg" not in page.html(measured, summary)
    assert "| qa | 1 |" in report.markdown(measured, summary)


@given(st.floats(0, 1e4), st.floats(1e-3, 1e4))
def test_ticks_are_few_round_and_inside(low: float, span: float) -> None:
    """An axis is readable at any scale."""
    ticks = plots.Axis(low, low + span, 0, 100).ticks()
    assert len(ticks) <= plots.TICKS + 1
    assert all(low - 1e-6 * span <= tick <= low + span * (1 + 1e-6) for tick in ticks)
    assert ticks == sorted(ticks)


@given(st.dictionaries(st.integers(1, 64), st.floats(0.01, 1e4), min_size=2))
def test_any_staircase_is_drawn_with_all_of_its_points(costs: dict[int, float]) -> None:
    """One dot per row count, each inside the picture."""
    (svg,) = svgs(plots.cost_staircase({"one": sorted(costs.items())}))
    dots = list(svg.iter(f"{SVG}circle"))
    assert len(dots) == len(costs)
    assert all(0 <= float(dot.get("cx", -1)) <= plots.WIDTH for dot in dots)
    assert all(0 <= float(dot.get("cy", -1)) <= 320 for dot in dots)
    labels = [text for text in svg.iter(f"{SVG}text") if text.get("y") == "298.0"]
    places = [float(text.get("x", -1)) for text in labels]
    assert labels[0].text == str(min(costs))
    assert all(right - left >= plots.LABEL for left, right in itertools.pairwise(places))


KINDS_OF_SIGHT = {
    "all": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "no red": ((0.152, 1.053, -0.205), (0.115, 0.786, 0.099), (-0.004, -0.048, 1.052)),
    "no green": ((0.367, 0.861, -0.228), (0.280, 0.673, 0.047), (-0.012, 0.043, 0.969)),
    "no blue": ((1.256, -0.077, -0.179), (-0.078, 0.931, 0.148), (0.005, 0.691, 0.304)),
}
"""Of linear RGB, for dichromats: Machado, Oliveira and Fernandes 2009."""
CONES = ((0.41222, 0.53633, 0.05145), (0.21190, 0.68070, 0.10740), (0.08830, 0.28172, 0.62998))
OKLAB = ((0.21045, 0.79362, -0.00407), (1.97800, -2.42859, 0.45059), (0.02590, 0.78277, -0.80868))
"""Linear RGB to the cones' answers, and their cube roots to a space of equal differences."""


def linear(colour: str) -> NDArray[np.float64]:
    """A colour of the page as linear RGB."""
    given = np.array([int(colour[at : at + 2], 16) for at in (1, 3, 5)]) / 255
    return np.where(given <= 0.04045, given / 12.92, ((given + 0.055) / 1.055) ** 2.4)


def seen(colour: str, sight: str) -> NDArray[np.float64]:
    """A colour as those people see it: distances are differences."""
    light = np.clip(np.array(KINDS_OF_SIGHT[sight]) @ linear(colour), 0, 1)
    return np.array(OKLAB) @ np.cbrt(np.array(CONES) @ light)


@pytest.mark.parametrize("sight", KINDS_OF_SIGHT)
@pytest.mark.parametrize(
    ("palette", "paper"), [(page.LIGHT, page.LIGHT_PAPER), (page.DARK, page.DARK_PAPER)]
)
def test_any_two_colours_differ_for_everybody(
    palette: tuple[str, ...], paper: str, sight: str
) -> None:
    """By a tenth of the way from black to white, and from the paper too."""
    assert len(palette) == plots.COLOURS
    for one, other in itertools.combinations((*palette, paper), 2):
        assert np.linalg.norm(seen(one, sight) - seen(other, sight)) > 0.1, (one, other)


def test_no_two_sources_of_a_plot_look_the_same() -> None:
    """However many there are: those beyond the palette are pale and dashed."""
    classes = re.findall(r'<i class="([^"]*)"', plots.legend([*map(str, range(17))]))
    assert len(set(classes)) == 17
