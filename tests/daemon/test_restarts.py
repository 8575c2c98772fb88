"""The supervisor's decisions, driven by lists of events: no process, no clock."""

from __future__ import annotations

import itertools
import os
import resource
import signal
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from localspec.wire.messages import Heartbeat
from localspec_daemon.supervisor.health import activity
from localspec_daemon.supervisor.restarts import (
    CRASH_WINDOW_SECONDS,
    INACTIVE_SECONDS,
    LOADING_PATIENCE_SECONDS,
    PATIENCE_SECONDS,
    UNMEASURED_PATIENCE_SECONDS,
    CrashHistory,
    Watchdog,
)


def beat(steps: int, active: int = 0, cost_ms_by_rows: dict[int, float] | None = None) -> Heartbeat:
    """Returns a heartbeat with this progress."""
    return Heartbeat(steps, active, 0, 0, 0, {}, {}, {}, 0.0, cost_ms_by_rows or {})


def ready_watchdog() -> Watchdog:
    """Returns a fast worker's watchdog that is ready and knows its costs at time 0."""
    watchdog = Watchdog(prefill_rows=512)
    watchdog.loading(ready=True)
    watchdog.heartbeat(beat(0, cost_ms_by_rows={1: 10.0}))
    watchdog.tick(0.0)
    return watchdog


def test_costs_of_another_machine_shorten_no_patience() -> None:
    """Forwards run here, however fast a simulated machine's table is."""
    watchdog = Watchdog(prefill_rows=512, timed_here=False)
    watchdog.loading(ready=True)
    watchdog.heartbeat(beat(0, cost_ms_by_rows={1: 0.01}))
    assert watchdog.patience_seconds == UNMEASURED_PATIENCE_SECONDS


def test_restarts_wait_0_1_2_4_and_at_most_60_seconds() -> None:
    """The delay doubles within a streak of crashes and has a ceiling."""
    history = CrashHistory()
    now, delays = 0.0, []
    for _ in range(1100):
        history.record(now, lived_seconds=0)
        delays.append(history.restart_at() - now)
        now += 1000.0
    assert delays[:9] == [0, 1, 2, 4, 8, 16, 32, 60, 60]
    assert set(delays[9:]) == {60}


def test_a_worker_that_lived_long_starts_a_new_streak() -> None:
    """Two crashes a day apart are both followed by a restart at once."""
    history = CrashHistory()
    history.record(0.0, lived_seconds=0)
    history.record(1.0, lived_seconds=0)
    history.record(90_000.0, lived_seconds=80_000)
    assert history.restart_at() == 90_000.0


def test_nothing_that_never_crashed_waits_or_has_failed() -> None:
    """A new model may start at once."""
    assert CrashHistory().restart_at() < 0
    assert CrashHistory().failed_until() < 0


@given(st.lists(st.floats(0, 200), min_size=1, max_size=12))
def test_a_model_fails_exactly_when_more_than_three_crashes_are_within_a_minute(
    times: list[float],
) -> None:
    """It may be loaded again a minute after the last crash."""
    times.sort()
    history = CrashHistory()
    for now in times:
        history.record(now, lived_seconds=0)
    recent = [when for when in times if times[-1] - when < CRASH_WINDOW_SECONDS]
    failed = history.failed_until() > times[-1]
    assert failed == (len(recent) > 3)
    if failed:
        assert history.failed_until() == times[-1] + CRASH_WINDOW_SECONDS


def test_a_silent_worker_is_condemned_after_the_patience_and_doubted_after_half() -> None:
    """Without heartbeats the engine's own thread hangs."""
    watchdog = ready_watchdog()
    for now in range(1, int(PATIENCE_SECONDS) + 1):
        watchdog.tick(float(now))
        assert watchdog.stalled == (now > PATIENCE_SECONDS / 2)
        assert watchdog.verdict() is None
    watchdog.tick(PATIENCE_SECONDS + 1)
    assert watchdog.verdict() == "no sign of life for 31 s"


def test_a_worker_that_beats_but_does_not_step_is_condemned() -> None:
    """While a request is active, steps have to progress."""
    watchdog = ready_watchdog()
    for now in range(1, int(PATIENCE_SECONDS) + 2):
        watchdog.heartbeat(beat(steps=7, active=1))
        watchdog.tick(float(now))
    assert watchdog.verdict() == "no decoding step for 31 s"


def test_an_idle_worker_may_stand_still_for_ever() -> None:
    """Without an active request, steps need not progress."""
    watchdog = ready_watchdog()
    for now in range(1, 1000):
        watchdog.heartbeat(beat(steps=7))
        watchdog.tick(float(now))
    assert watchdog.verdict() is None
    assert not watchdog.stalled


def test_a_loading_worker_has_more_patience_which_each_progress_renews() -> None:
    """A slow disk is no hang; a load without progress is one."""
    watchdog = Watchdog(prefill_rows=512)
    watchdog.tick(0.0)
    for now in range(1, int(LOADING_PATIENCE_SECONDS)):
        watchdog.tick(float(now))
    watchdog.loading()
    watchdog.tick(LOADING_PATIENCE_SECONDS)
    assert watchdog.verdict() is None
    for now in range(1, int(LOADING_PATIENCE_SECONDS) + 2):
        watchdog.tick(LOADING_PATIENCE_SECONDS + now)
    assert watchdog.verdict() is not None


def test_a_loading_worker_in_which_nothing_moves_is_condemned_sooner() -> None:
    """A stopped process uses no CPU and reads nothing; a busy one has the long timeout."""
    still, busy, untold, done = (Watchdog(prefill_rows=512) for _ in range(4))
    done.loading(ready=True)
    for now in range(int(INACTIVE_SECONDS) + 2):
        for watchdog in (still, busy, untold, done):
            assert watchdog.verdict() is None
        still.tick(float(now), (5, 7))
        busy.tick(float(now), (5, now))
        untold.tick(float(now))
        done.heartbeat(beat(steps=now))
        done.tick(float(now), (5, 7))
    assert still.verdict() == "standing still for 61 s"
    assert {busy.verdict(), untold.verdict(), done.verdict()} == {None}
    still.loading()
    assert still.verdict() is None


def test_a_pulse_stands_still_while_a_process_is_stopped() -> None:
    """It changes again while the process computes."""
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as process:
        first = activity(process.pid)
        assert first is not None
        while activity(process.pid) == first:
            os.sched_yield()
        process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, process.pid, os.WSTOPPED)
        assert activity(process.pid) == activity(process.pid)
        process.kill()
    assert activity(process.pid) is None


def test_without_a_free_descriptor_there_is_no_activity() -> None:
    """It is None and no exception, whatever keeps it from being read."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        found = activity(os.getpid())
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert found is None


def test_the_patience_grows_with_what_steps_cost_here() -> None:
    """Ten seconds a step are slow, not a hang, on a slow machine."""
    watchdog = ready_watchdog()
    clock = itertools.count(1)
    for steps in range(1, 12):
        watchdog.heartbeat(beat(steps, active=1))
        for _ in range(10):
            watchdog.tick(float(next(clock)))
    assert watchdog.patience_seconds > 100
    slow_prefill = ready_watchdog()
    slow_prefill.heartbeat(beat(0, cost_ms_by_rows={1: 500.0, 8: 800.0}))
    assert slow_prefill.patience_seconds == pytest.approx(4 * 0.1 * 512)


def test_a_worker_that_has_not_measured_anything_yet_may_be_slow() -> None:
    """A large model's first prompt is no hang; endless silence is one."""
    watchdog = Watchdog(prefill_rows=512)
    watchdog.loading(ready=True)
    watchdog.heartbeat(beat(0, active=1))
    for now in range(int(UNMEASURED_PATIENCE_SECONDS)):
        watchdog.tick(float(now))
    assert watchdog.verdict() is None
    watchdog.tick(UNMEASURED_PATIENCE_SECONDS)
    watchdog.tick(UNMEASURED_PATIENCE_SECONDS + 1)
    assert watchdog.verdict() is not None


def test_a_suspended_machine_condemns_nobody_at_wake_up() -> None:
    """Time in which the supervisor itself did not run is not counted against workers."""
    watchdog = ready_watchdog()
    watchdog.heartbeat(beat(1, active=1))
    watchdog.tick(3600.0)
    assert watchdog.verdict() is None
    assert not watchdog.stalled
