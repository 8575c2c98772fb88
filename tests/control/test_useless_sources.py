"""A source that is hardly ever right costs next to nothing, and so do nine of them."""

from __future__ import annotations

import functools

import pytest
from control.controlled import Controlled
from control.simulator import CODE, EDIT, MACHINES, NOISE, PROSE, Text, plain, play

TEXTS = {"prose": PROSE, "code": CODE, "edit": EDIT, "noise": NOISE}
MEASURED = ("Q4_K", "H100 7B")
"""A CPU, and a GPU where rows are cheap; `control.worlds` has all machines."""
SEEDS = {"prose": 2, "code": 2, "edit": 8, "noise": 2}
"""Texts of each kind. One of edits on the H100, where drafts are long, has 0.87 to 1.18; sixteen
together have 1.006."""
MOST = 0.02
"""Of the time without them, be they one or nine. Texts of 2,000 tokens, learning included."""


@functools.cache
def _time(machine: str, text: str, useless: int) -> float:
    """Seconds of all texts of one kind."""
    return sum(
        Controlled(MACHINES[machine], Text([TEXTS[text]], seed), seed, useless=useless).play().time
        for seed in range(11, 11 + SEEDS[text])
    )


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("machine", MEASURED)
@pytest.mark.parametrize("useless", [1, 9])
def test_useless_sources_cost_next_to_nothing(machine: str, text: str, useless: int) -> None:
    """Of what the useful sources have without them, whatever they promise at first."""
    before, beside = _time(machine, text, 0), _time(machine, text, useless)
    assert beside <= (1 + MOST) * before


@pytest.mark.parametrize("machine", MEASURED)
def test_useless_sources_alone_are_never_slower_than_plain(machine: str) -> None:
    """Ten of them and no other; what is lost is within what an answer may lose."""
    mine = plainly = 0.0
    for seed in (11, 12):
        text = Text([PROSE], seed)
        plainly += play(MACHINES[machine], text, plain).time
        mine += Controlled(MACHINES[machine], text, seed, sources=(), useless=10).play().time
    assert mine <= (1 + MOST) * plainly
