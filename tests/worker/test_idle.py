"""An idle worker's tasks, their order, and the pause before the first one."""

from __future__ import annotations

from itertools import permutations
from pathlib import Path

import pytest
from engine.lawful import Lawful
from worker.idling import answer, opened

from localspec.engine.calibrate import FAR_TOKENS
from localspec.engine.exactness.classes import EVERYWHERE
from localspec.engine.prefill import QUIET_SECONDS
from localspec.text.constraint import Vocabulary
from localspec.types import READ_ROWS
from localspec.worker.exactness_probe import BackgroundProbe, NearProbe
from localspec.worker.grammars import VocabularyPreparation
from localspec.worker.idle import SAVE_SECONDS, IdleTasks
from localspec.worker.kernel_speedup import ROWS, KernelSpeedup
from localspec.worker.measuring import Measuring


class Some:
    """Task of so many pieces that records its end."""

    def __init__(self, name: str, pieces: int, done: list[str]) -> None:
        self.name, self.pieces, self.done = name, pieces, done

    def advance(self, _now: float) -> bool:
        """One of them."""
        if not self.pieces:
            return False
        self.pieces -= 1
        self.done.append(self.name)
        return True


def test_chores_follow_each_other_and_costs_come_first(tmp_path: Path) -> None:
    """One piece at a time; what has come up again is done before what is worth less."""
    _, engine, profile = opened(lambda _: 0, tmp_path)
    done: list[str] = []
    probes, kernels = Some("probe", 2, done), Some("kernels", 2, done)
    rest = IdleTasks(engine, profile, Measuring(engine, profile, fresh=True), probes, kernels)
    while rest.measuring:
        assert done == []
        rest.advance(0.0)
    assert set(profile.costs.measured_rows()) >= {1, 2, 4, 8}
    assert rest.advance(0.0)
    assert rest.advance(0.0)
    assert done == ["probe", "probe", "kernels"]
    probes.pieces = 1
    while rest.advance(0.0):
        pass
    assert done == ["probe", "probe", "kernels", "probe", "kernels"]


def test_an_idle_worker_prepares_for_the_first_grammar_once() -> None:
    """Not in the moment of the load; and a grammar that was asked for before has prepared it."""
    words = Vocabulary([b"a", b"b", b""], {2})
    task = VocabularyPreparation(words, loaded_at=7.0)
    early, then = 7.0 + 0.9 * QUIET_SECONDS, 7.0 + QUIET_SECONDS
    assert [task.advance(now) for now in (7.0, early, then, then, 99.0)] == [
        *(False, False, True, False, False)
    ]
    words = Vocabulary([b"a", b"b", b""], {2})
    words.prepare()
    assert not VocabularyPreparation(words, 7.0).advance(then)
    assert not VocabularyPreparation(Vocabulary([b"a"], set()), 7.0).advance(then)


def test_a_probe_leaves_slots_as_it_found_them(tmp_path: Path) -> None:
    """An empty slot is empty afterwards, and every text is still found."""
    _, engine, profile = opened(lambda seen: seen.total == 1, tmp_path)
    measuring, probe = Measuring(engine, profile, fresh=True), BackgroundProbe(engine, profile)
    rest = IdleTasks(
        engine, profile, measuring, probe, KernelSpeedup(engine, profile, "AVX2", lambda _: None)
    )
    while rest.measuring or rest.advance(0.0):
        rest.advance(0.0)
    assert engine.shape.cells == EVERYWHERE
    assert set(profile.worth) == set(ROWS)


def test_a_class_is_probed_first_as_far_as_costs_are_measured(tmp_path: Path) -> None:
    """Then they are, and then it is probed farther."""
    _, engine, profile = opened(lambda seen: seen.total == 1, tmp_path)
    assert engine.shape.cells < FAR_TOKENS < engine.unasked
    measuring, probe = Measuring(engine, profile, fresh=True), BackgroundProbe(engine, profile)
    rest = IdleTasks(engine, profile, measuring, probe, before=[NearProbe(probe, engine)])
    while engine.shape.cells < FAR_TOKENS:
        assert profile.costs.furthest == 0
        rest.advance(0.0)
    while rest.measuring:
        assert engine.shape.cells == FAR_TOKENS
        rest.advance(0.0)
    while rest.advance(0.0):
        pass
    assert engine.shape.cells == EVERYWHERE


def test_idle_tasks_wait_after_a_request(tmp_path: Path) -> None:
    """A typing user is not delayed by them."""
    _, engine, profile = opened(lambda _: 0, tmp_path)
    done: list[str] = []
    measuring = Measuring(engine, profile, fresh=False)
    while measuring.advance():
        pass
    rest = IdleTasks(engine, profile, measuring, Some("probe", 1, done))
    answer(engine, "a", 40)
    began = engine.clock()
    while not rest.advance(0.0):
        assert rest.left
    assert QUIET_SECONDS <= engine.clock() - began <= 1.1 * QUIET_SECONDS
    while rest.advance(0.0):
        assert rest.left
    assert not rest.left


def test_learned_costs_are_saved_once_a_minute_at_most(tmp_path: Path) -> None:
    """And only where there is something new."""
    _, engine, profile = opened(lambda _: 0, tmp_path)
    rest = IdleTasks(engine, profile, Measuring(engine, profile, fresh=False))
    while rest.advance(SAVE_SECONDS):
        pass
    kept = tmp_path / "profile.json"
    for now, saved in ((SAVE_SECONDS + 59, False), (SAVE_SECONDS + 60, True), (1000.0, False)):
        if now < 1000:
            answer(engine, "a", 40)
        kept.unlink(missing_ok=True)
        assert not rest.advance(now)
        assert kept.exists() == saved


@pytest.mark.parametrize("order", list(permutations((8, 40, 1600))))
def test_no_piece_of_idle_work_reads_a_long_text_at_once(
    order: tuple[int, ...], tmp_path: Path
) -> None:
    """A request waits for a piece, and a worker that is silent for long is ended.

    In whichever slot the long text is, and of the target as of a draft model that knows nothing.
    """
    draft = Lawful(lambda _: 0, n_slots=3, context=2048)
    target, engine, profile = opened(lambda seen: seen.total == 1, tmp_path, draft)
    for client, prompt in enumerate(order):
        answer(engine, str(client), prompt, route="short-request")
    assert not draft.decoded
    measuring, probe = Measuring(engine, profile, fresh=True), BackgroundProbe(engine, profile)
    kernels = KernelSpeedup(engine, profile, "AVX2", lambda _: None)
    rest = IdleTasks(engine, profile, measuring, probe, kernels)
    most, before = 0, target.decoded
    while rest.advance(0.0) or rest.left:
        most = max(most, target.decoded + draft.decoded - before)
        before = target.decoded + draft.decoded
    assert 0 < most <= 2 * READ_ROWS
