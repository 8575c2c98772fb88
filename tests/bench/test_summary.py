"""From answers to figures."""

from __future__ import annotations

import math

import pytest
from measured import answer, results

from localspec.bench.results import Source
from localspec.bench.summary import ALL, merged, summarize


def test_ratios_compare_within_a_repeat() -> None:
    """A machine that halves its speed between two repeats changes no ratio."""
    summary = summarize(
        results(
            *(answer("qa/1", "plain", 2.0 * slower, repeat) for repeat, slower in ((0, 1), (1, 2))),
            *(answer("qa/1", "auto", 1.0 * slower, repeat) for repeat, slower in ((0, 1), (1, 2))),
        )
    )
    ratio = summary.cells["qa"]["auto"].ratio
    assert ratio is not None
    assert ratio.by_prompt == {"qa/1": 2.0}
    assert (ratio.low, ratio.high) == (2.0, 2.0)
    plain = summary.cells["qa"]["plain"]
    assert plain.ratio is None
    assert plain.tokens_per_second == pytest.approx((50 + 25) / 2)


def test_slices_are_told_apart_and_the_worst_prompt_has_a_name() -> None:
    """Every slice has its own mean, "all" has that of all prompts."""
    summary = summarize(
        results(
            *(answer(name, "plain", 2.0) for name in ("qa/1", "edit/1", "edit/2")),
            answer("qa/1", "auto", 2.5),
            answer("edit/1", "auto", 1.0),
            answer("edit/2", "auto", 0.5),
        )
    )
    assert summary.slices == ["qa", "edit", ALL]
    edit, every = summary.cells["edit"]["auto"].ratio, summary.cells[ALL]["auto"].ratio
    assert edit is not None
    assert every is not None
    assert edit.mean == pytest.approx(math.sqrt(2 * 4))
    assert every.mean == pytest.approx((0.8 * 2 * 4) ** (1 / 3))
    assert every.worst == "qa/1"
    assert every.p50 == pytest.approx(2.0)
    assert summary.cells[ALL]["auto"].tokens_per_round == pytest.approx(101 / 50)


def test_equal_texts_are_counted_against_plain_of_the_same_repeat() -> None:
    """One of two texts differs."""
    summary = summarize(
        results(
            *(answer("qa/1", "plain", 1.0, repeat, text=f"text {repeat}") for repeat in (0, 1)),
            *(answer("qa/1", "auto", 1.0, repeat, text="text 0") for repeat in (0, 1)),
        )
    )
    cell = summary.cells["qa"]["auto"]
    assert (cell.equal, cell.compared) == (1, 2)


def test_waits_of_cold_and_cached_prompts_are_never_mixed() -> None:
    """A prompt that another arm has just read costs nothing, which says nothing of speculation."""
    summary = summarize(
        results(
            answer("qa/1", "plain", 1.0, ttft_seconds=0.9),
            answer("qa/2", "plain", 1.0, ttft_seconds=0.1, kind="replay"),
            answer("qa/3", "plain", 1.0, ttft_seconds=None),
        )
    )
    waits = summary.cells["qa"]["plain"].first_text
    assert {kind: (one.count, one.p50) for kind, one in waits.items()} == {
        "cold": (1, 0.9),
        "replay": (1, 0.1),
    }


def test_a_refused_prompt_counts_in_no_arm() -> None:
    """Otherwise arms would be compared over different prompts."""
    summary = summarize(
        results(
            *(answer(name, "plain", 2.0) for name in ("qa/1", "rag/1")),
            answer("qa/1", "auto", 1.0),
            skipped={"rag/1": "auto: too long"},
        )
    )
    assert summary.slices == ["qa", ALL]
    assert summary.cells[ALL]["plain"].prompts == 1


def test_an_answer_of_one_token_has_no_speed() -> None:
    """Its only token is the prompt's; nothing was decoded, and nothing is compared."""
    summary = summarize(
        results(answer("qa/1", "plain", 0.0, tokens=1), answer("qa/1", "auto", 0.0, tokens=1))
    )
    assert summary.cells["qa"]["plain"].tokens_per_second is None
    assert summary.cells["qa"]["auto"].ratio is None


def test_throughput_is_all_tokens_by_the_time_of_the_batches() -> None:
    """202 tokens in 1.1 + 3.1 seconds, whatever the servers say of themselves."""
    summary = summarize(results(answer("qa/1", "plain", 1.0), answer("qa/2", "plain", 3.0)))
    assert summary.throughput == {"plain": pytest.approx(202 / 4.2)}


def test_counts_by_position_add_up_whatever_their_lengths() -> None:
    """Drafts of different depth leave lists of different length."""
    short = {"lookup": Source(3, 2, [3], [2])}
    long = {"lookup": Source(5, 1, [3, 2], [1, 0]), "model": Source(1, 1, [1], [1])}
    assert merged([short, long])["lookup"] == Source(8, 3, [6, 2], [3, 0])
    assert merged([long, short]) == merged([short, long])
