"""Every reason not to speculate, and the lengths that a client's requests have had."""

from __future__ import annotations

import re
import typing
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.engine import routing
from localspec.engine.routing import (
    SHORT_TOKENS,
    Expectation,
    HotAcceptance,
    Lengths,
    Reason,
    RequestFacts,
    route,
)

USUAL = RequestFacts(mode="auto", drafters=("lookup",), predicted_tokens=200)


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        (USUAL, "speculating"),
        (replace(USUAL, mode="off"), "off-by-request"),
        (replace(USUAL, can_roll_back=False), "no-rollback"),
        (replace(USUAL, drafters=()), "no-drafter"),
        (replace(USUAL, drafters=(), pair_fits=False), "pair-mismatch"),
        (replace(USUAL, pair_fits=False), "speculating"),
        (replace(USUAL, predicted_tokens=SHORT_TOKENS - 1), "short-request"),
        (replace(USUAL, predicted_tokens=SHORT_TOKENS), "speculating"),
        (replace(USUAL, temperature=1.2, acceptance=0.05), "high-temperature"),
        (replace(USUAL, temperature=1.2, acceptance=None), "speculating"),
        (replace(USUAL, temperature=1.2, acceptance=0.8), "speculating"),
        (replace(USUAL, temperature=0.2, acceptance=0.05), "speculating"),
    ],
)
def test_each_fact_leads_to_its_reason(facts: RequestFacts, reason: Reason) -> None:
    """One line per branch of the table, and the edges beside it."""
    assert route(facts) == reason


@given(
    st.builds(
        RequestFacts,
        mode=st.just("always"),
        drafters=st.sampled_from([(), ("lookup",), ("lookup", "model")]),
        predicted_tokens=st.floats(0, 1000),
        pair_fits=st.booleans(),
        can_roll_back=st.booleans(),
        temperature=st.floats(0, 3),
        acceptance=st.none() | st.floats(0, 1),
    )
)
def test_always_overrides_everything_that_is_not_impossible(facts: RequestFacts) -> None:
    """It speculates whenever it can: rows can be rolled back and a drafter is there."""
    possible = facts.can_roll_back and bool(facts.drafters)
    assert (route(facts) == "speculating") == possible


def test_every_reason_stands_in_the_table() -> None:
    """The module's table is the documentation that responses and logs refer to."""
    assert routing.__doc__ is not None
    rows = re.findall(r"^\| \d+ \| (\S+) \|", routing.__doc__, re.MULTILINE)
    assert set(rows) == set(typing.get_args(Reason))


def test_a_client_with_short_answers_is_predicted_to_get_another() -> None:
    """History is kept per client and endpoint; without any, only max_tokens tells."""
    lengths = Lengths()
    assert lengths.predict("editor", "chat", None) > SHORT_TOKENS
    assert lengths.predict("editor", "chat", 10) == 10
    for _ in range(3):
        lengths.observe("editor", "chat", 12)
    assert lengths.predict("editor", "chat", 500) == 12
    assert lengths.predict("editor", "completion", 500) > SHORT_TOKENS
    assert lengths.predict("terminal", "chat", 500) > SHORT_TOKENS
    assert lengths.predict("editor", "infill", None) < SHORT_TOKENS


def test_an_answer_is_expected_to_go_on_as_those_before_it_did() -> None:
    """Only longer ones tell, and few of them little; a prediction tells most."""
    lengths = Lengths()
    unknown = lengths.expect("terminal", "chat")
    assert unknown.remaining(0) == unknown.remaining(64) == 32
    assert unknown.remaining(500) == 468
    for tokens in (10, 12, 500, 500):
        lengths.observe("terminal", "chat", tokens)
    known = lengths.expect("terminal", "chat")
    assert known.remaining(5) < known.remaining(20) < 480
    for _ in range(14):
        lengths.observe("terminal", "chat", 500)
    assert 300 < lengths.expect("terminal", "chat").remaining(20) < 480
    assert lengths.expect("terminal", "chat").remaining(501) == 469
    assert lengths.expect("terminal", "completion").remaining(20) == 32
    assert lengths.expect("terminal", "completion", at_least=900).remaining(20) == 880


@given(st.lists(st.integers(0, 4096), max_size=16), st.integers(0, 4096))
def test_something_is_always_expected(answers: list[int], n_output: int) -> None:
    """Never nothing, and never more than a doubling or the longest answer would give."""
    remaining = Expectation(tuple(answers)).remaining(n_output)
    assert 0 < remaining <= max([32, n_output, *(tokens - n_output for tokens in answers)])


def test_one_odd_answer_changes_no_prediction() -> None:
    """The upper quartile: a single outlier in either direction is not the rule."""
    lengths = Lengths()
    for tokens in (300, 310, 320, 5, 305, 4000, 315, 308):
        lengths.observe("a", "chat", tokens)
    assert 300 <= lengths.predict("a", "chat", None) <= 400


@given(st.lists(st.integers(0, 10_000), min_size=3, max_size=60), st.integers(1, 5000))
def test_a_prediction_lies_among_the_last_answers_and_under_the_limit(
    answers: list[int], limit: int
) -> None:
    """All before the last 16 answers is forgotten."""
    lengths = Lengths()
    for tokens in answers:
        lengths.observe("a", "chat", tokens)
    assert lengths.predict("a", "chat", None) in answers[-16:]
    assert lengths.predict("a", "chat", limit) <= limit


def test_strangers_do_not_fill_the_memory() -> None:
    """The client seen longest ago is forgotten first."""
    lengths = Lengths()
    for _ in range(3):
        lengths.observe("old", "chat", 7)
        lengths.observe("regular", "chat", 9)
    for number in range(1023):
        lengths.observe(f"stranger {number}", "chat", 5)
        lengths.observe("regular", "chat", 9)
    assert lengths.predict("regular", "chat", None) == 9
    assert lengths.predict("old", "chat", None) == lengths.predict("nobody", "chat", None)


def test_hot_requests_that_were_rejected_are_tried_again_after_a_while() -> None:
    """Poor acceptance turns hot speculation off, and silence lets it be tried anew."""
    heat = HotAcceptance()
    assert heat.acceptance(1.0) is None
    heat.observe(1.0, drafted=100, accepted=10)
    assert heat.acceptance(1.0) == pytest.approx(0.1)
    assert heat.acceptance(0.1) is None
    heat.observe(0.1, drafted=100, accepted=100)
    assert heat.acceptance(1.0) == pytest.approx(0.1)
    for _ in range(30):
        heat.observe(1.0, drafted=0, accepted=0)
    assert heat.acceptance(1.0) is None
