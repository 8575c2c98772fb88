"""Admission to memory and eviction: laws over any residents, and named cases."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from hypothesis import given
from hypothesis import strategies as st

from localspec_daemon.supervisor.memory_admission import (
    MAX_WAIT_SECONDS,
    Admit,
    LoadingModel,
    Memory,
    PlanScore,
    Refuse,
    Resident,
    Wait,
    decide,
    idle_over_limit,
)

State = Literal["idle", "busy", "loading", "leaving"]

TOTAL = 100


def newcomer(whole: int, least: int = 0, card: int = 0) -> LoadingModel:
    """A model of this size; with fewer slots or less context it needs at least `least`."""

    def score(free: Memory) -> PlanScore:
        size = free["CPU"]
        served = size >= (whole + least) // 2
        return PlanScore(
            fits=size >= (least or whole),
            draft=True,
            context=8192 if served else 1024,
            gpu_blocks=min(card, free.get("GPU", 0)),
            slots=4 if size >= whole else 1,
        )

    return LoadingModel("new", score)


def resident(name: str, size: int, used_at: float = 0.0, state: State = "idle") -> Resident:
    """A model that holds this much host memory."""
    return Resident(name, name, state, used_at, {"CPU": size})


residents = st.lists(
    st.builds(
        resident,
        st.uuids().map(str),
        st.integers(0, 60),
        st.floats(0, 1e6),
        st.sampled_from(["idle", "idle", "busy"]),
    ),
    max_size=6,
    unique_by=lambda each: each.key,
)
newcomers = st.builds(newcomer, st.integers(1, 120), st.integers(1, 40))
waited = st.sampled_from([0.0, MAX_WAIT_SECONDS])


def left(total: int, remaining: Sequence[Resident]) -> int:
    """Returns the remaining memory, by plain arithmetic."""
    return total - sum(each.taken["CPU"] for each in remaining)


@given(newcomers, residents, waited)
def test_no_busy_model_leaves_and_nothing_is_taken_that_is_not_there(
    new: LoadingModel, others: list[Resident], seconds: float
) -> None:
    """Evicted models are idle; after them the promised memory is free and the new model fits."""
    verdict = decide(new, others, {"CPU": TOTAL}, seconds)
    if isinstance(verdict, Admit):
        assert all(each.state == "idle" for each in verdict.leave)
        remaining = [each for each in others if each not in verdict.leave]
        assert verdict.room["CPU"] == max(0, left(TOTAL, remaining))
        assert not others or new.score(verdict.room).fits
    elif isinstance(verdict, Wait):
        assert seconds < MAX_WAIT_SECONDS
        assert all(each.state == "busy" for each in verdict.retire)


@given(newcomers, residents, waited)
def test_nobody_leaves_in_vain(new: LoadingModel, others: list[Resident], seconds: float) -> None:
    """Each eviction is needed: without any one of them the new model would have less."""
    verdict = decide(new, others, {"CPU": TOTAL}, seconds)
    if isinstance(verdict, Admit):
        for kept in verdict.leave:
            remaining = [each for each in others if each == kept or each not in verdict.leave]
            assert new.score({"CPU": max(0, left(TOTAL, remaining))}) < new.score(verdict.room)


@given(newcomers, residents)
def test_what_leaving_can_mend_is_never_refused(new: LoadingModel, others: list[Resident]) -> None:
    """Only what is too large for the machine is refused at once, never for an idle neighbour."""
    verdict = decide(new, others, {"CPU": TOTAL}, 0.0)
    assert isinstance(verdict, Refuse) == (bool(others) and not new.score({"CPU": TOTAL}).fits)
    idle = [replace(each, state="idle") for each in others]
    if new.score({"CPU": TOTAL}).fits:
        assert isinstance(decide(new, idle, {"CPU": TOTAL}, 0.0), Admit)


@given(st.lists(st.integers(1, 60), min_size=2, max_size=5), st.data())
def test_models_that_fit_together_are_never_unloaded_for_each_other(
    sizes: list[int], data: st.DataObject
) -> None:
    """In any order of requests, each is loaded once."""
    total = {"CPU": sum(sizes)}
    loaded: dict[int, Resident] = {}
    turns = data.draw(st.lists(st.integers(0, len(sizes) - 1), max_size=20))
    for now, turn in enumerate(turns):
        if turn not in loaded:
            verdict = decide(newcomer(sizes[turn]), list(loaded.values()), total, 0.0)
            assert isinstance(verdict, Admit)
            assert not verdict.leave
        loaded[turn] = resident(str(turn), sizes[turn], used_at=now)


def test_the_least_recently_used_leaves_and_only_whose_leaving_helps() -> None:
    """The oldest is evicted first; a small one that would not have sufficed stays."""
    others = [resident("small", 5, 1), resident("large", 50, 2), resident("young", 40, 3)]
    verdict = decide(newcomer(50), others, {"CPU": TOTAL}, 0.0)
    assert isinstance(verdict, Admit)
    assert [each.name for each in verdict.leave] == ["large"]


def test_a_card_is_a_reason_to_leave() -> None:
    """A model is evicted if that lets more of the new one onto the GPU."""
    other = replace(resident("other", 5), taken={"CPU": 5, "GPU": 60})
    total = {"CPU": TOTAL, "GPU": 80}
    verdict = decide(newcomer(10, card=40), [other], total, 0.0)
    assert verdict == Admit((other,), {"CPU": 100, "GPU": 80})
    assert decide(newcomer(10, card=20), [other], total, 0.0) == Admit((), {"CPU": 95, "GPU": 20})


def test_who_answers_is_waited_for_then_less_is_taken_then_it_is_refused() -> None:
    """The refusal has the numbers."""
    busy = resident("chatty", 70, state="busy")
    assert decide(newcomer(60, 20), [busy], {"CPU": TOTAL}, 0.0) == Wait(
        "chatty is answering", (busy,)
    )
    late = decide(newcomer(60, 20), [busy], {"CPU": TOTAL}, MAX_WAIT_SECONDS)
    assert late == Admit((), {"CPU": 30})
    refused = decide(newcomer(60, 40), [busy], {"CPU": TOTAL}, MAX_WAIT_SECONDS)
    assert isinstance(refused, Refuse)
    assert "new waited 120 s for memory: chatty is answering" in refused.why
    assert "Of 100 B of CPU chatty has 70 B of CPU." in refused.why


def test_fewer_slots_are_taken_rather_than_waited_for() -> None:
    """Full concurrency is not score waiting for a busy model."""
    busy = resident("chatty", 60, state="busy")
    verdict = decide(newcomer(50, 20), [busy], {"CPU": TOTAL}, 0.0)
    assert verdict == Admit((), {"CPU": 40})


def test_a_load_is_waited_for_before_anything_is_decided() -> None:
    """A load's size is unknown until it ends; only the wait for an unload is bounded here."""
    loads, leaves = (resident("next", 0, state=state) for state in ("loading", "leaving"))
    for seconds in (0.0, MAX_WAIT_SECONDS):
        for moving in ([loads], [loads, leaves]):
            verdict = decide(newcomer(10), moving, {"CPU": TOTAL}, seconds)
            assert verdict == Wait("next is loading", counts=False)
    assert decide(newcomer(10), [leaves], {"CPU": TOTAL}, 0.0) == Wait("next is leaving")
    assert isinstance(decide(newcomer(10), [leaves], {"CPU": TOTAL}, MAX_WAIT_SECONDS), Refuse)


def test_a_remote_is_shared_with_nobody() -> None:
    """A remote serves one model, even if it has memory for two."""
    other = resident("other", 5)
    verdict = decide(replace(newcomer(10), exclusive=True), [other], {"CPU": TOTAL}, 0.0)
    assert verdict == Admit((other,), {"CPU": TOTAL})


def test_a_lone_model_may_try_what_does_not_fit_unless_there_is_a_bound() -> None:
    """A file larger than memory is paged in again and again, and works; a bound is kept."""
    assert decide(newcomer(120), [], {"CPU": TOTAL}, 0.0) == Admit((), {"CPU": TOTAL})
    assert decide(newcomer(120), [], {"CPU": TOTAL}, 0.0, bounded=True) == Refuse(
        "new does not fit into 100 B of CPU, not even alone.", forever=True
    )


def test_when_memory_has_become_short_the_oldest_idle_model_leaves() -> None:
    """No earlier, and never a busy one."""
    others = [resident("a", 60, 2), resident("b", 30, 1), resident("c", 20, 0, "busy")]
    assert idle_over_limit(others, {"CPU": 110}) is None
    assert idle_over_limit(others, {"CPU": 109}) == others[1]
    assert idle_over_limit(others[2:], {"CPU": 1}) is None
