"""Tables of machines: what a forward costs by its history, and no hole gets through."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec import machine, toml
from localspec.bench import tables
from localspec.errors import ConfigError, RequestError
from localspec.machine import Forwards, Head, History, Host, Machine

GOOD: dict[str, Any] = {
    "name": "some GPU",
    "source": "measured",
    "target": {"steady_ms": {"1": 2.0, "4": 3.0, "8": 4.0}, "change_ms": 1.0, "settle_ms": 0.5},
    "draft": {"steady_ms": {"1": 1.0}, "change_ms": {"1": 2.0, "9": 4.0}, "look_ms": 0.001},
    "host": {"round_ms": 0.3, "row_ms": 0.1, "asked_ms": 0.5},
    "head": {"token_ms": 0.2},
}
MS = st.floats(0.001, 1000)
ROWS = st.dictionaries(st.integers(1, 64), MS, max_size=5)
CURVES = st.floats(0, 100) | ROWS.filter(bool).map(lambda rows: dict(sorted(rows.items())))
FORWARDS = st.builds(
    Forwards,
    st.tuples(MS, ROWS).map(lambda made: dict(sorted((made[1] | {1: made[0]}).items()))),
    CURVES,
    CURVES,
    st.floats(0, 0.1),
    st.none() | st.floats(0, 1),
)


def parsed(values: dict[str, Any]) -> Machine:
    """As if it had been a file."""
    return machine.parse(toml.write(values), "table.toml")


@given(
    FORWARDS,
    FORWARDS,
    st.floats(0, 10),
    st.floats(0, 1),
    st.none() | st.builds(Head, MS, st.sampled_from(("feature", "fed"))),
)
def test_a_written_table_is_read_as_it_was(
    target: Forwards, draft: Forwards, round_ms: float, row_ms: float, head: Head | None
) -> None:
    """`bench --machine` takes what `make bench-gpu` writes."""
    made = Machine("m", "s", target, draft, Host(round_ms, row_ms), head)
    assert parsed(msgspec.to_builtins(made, str_keys=True)) == made


@given(FORWARDS, st.lists(st.integers(1, 100), min_size=1, max_size=12), st.floats(0, 5000))
def test_a_forward_costs_what_its_rows_and_those_before_say(
    forwards: Forwards, rows: list[int], behind: float
) -> None:
    """The first of a row count pays the change, the second settles, every further one is steady."""
    history = History(forwards)
    for place, count in enumerate(rows):
        alike = 0
        while alike < place and rows[place - 1 - alike] == count:
            alike += 1
        charged = history.charge_ms(count, behind)
        steady = forwards.forward_ms(count, 2, behind)
        assert charged == forwards.forward_ms(count, min(alike, 2), behind)
        assert charged == steady if alike >= 2 else charged >= steady


def test_between_listed_rows_are_lines_and_beyond_them_a_slope() -> None:
    """Or what reading a row is said to cost; a flat extra is the same everywhere."""
    target = parsed(GOOD).target
    costs = [target.forward_ms(rows, 2) for rows in (1, 2, 4, 6, 8, 16)]
    assert costs == pytest.approx([2.0, 2 + 1 / 3, 3.0, 3.5, 4.0, 6.0])
    assert [target.forward_ms(4, alike) for alike in (0, 1, 2, 3)] == [4.0, 3.5, 3.0, 3.0]
    assert Forwards({1: 2.0}).forward_ms(3, 2) == 6.0
    assert Forwards({1: 2.0}, read_row_ms=0.5).forward_ms(3, 2) == 3.0
    draft = parsed(GOOD).draft
    assert draft.forward_ms(5, 0) - draft.forward_ms(5, 2) == pytest.approx(3.0)
    assert draft.forward_ms(1, 2, 500) == pytest.approx(1.5)


def test_the_host_works_for_a_round_and_for_each_further_row() -> None:
    """A plain round verifies one; where there are more, drafters were asked."""
    assert [parsed(GOOD).host.work_ms(rows) for rows in (1, 2, 5)] == pytest.approx([0.3, 0.9, 1.2])


def test_a_machine_waits_for_its_gpu() -> None:
    """Where a table has none, nothing is done beside a forward."""
    gpu, cpu = {"name": "A", "memory_gib": 8.0}, {"name": "B", "memory_gib": 8.0, "kind": "cpu"}
    assert parsed(GOOD | {"device": [cpu, gpu]}).waits
    assert not parsed(GOOD | {"device": [cpu]}).waits
    assert not parsed(GOOD).waits


HOLES: dict[str, tuple[tuple[str, ...], Any, str]] = {
    "no draft": (("draft",), None, "draft"),
    "no target": (("target",), None, "target"),
    "no price of one row": (("target", "steady_ms"), {"2": 1.0}, "what one row costs"),
    "no prices": (("draft", "steady_ms"), {}, "what one row costs"),
    "rows out of order": (("target", "steady_ms"), {"4": 2.0, "1": 1.0}, "do not ascend"),
    "no rows": (("target", "steady_ms"), {"0": 1.0, "1": 2.0}, "0 rows"),
    "negative time": (("target", "steady_ms"), {"1": 1.0, "2": -3.0}, "-3.0 ms"),
    "no time": (("target", "steady_ms"), {"1": 0.0}, "no time"),
    "negative change": (("draft", "change_ms"), -1.0, "-1.0 ms"),
    "an empty curve": (("draft", "settle_ms"), {}, "settle_ms is empty"),
    "a word": (("target", "steady_ms"), {"1": "fast"}, "target.steady_ms"),
    "a row that is none": (("target", "steady_ms"), {"one": 1.0}, "steady_ms"),
    "an unknown key": (("target", "stedy_ms"), {"1": 1.0}, "stedy_ms"),
    "negative host": (("host", "round_ms"), -0.1, "host.round_ms"),
    "negative asking": (("host", "asked_ms"), -0.1, "host.asked_ms"),
    "negative head": (("head", "token_ms"), -0.1, "head.token_ms"),
    "a head of no price": (("head",), {}, "token_ms"),
}


@pytest.mark.parametrize("hole", HOLES)
def test_holes_are_refused_in_a_sentence(hole: str) -> None:
    """With the file and the field; nothing has been loaded then."""
    place, value, word = HOLES[hole]
    table: dict[str, Any] = tomllib.loads(toml.write(GOOD))
    inner = table
    for name in place[:-1]:
        inner = inner[name]
    inner[place[-1]] = value
    with pytest.raises(ConfigError, match=r"table\.toml") as caught:
        parsed(table)
    assert word in str(caught.value)


@pytest.mark.parametrize("number", ["nan", "inf", "-inf"])
def test_what_is_no_number_is_a_hole(number: str) -> None:
    """TOML can write it, and a clock cannot be moved by it."""
    text = toml.write(GOOD).replace("3.0", number)
    with pytest.raises(ConfigError, match=r"target\.steady_ms"):
        machine.parse(text, "table.toml")
    with pytest.raises(ConfigError, match="not valid TOML"):
        machine.parse("[target", "table.toml")


def test_every_shipped_machine_is_whole_and_says_where_it_is_from() -> None:
    """By its name; others by their path."""
    assert {"h100-1.5b", "h100-1.5b-graphs", "h100-7b", "h100-32b"} < set(tables.names())
    for name in tables.names():
        path, found = tables.find(name)
        assert len(found.source) > 50
        assert tables.find(str(path)) == (path, found)


def test_a_machine_that_is_not_there_is_told(tmp_path: Path) -> None:
    """With those that are; a file that cannot be read too."""
    with pytest.raises(RequestError, match="h100-7b"):
        tables.find("cray-1")
    binary = tmp_path / "binary.toml"
    binary.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError, match="cannot be read"):
        tables.find(str(binary))
