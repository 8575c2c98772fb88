"""The policy that today's is measured against decides too: it drafts where that pays."""

from __future__ import annotations

from dataclasses import replace

import pytest
from control.controlled import Controlled
from control.simplest import named
from control.simulator import CODE, MACHINES, NOISE, Regime, Text, plain, play

from localspec.control.controller import Controller


def _speed(policy: str, regime: Regime, monkeypatch: pytest.MonkeyPatch) -> float:
    monkeypatch.setattr(Controlled, "policy", named(policy))
    text = Text([replace(regime, tokens=800)], 3)
    machine = MACHINES["GPU"]
    return play(machine, text, plain).time / Controlled(machine, text, 3).play().time


@pytest.mark.parametrize("policy", ["simplest", "simplest+pace"])
def test_it_drafts_where_that_pays_and_no_further(
    policy: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Code is faster than plain decoding; a text of which nobody knows anything hardly slower."""
    assert _speed(policy, CODE, monkeypatch) > 1.8
    assert _speed(policy, NOISE, monkeypatch) > 0.93


def test_policies_have_names() -> None:
    """A misspelt idea is refused, not left out."""
    assert named("today") is Controller
    assert named("simplest+pace").ideas == {"pace"}
    for wrong in ("simple", "simplest+", "simplest+pece", "today+pace"):
        with pytest.raises(ValueError, match="no policy"):
            named(wrong)
