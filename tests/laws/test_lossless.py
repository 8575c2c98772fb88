"""The first promise: speculation never changes a token. Real llama.cpp, strict, tiny models."""

from __future__ import annotations

import pytest
from laws.engine_harness import PROMPTS, SLOTS, Harness, finish, output
from laws.policies import FixedDepth, Lying, Raising, Rubbish

from localspec.types import Drafter, SamplingParams, SourceCount, SpeculationParams

CHAINS = {
    "greedy": SamplingParams(temperature=0.0),
    "seeded": SamplingParams(temperature=0.8, seed=1234),
    "penalties": SamplingParams(
        temperature=0.4,
        seed=5,
        top_k=0,
        repetition_penalty=1.05,
        frequency_penalty=0.1,
        presence_penalty=-0.2,
        logit_bias={65: 2.0, 66: -100.0},
    ),
}
DEPTHS = (1, 2, 4, 7, 15)


def _cell(harness: Harness, name: str) -> tuple[dict[str, Drafter], str | None]:
    """The drafters of a cell, and which of them is the neural one."""
    adversaries = {"rubbish": Rubbish, "lying": Lying, "raising": Raising}
    if name in adversaries:
        return {name: adversaries[name](harness.target.n_vocab)}, None
    names = name.split("+")
    return harness.drafters(*names), "model" if "model" in names else None


@pytest.mark.parametrize("chain", CHAINS)
@pytest.mark.parametrize(
    "drafter", ["rubbish", "lookup", "feature_head", "model", "lookup+grammar+feature_head+model"]
)
def test_any_drafter_at_any_depth_gives_the_tokens_of_plain_decoding(
    harness: Harness, chain: str, drafter: str
) -> None:
    """For 1 to 4 sessions and each depth, tokens equal; drafts were accepted and rejected."""
    sampling = CHAINS[chain]
    requests = [harness.request(prompt, sampling) for prompt in PROMPTS]
    plain = [
        output(finish(harness.engine({}, FixedDepth(0)), [request])[0]) for request in requests
    ]
    drafted = accepted = 0

    for count in range(1, SLOTS + 1):
        for depth in DEPTHS:
            drafters, neural = _cell(harness, drafter)
            engine = harness.engine(drafters, FixedDepth(depth, neural))
            sessions = finish(engine, requests[:count])
            drafted += sum(session.meter.drafted for session in sessions)
            accepted += sum(session.meter.accepted for session in sessions)

            assert [output(session) for session in sessions] == plain[:count]

    assert 0 < accepted < drafted


@pytest.mark.parametrize("chain", CHAINS)
def test_a_prediction_changes_no_token_whether_right_or_wrong(harness: Harness, chain: str) -> None:
    """The answer itself, the answer edited, another text, none: the same tokens, other counts."""
    sampling = CHAINS[chain]
    for prompt in PROMPTS:
        (plain,) = finish(harness.engine({}, FixedDepth(0)), [harness.request(prompt, sampling)])
        answer = output(plain)
        edited = [*answer[:9], 65, 66, *answer[12:20], *answer[25:]]
        kept = {}
        for name, prediction in (
            ("right", answer), ("edited", edited), ("wrong", [*range(200, 240)]), ("none", []),
        ):  # fmt: skip
            for depth in DEPTHS:
                engine = harness.engine(
                    harness.drafters("lookup", "model"), FixedDepth(depth, "model")
                )
                request = harness.request(prompt, sampling, prediction=prediction)

                (session,) = finish(engine, [request])

                assert output(session) == answer
                count = session.meter.sources.get("prediction", SourceCount())
                assert count.accepted <= count.drafted
                kept[name, depth] = count.accepted
        assert all(kept["right", depth] > kept["edited", depth] for depth in DEPTHS)
        assert all(kept["edited", depth] > kept["none", depth] == 0 for depth in DEPTHS)


@pytest.mark.parametrize("drafter", ["raising", "lying"])
def test_a_broken_drafter_changes_no_token(harness: Harness, drafter: str) -> None:
    """A drafter that raises or proposes ids that do not exist is left out."""
    requests = [harness.request(prompt, CHAINS["greedy"]) for prompt in PROMPTS]
    plain = finish(harness.engine({}, FixedDepth(0)), requests)
    drafters, _ = _cell(harness, drafter)

    sessions = finish(harness.engine(drafters, FixedDepth(4)), requests)

    assert [output(session) for session in sessions] == [output(session) for session in plain]
    assert all(session.drafters == {} for session in sessions)


def test_an_end_of_generation_inside_a_draft_ends_the_text(harness: Harness) -> None:
    """With EOG likely, drafts run past it; the text ends there as in plain decoding."""
    likely = dict.fromkeys(harness.target.eog, 4.0)
    ended = 0
    for seed in range(12):
        sampling = SamplingParams(temperature=1.0, seed=seed, logit_bias=likely)
        request = harness.request(PROMPTS[0], sampling, ignore_eos=False)
        (plain,) = finish(harness.engine({}, FixedDepth(0)), [request])
        engine = harness.engine(harness.drafters("lookup", "model"), FixedDepth(7, "model"))

        (session,) = finish(engine, [request])

        assert (output(session), session.finish) == (output(plain), plain.finish)
        ended += session.finish == "stop"
    assert ended > 0


@pytest.mark.parametrize("chain", ["greedy", "seeded"])
def test_a_reused_prefix_changes_nothing(harness: Harness, chain: str) -> None:
    """A follow-up turn that finds its prefix cached answers as one that reads everything anew."""
    sampling = CHAINS[chain]
    engine = harness.engine(harness.drafters("lookup", "model"), FixedDepth(5, "model"))
    (first,) = finish(engine, [harness.request(PROMPTS[1], sampling)])
    longer = [*first.tokens, *harness.request(PROMPTS[0], sampling).prompt]

    (second,) = finish(engine, [harness.request(longer, sampling)])
    (fresh,) = finish(harness.engine({}, FixedDepth(0)), [harness.request(longer, sampling)])

    assert second.cached_tokens >= len(first.tokens) - 1
    assert fresh.cached_tokens == 0
    assert output(second) == output(fresh)


def test_another_client_reuses_nothing(harness: Harness) -> None:
    """Prefixes are kept by client: the same prompt from someone else is read anew."""
    engine = harness.engine({}, FixedDepth(0))
    finish(engine, [harness.request(PROMPTS[3], CHAINS["greedy"], client="one")])

    (other,) = finish(engine, [harness.request(PROMPTS[3], CHAINS["greedy"], client="two")])
    (same,) = finish(engine, [harness.request(PROMPTS[3], CHAINS["greedy"], client="one")])

    assert other.cached_tokens == 0
    assert same.cached_tokens > 0


def test_sessions_that_come_and_go_do_not_disturb_each_other(harness: Harness) -> None:
    """Admitted while others decode, retired early, chunked differently: each text is its own."""
    sampling = CHAINS["seeded"]
    requests = [harness.request(prompt, sampling, tokens=30) for prompt in PROMPTS]
    plain = [
        output(finish(harness.engine({}, FixedDepth(0)), [request])[0]) for request in requests
    ]
    engine = harness.engine(
        harness.drafters("lookup", "model"), FixedDepth(3, "model"), prefill_rows=16
    )
    sessions = []
    for request in requests:
        sessions.append(engine.admit(request))
        for _ in range(3):
            engine.step()
    engine.retire(sessions.pop(1), keep=2)
    plain.pop(1)
    while engine.sessions:
        for advance in engine.step():
            if advance.finish is not None:
                engine.retire(advance.session)

    assert [output(session) for session in sessions] == plain


def test_prompts_that_are_read_in_one_forward_have_answers_of_their_own(harness: Harness) -> None:
    """Each is continued from its own last row, however many rows stand before it."""
    sampling = CHAINS["seeded"]
    requests = [harness.request(prompt[:5], sampling, tokens=8) for prompt in PROMPTS]
    plain = [
        output(finish(harness.engine({}, FixedDepth(0)), [request])[0]) for request in requests
    ]
    together = finish(harness.engine({}, FixedDepth(0), prefill_rows=64), requests)
    assert [output(session) for session in together] == plain


def test_the_context_ends_an_answer_the_same_way(harness: Harness) -> None:
    """At the edge of the context, with any depth, the answer has plain decoding's tokens."""
    sampling = CHAINS["seeded"]
    room = harness.engine({}, FixedDepth(0)).context
    prompt = (harness.request(PROMPTS[0], sampling).prompt * 100)[: room - 12]
    (plain,) = finish(harness.engine({}, FixedDepth(0)), [harness.request(prompt, sampling)])
    for depth in DEPTHS:
        engine = harness.engine(harness.drafters("lookup", "model"), FixedDepth(depth, "model"))

        (session,) = finish(engine, [harness.request(prompt, sampling)])

        assert output(session) == output(plain)
        assert (session.finish, len(session.tokens)) == ("length", room)


def test_a_request_may_choose_its_drafters_and_its_depth(harness: Harness) -> None:
    """`drafters` and `max_draft` of a request bound what is proposed for it."""
    wish = SpeculationParams(mode="always", drafters=["model"], max_draft=2)
    engine = harness.engine(harness.drafters("lookup", "model"), FixedDepth(9, "model"))

    (session,) = finish(engine, [harness.request(PROMPTS[2], CHAINS["greedy"], speculation=wish)])

    assert set(session.meter.sources) == {"model"}
    assert len(session.meter.sources["model"].drafted_by_position) == 2
