"""A source that is hardly ever right costs next to nothing, and so do nine of them."""

from __future__ import annotations

import pytest
from control.controlled import Controlled
from control.simulator import CODE, EDIT, MACHINES, NOISE, PROSE, Regime, Text, plain, play

TEXTS = {"prose": PROSE, "code": CODE, "edit": EDIT, "noise": NOISE}
MEASURED = ("Q4_K", "H100 7B")
"""A CPU, and a GPU where rows are cheap; `control.worlds` has all machines."""
SEEDS = (11, 12)
MOST = {1: 0.02, 9: 0.04}
"""Of the time without them, by their number. A text of two thousand tokens, learning included; of
nine beside an edit on the H100, where drafts are long, it is 0.033, elsewhere less than 0.02."""


def _time(machine: str, regime: Regime, useless: int) -> float:
    return sum(
        Controlled(MACHINES[machine], Text([regime], seed), seed, useless=useless).play().time
        for seed in SEEDS
    )


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("machine", MEASURED)
@pytest.mark.parametrize("useless", [1, 9])
def test_useless_sources_cost_next_to_nothing(machine: str, text: str, useless: int) -> None:
    """Of what the useful sources have without them, whatever they promise at first."""
    regime = TEXTS[text]
    before, beside = _time(machine, regime, 0), _time(machine, regime, useless)
    assert beside <= (1 + MOST[useless]) * before


@pytest.mark.parametrize("machine", MEASURED)
def test_useless_sources_alone_are_never_slower_than_plain(machine: str) -> None:
    """Ten of them and no other; what is lost is within what an answer may lose."""
    mine = plainly = 0.0
    for seed in SEEDS:
        text = Text([PROSE], seed)
        plainly += play(MACHINES[machine], text, plain).time
        mine += Controlled(MACHINES[machine], text, seed, sources=(), useless=10).play().time
    assert mine <= (1 + MOST[1]) * plainly
