"""A replay reports what would have happened and leaves no trace. Real llama.cpp, strict."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from laws.engine_harness import PROMPTS, SLOTS, Harness, finish, output
from laws.policies import FixedDepth, Lying, Raising

from localspec.engine.replay import Reading, Script, replay
from localspec.engine.sampling import Sampler
from localspec.engine.session import Session
from localspec.engine.speculation.agreement import agreement
from localspec.engine.speculation.drafting import indexed
from localspec.engine.step import Engine
from localspec.errors import Busy
from localspec.types import Draft, Drafter, DraftRequest, SamplingParams, Signal, Token

GREEDY = SamplingParams(temperature=0.0)
MAX_DRAFT = 12
ORDINARY = 65
"""A token of the tiny models that is a letter."""


def _prior(signal: Signal) -> float:
    return signal.prior


def _always(_signals: Sequence[Signal]) -> bool:
    return True


def _script(session: Session, text: Sequence[Token], drafters: list[str] | None = None) -> Script:
    return Script("someone", session.request.prompt, [], list(text), drafters, MAX_DRAFT)


def _read(engine: Engine, script: Script) -> Reading:
    """Lead a script through to its end."""
    work = replay(engine, script, _prior)
    while True:
        try:
            next(work)
        except StopIteration as done:
            reading = done.value
            assert isinstance(reading, Reading)
            return reading


def _answered(harness: Harness, prompt: str, tokens: int = 40) -> Session:
    """A greedy answer of plain decoding."""
    (session,) = finish(
        harness.engine({}, FixedDepth(0)), [harness.request(prompt, GREEDY, tokens=tokens)]
    )
    return session


def _survivors(drafter: Drafter, prompt: list[Token], text: list[Token]) -> list[int]:
    """Accepted tokens at each position, by opening the drafter anew at each."""
    found = []
    for position in range(len(text)):
        opened = drafter.open(0, [*prompt, *text[:position]], Sampler(GREEDY))
        list(indexed(drafter, opened))
        (draft,) = drafter.propose([DraftRequest(opened, Draft(), MAX_DRAFT, _always)])
        opened.close()
        found.append(agreement(draft, text[position:]))
    return found


@pytest.mark.parametrize("prompt", PROMPTS)
def test_a_greedy_text_has_no_gaps_and_is_continued_by_the_likeliest_token(
    harness: Harness, prompt: str
) -> None:
    """The target chooses each token again; after the end the replay gives the next one."""
    session = _answered(harness, prompt)
    text = output(session)
    for count in (0, 1, 32, 33, len(text) - 1):
        reading = _read(harness.engine({}, FixedDepth(0)), _script(session, text[:count]))
        assert reading.gaps == [0.0] * count
        assert len(reading.margins) == count + 1
        assert all(margin >= 0 for margin in reading.margins)
        assert reading.likeliest[0] == text[count]
        assert reading.traces == {}


def test_a_token_that_greedy_would_not_choose_has_a_gap(
    harness: Harness,
) -> None:
    """The gap is 0 at all tokens before it, and there its distance to the largest logit."""
    session = _answered(harness, PROMPTS[0])
    text = output(session)
    wrong = next(token for token in (ORDINARY, ORDINARY + 1) if token != text[5])
    changed = [*text[:5], wrong]
    reading = _read(harness.engine({}, FixedDepth(0)), _script(session, changed))
    before = _read(harness.engine({}, FixedDepth(0)), _script(session, text[:5]))
    assert reading.gaps[:5] == [0.0] * 5
    assert reading.gaps[5] >= reading.margins[5] == before.margins[5] > 0
    assert before.likeliest[0] == text[5]


@pytest.mark.parametrize("prompt", PROMPTS)
def test_traces_are_what_each_drafter_would_have_proposed(harness: Harness, prompt: str) -> None:
    """At each position equal to a drafter that begins there and drafts a whole chain."""
    session = _answered(harness, prompt, tokens=48)
    text = output(session)
    reading = _read(
        harness.engine(harness.drafters("lookup", "model"), FixedDepth(0)), _script(session, text)
    )
    model = reading.traces["model"]
    assert not model.free
    (drafter,) = harness.drafters("model").values()
    assert model.survives == _survivors(drafter, session.request.prompt, text)
    assert all(predicted is not None for predicted in model.predicted)
    lookup = reading.traces["lookup"]
    assert lookup.free
    assert len(lookup.survives) == len(lookup.predicted) == len(text)
    for trace in (lookup, model):
        for position, survives in enumerate(trace.survives):
            assert 0 <= survives <= min(MAX_DRAFT, len(text) - position)
            assert trace.predicted[position] is not None or survives == 0


def test_a_copy_survives_as_long_as_it_is_one(harness: Harness) -> None:
    """Lookup gets through a text that the prompt holds already."""
    passage = harness.target.tokenize(
        "the quick brown fox jumps over", add_special=False, parse_special=False
    )
    script = Script("someone", [*passage, ORDINARY], [], passage, ["lookup"], MAX_DRAFT)
    reading = _read(harness.engine(harness.drafters("lookup", "model"), FixedDepth(0)), script)
    assert set(reading.traces) == {"lookup"}
    survives = reading.traces["lookup"].survives
    assert max(survives) == MAX_DRAFT
    assert survives[-4:] == [4, 3, 2, 1]


@pytest.mark.parametrize("pieces", [0, 1, 2, 3, 9, 50, None])
def test_a_slot_claims_only_what_it_holds_after_a_replay(
    harness: Harness, pieces: int | None
) -> None:
    """Ended or given up after any piece of work: the next request of the same text is unchanged."""
    session = _answered(harness, PROMPTS[0])
    text = output(session)
    engine = harness.engine(harness.drafters("lookup", "model"), FixedDepth(6, "model"))
    work = replay(engine, _script(session, text), _prior)
    for _ in range(pieces if pieces is not None else 1 << 30):
        if next(work, "over") == "over":
            break
    work.close()
    assert engine.free_slots == SLOTS
    request = harness.request([*session.request.prompt, *text[:20]], GREEDY, tokens=20)
    (again,) = finish(engine, [request])
    assert output(again) == text[20:]
    if pieces is None:
        assert again.cached_tokens == again.n_prompt - 1
    if pieces == 0:
        assert again.cached_tokens == 0


def test_streams_go_on_beside_a_replay_and_neither_shows_in_the_other(harness: Harness) -> None:
    """One step of the engine after each piece of work: all tokens and figures as when alone."""
    session = _answered(harness, PROMPTS[2])
    text = output(session)
    script = _script(session, text)
    drafters = "lookup", "model"
    alone = _read(harness.engine(harness.drafters(*drafters), FixedDepth(0)), script)
    requests = [harness.request(prompt, GREEDY) for prompt in PROMPTS[: SLOTS - 1]]
    plain = [
        output(finish(harness.engine({}, FixedDepth(0)), [request])[0]) for request in requests
    ]

    engine = harness.engine(harness.drafters(*drafters), FixedDepth(5, "model"))
    sessions = [engine.admit(request) for request in requests]
    work = replay(engine, script, _prior)
    reading: Reading | None = None
    while engine.sessions or reading is None:
        for advance in engine.step():
            if advance.finish is not None:
                engine.retire(advance.session)
        if reading is None:
            try:
                next(work)
            except StopIteration as done:
                reading = done.value
    assert [output(one) for one in sessions] == plain
    assert reading is not None
    assert (reading.gaps, reading.traces) == (alone.gaps, alone.traces)


def test_a_replay_without_a_slot_takes_nothing(harness: Harness) -> None:
    """It is refused, and the sessions end as if it had not been."""
    engine = harness.engine({}, FixedDepth(0))
    requests = [harness.request(PROMPTS[0], GREEDY, tokens=8)] * SLOTS
    sessions = [engine.admit(request) for request in requests]
    with pytest.raises(Busy):
        next(replay(engine, _script(sessions[0], []), _prior))
    while engine.sessions:
        for advance in engine.step():
            if advance.finish is not None:
                engine.retire(advance.session)
    assert len({tuple(output(session)) for session in sessions}) == 1
    assert engine.free_slots == SLOTS


def test_a_drafter_that_fails_or_lies_costs_a_replay_its_trace_and_nothing_else(
    harness: Harness,
) -> None:
    """One that raises has no trace; tokens that do not exist never survive."""
    session = _answered(harness, PROMPTS[0])
    text = output(session)
    n_vocab = harness.target.n_vocab
    bad: dict[str, Drafter] = {"raising": Raising(n_vocab), "lying": Lying(n_vocab)}
    reading = _read(
        harness.engine({**bad, **harness.drafters("lookup")}, FixedDepth(0)), _script(session, text)
    )
    assert set(reading.traces) == {"lying", "lookup"}
    assert set(reading.traces["lying"].survives) == {0}
    assert reading.gaps == [0.0] * len(text)


def test_the_context_may_be_filled_to_its_last_token(harness: Harness) -> None:
    """Padding rows of the last forward still have their positions."""
    engine = harness.engine(harness.drafters("lookup", "model"), FixedDepth(0))
    prompt = [ORDINARY] * (engine.context - 30)
    script = Script("someone", prompt, [], [ORDINARY] * 30, None, MAX_DRAFT)
    reading = _read(engine, script)
    assert len(reading.gaps) == 30
    assert reading.traces["lookup"].survives[:3] == [MAX_DRAFT] * 3
    assert len(reading.traces["model"].survives) == 30
