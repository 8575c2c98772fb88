"""Decides when a worker is restarted and when it is killed. Pure: time is an argument."""

from __future__ import annotations

from dataclasses import dataclass, field

from localspec.wire.messages import Heartbeat
from localspec_daemon.supervisor.health import Activity

CRASH_WINDOW_SECONDS = 60.0
MAX_CRASHES_IN_WINDOW = 3
MAX_RESTART_DELAY_SECONDS = 60.0
_MAX_DOUBLINGS = 6
"""Enough for the longest delay; a float has no place for 1024 of them."""

PATIENCE_SECONDS = 30.0
LOADING_PATIENCE_SECONDS = 600.0
"""The longest time between progress reports of a loading worker: slow disks take minutes."""
INACTIVE_SECONDS = 60.0
"""The longest time without activity (`health.py`) for a loading worker: no disk and no device keeps
a process waiting so long for its next byte."""
UNMEASURED_PATIENCE_SECONDS = 300.0
"""The patience before costs are known: on a slow machine one prefill chunk takes minutes."""
SLOW_STEPS = 20
"""A step may take this many times the usual one: a prefill chunk among single tokens does."""
SLOW_PREFILL = 4
MAX_TICK_SECONDS = 2.0
"""A longer gap between ticks means that this process slept (suspend, SIGSTOP), and its workers too.
Only this much of it counts: all of it would kill every worker at wake-up."""


@dataclass(slots=True)
class CrashHistory:
    """The crashes of one model, and when it may be started again.

    After the first crash of a streak the worker is restarted at once, then after 1, 2, 4 ... 60 s;
    a worker that lived longer than the window starts a new streak. After more than three crashes
    within the window the model fails until the window has passed since the last one.
    """

    times: list[float] = field(default_factory=list)
    streak: int = 0

    def record(self, now: float, lived_seconds: float) -> None:
        """Add a crash of a worker that was ready for `lived_seconds`."""
        self.streak = 1 if lived_seconds >= CRASH_WINDOW_SECONDS else self.streak + 1
        self.times = [when for when in self.times if now - when < CRASH_WINDOW_SECONDS] + [now]

    def restart_at(self) -> float:
        """The earliest time of the next start; -inf without a crash."""
        if self.streak <= 1:
            return self.times[-1] if self.times else float("-inf")
        doublings = min(self.streak - 2, _MAX_DOUBLINGS)
        return self.times[-1] + min(2.0**doublings, MAX_RESTART_DELAY_SECONDS)

    def failed_until(self) -> float:
        """When the model may be tried again after too many crashes; -inf if it may now."""
        if len(self.times) <= MAX_CRASHES_IN_WINDOW:
            return float("-inf")
        return self.times[-1] + CRASH_WINDOW_SECONDS


@dataclass(slots=True)
class Watchdog:
    """Decides whether a worker still loads and, once it is ready, still decodes.

    The engine's own thread sends the heartbeats between its steps, so a step that lasts longer than
    the limit looks like a hang; the limit therefore grows with the measured cost of steps.
    """

    prefill_rows: int
    timed_here: bool = True
    ready: bool = False
    silent_seconds: float = 0.0
    stuck_seconds: float = 0.0
    inactive_seconds: float = 0.0
    step_seconds: float = 0.0
    prefill_seconds: float | None = None
    steps: int = 0
    busy: bool = False
    ticked_at: float | None = None
    activity: Activity | None = None

    def loading(self, *, ready: bool = False) -> None:
        """Note that loading has made progress, or is done."""
        self.silent_seconds, self.inactive_seconds, self.ready = 0.0, 0.0, ready

    def heartbeat(self, beat: Heartbeat) -> None:
        """Take a heartbeat that has arrived."""
        if beat.steps > self.steps and self.busy:
            seconds = self.stuck_seconds / (beat.steps - self.steps)
            self.step_seconds += 0.2 * (seconds - self.step_seconds)
        if beat.steps != self.steps or not beat.active:
            self.stuck_seconds = 0.0
        self.silent_seconds = 0.0
        self.steps, self.busy = beat.steps, beat.active > 0
        if beat.cost_ms_by_rows and self.timed_here:
            rows, cost_ms = max(beat.cost_ms_by_rows.items())
            self.prefill_seconds = cost_ms / 1000 / max(rows, 1) * self.prefill_rows

    def tick(self, now: float, activity: Activity | None = None) -> None:
        """Count the time since the last call. Called once a second, with the process's activity."""
        elapsed = 0.0 if self.ticked_at is None else min(now - self.ticked_at, MAX_TICK_SECONDS)
        self.ticked_at = now
        self.silent_seconds += elapsed
        if self.busy:
            self.stuck_seconds += elapsed
        moved = self.ready or activity is None or activity != self.activity
        self.inactive_seconds = 0.0 if moved else self.inactive_seconds + elapsed
        self.activity = activity

    @property
    def patience_seconds(self) -> float:
        """The longest time without progress for which the worker is not killed."""
        if not self.ready:
            return LOADING_PATIENCE_SECONDS
        if self.prefill_seconds is None:
            return UNMEASURED_PATIENCE_SECONDS
        return max(
            PATIENCE_SECONDS, SLOW_STEPS * self.step_seconds, SLOW_PREFILL * self.prefill_seconds
        )

    @property
    def stalled(self) -> bool:
        """True after half of `patience_seconds` without progress: /health reports an error then."""
        return max(self.silent_seconds, self.stuck_seconds) > self.patience_seconds / 2

    def verdict(self) -> str | None:
        """Why the worker has to be killed; None while it may live."""
        if self.inactive_seconds > INACTIVE_SECONDS:
            return f"standing still for {self.inactive_seconds:.0f} s"
        if self.silent_seconds > self.patience_seconds:
            return f"no sign of life for {self.silent_seconds:.0f} s"
        if self.stuck_seconds > self.patience_seconds:
            return f"no decoding step for {self.stuck_seconds:.0f} s"
        return None
