"""A simulated machine: forwards are computed here and take as long as its table says.

`clock` tells only the time that was charged. So everything that learns from times learns the
machine of the table, and the same requests in the same order take the same time.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Literal, Protocol

from localspec.control.forwards import forwards
from localspec.control.round import DraftPlan, Policy, Round, SessionStats, View
from localspec.engine.adapters import AdapterBackend, Scales
from localspec.engine.kv.rollback import Rollback, restores, snapshots_of
from localspec.engine.speculation.states import FeatureHead, Prediction
from localspec.machine import History, Host, Machine
from localspec.types import (
    Backend,
    Draft,
    FedBackend,
    FedOutput,
    Floats,
    ForwardOutput,
    Row,
    Sharing,
    Signal,
    Token,
)


class SimulatedClock:
    """Seconds that pass when they are charged, and at no other time.

    It is the clock of the host, which waits for each result. A forward that was started goes on
    beside the host; it is `running` until the host has waited for it.
    """

    def __init__(self) -> None:
        self._now = 0.0
        self._deferred = self._next = 0.0
        self.running: SimulatedForward | None = None

    def __call__(self) -> float:
        """Seconds since the beginning."""
        now = self._now
        self._now, self._next = now + self._next, 0.0
        return now

    def charge(self, ms: float) -> None:
        """Move the clock on by `ms`."""
        self._now += ms / 1000

    def defer(self, ms: float) -> None:
        """Charge `ms` after the running forward's result has been read."""
        self._deferred += ms / 1000

    def wait(self, until: float) -> None:
        """Move the clock to `until`, if that is later."""
        self._now = max(self._now, until)
        self._next, self._deferred = self._next + self._deferred, 0.0


class SimulatedForward:
    """A forward that was started, and is over at `ended`."""

    def __init__(self, clock: SimulatedClock, output: ForwardOutput, ms: float) -> None:
        self._clock, self._output = clock, output
        self.ended = clock() + ms / 1000
        clock.running = self

    @property
    def done(self) -> bool:
        """Whether it is over."""
        return self._clock() >= self.ended

    def result(self) -> ForwardOutput:
        """Wait for it."""
        self._clock.wait(self.ended)
        self._clock.running = None
        return self._output


class SimulatedBackend:
    """A `Waiting` backend whose forwards are charged; target and draft each have their own history.

    Where a target waits, `meanwhile` runs beside its forward. A draft that is not apart shares the
    target's device: its forwards make a running forward of the target longer. The host's work in
    every round is charged after the round's forward.
    """

    def __init__(
        self,
        backend: Backend,
        machine: Machine,
        role: Literal["target", "draft"],
        clock: SimulatedClock,
    ) -> None:
        target = role == "target"
        self._apart = machine.draft_is_apart
        self._host = machine.host if target else None
        self.waits = target and machine.waits
        self.meanwhile: Callable[[], None] = lambda: None
        self.n_vocab, self.n_slots = backend.n_vocab, backend.n_slots
        self.max_rows = backend.max_rows
        self._sharing = backend if isinstance(backend, Sharing) else None
        self._backend, self._clock = backend, clock
        self._history = History(machine.target if target else machine.draft)
        self.rollback: Rollback = "restore" if restores(backend) else "trim"

    @property
    def context(self) -> int:
        """The backend's own value."""
        return self._backend.context

    @property
    def on_full(self) -> Callable[[], bool]:
        """The backend's own value."""
        return self._sharing.on_full if self._sharing else lambda: False

    @on_full.setter
    def on_full(self, forget: Callable[[], bool]) -> None:
        if self._sharing:
            self._sharing.on_full = forget

    @property
    def shared_cells(self) -> int | None:
        """The backend's own value."""
        return self._sharing.shared_cells if self._sharing else None

    @property
    def held(self) -> Sequence[int]:
        """The backend's own value."""
        return self._sharing.held if self._sharing else ()

    @property
    def kv_cells(self) -> int:
        """The backend's own value."""
        return self._sharing.kv_cells if self._sharing else 0

    @property
    def snapshots(self) -> int:
        """The backend's own value."""
        return snapshots_of(self._backend)

    @property
    def adapters(self) -> int:
        """The backend's own value."""
        return self._backend.adapters if isinstance(self._backend, AdapterBackend) else 0

    def adapt(self, scales: Scales) -> None:
        """Delegate to the backend; charges no time."""
        if isinstance(self._backend, AdapterBackend):
            self._backend.adapt(scales)

    def decode(self, rows: Sequence[Row]) -> ForwardOutput:
        """Delegate to the backend. Raises what it raises; that takes no time."""
        output = self._backend.decode(rows)
        ms = self._ms(rows)
        running = self._clock.running
        if running is not None and not running.done and not self._apart:
            running.ended += ms / 1000
        ended = self._clock() + ms / 1000
        if self.waits:
            self.meanwhile()
        self._defer(rows)
        self._clock.wait(ended)
        return output

    def _defer(self, rows: Sequence[Row]) -> None:
        if self._host is not None and any(row.wants_logits for row in rows):
            self._clock.defer(self._host.round_ms)

    def start(self, rows: Sequence[Row]) -> SimulatedForward:
        """Begin a forward that goes on beside the host. Raises what `decode` raises."""
        self._defer(rows)
        return SimulatedForward(self._clock, self._backend.decode(rows), self._ms(rows))

    def _ms(self, rows: Sequence[Row]) -> float:
        """The milliseconds of a forward, which joins the history that prices later ones."""
        behind = sum(row.position for row in rows) / len(rows)
        streams = self._sharing is not None and self._sharing.shared_cells is None
        slots = Counter(row.slot for row in rows)
        made = forwards(slots, "streams" if streams else "shared")
        return sum(self._history.charge_ms(each, behind) for each in made)

    def truncate(self, slot: int, length: int) -> int:
        """Delegate to the backend; charges no time."""
        return self._backend.truncate(slot, length)

    def checkpoint(self, slot: int, *, lasting: bool = False) -> None:
        """Delegate to the backend; charges no time."""
        self._backend.checkpoint(slot, lasting=lasting)


class SimulatedPolicy:
    """A policy that charges rounds for the host's asking of drafters, and for drafted rows.

    Both fall before the forward, where no other time is charged.
    """

    def __init__(self, policy: Policy, host: Host, clock: SimulatedClock) -> None:
        self._policy, self._host, self._clock = policy, host, clock

    def open_session(self) -> SessionStats | None:
        """Delegate to the policy."""
        return self._policy.open_session()

    def wants_slow_source(
        self, name: str, stats: SessionStats | None, beside: str | None = None
    ) -> bool:
        """Delegate to the policy."""
        return self._policy.wants_slow_source(name, stats, beside)

    def likely(self, stats: SessionStats | None) -> Callable[[Sequence[Signal]], bool]:
        """Delegate to the policy."""
        return self._policy.likely(stats)

    def plan(self, views: Sequence[View], other_rows: int = 0, before: int = 0) -> list[DraftPlan]:
        """Delegate to the policy; charges for asking the drafters of sessions that have any."""
        self._clock.charge(self._host.asked_ms * sum(view.stats is not None for view in views))
        return self._policy.plan(views, other_rows, before)

    def trees(self, views: Sequence[View], drafts: Sequence[Draft]) -> list[Draft]:
        """Delegate to the policy."""
        return self._policy.trees(views, drafts)

    def cut(self, views: Sequence[View], drafts: Sequence[Draft], other_rows: int = 0) -> list[int]:
        """Delegate to the policy; charges for the drafted rows that are left."""
        cuts = self._policy.cut(views, drafts, other_rows)
        self._clock.charge(self._host.row_ms * sum(cuts))
        return cuts

    def paid(self, views: Sequence[View], nodes: Sequence[int], other_rows: int = 0) -> list[int]:
        """Delegate to the policy; charges for the rows that may be filled."""
        paid = self._policy.paid(views, nodes, other_rows)
        self._clock.charge(self._host.row_ms * sum(paid))
        return paid

    def padded(self, rows: int) -> int:
        """Delegate to the policy."""
        return self._policy.padded(rows)

    def asks(self, stats: SessionStats | None) -> bool:
        """Delegate to the policy."""
        return self._policy.asks(stats)

    def even(self, rows: Sequence[int]) -> bool:
        """Delegate to the policy."""
        return self._policy.even(rows)

    def observe(self, round_: Round) -> None:
        """Delegate to the policy."""
        self._policy.observe(round_)


class SimulatedHead:
    """A head whose tokens are charged."""

    def __init__(self, head: FeatureHead, token_ms: float, clock: SimulatedClock) -> None:
        self._head, self._token_ms, self._clock = head, token_ms, clock
        self.depth, self.sentence = head.depth, head.sentence

    def predict(self, state: Floats, token: Token) -> Prediction:
        """Delegate to the head."""
        self._clock.charge(self._token_ms)
        return self._head.predict(state, token)

    def close(self) -> None:
        """Delegate to the head."""
        self._head.close()


_ROW_SHARE = 0.1
"""The cost of each further row of a fed head's forward, as a share of its first: the weights are
the same."""


class SimulatedFed:
    """A `FedBackend` whose forwards are charged."""

    def __init__(self, head: FedBackend, token_ms: float, clock: SimulatedClock) -> None:
        self.n_vocab, self.n_slots, self.max_rows = head.n_vocab, head.n_slots, head.max_rows
        self.context, self.inputs = head.context, head.inputs
        self._head, self._token_ms, self._clock = head, token_ms, clock

    def fuse(self, features: Floats) -> Floats:
        """Delegate to the head; part of what its forwards cost."""
        return self._head.fuse(features)

    def decode(self, rows: Sequence[Row], vectors: Floats) -> FedOutput:
        """Delegate to the head. Raises what it raises; that takes no time."""
        output = self._head.decode(rows, vectors)
        self._clock.charge(self._token_ms * (1 + _ROW_SHARE * (len(rows) - 1)))
        return output

    def truncate(self, slot: int, length: int) -> None:
        """Delegate to the head; charges no time."""
        self._head.truncate(slot, length)


class Hardware(Protocol):
    """Where forwards take their time: on this machine, or on a simulated machine."""

    @property
    def clock(self) -> Callable[[], float]:
        """Seconds, monotonic: of everything that is measured or learned."""

    def context(self, backend: Backend, role: Literal["target", "draft"]) -> Backend:
        """The backend with the times of this hardware."""

    @property
    def has_head(self) -> bool:
        """Whether this hardware can have a feature head."""

    def head(self, head: FeatureHead) -> FeatureHead:
        """The feature head with the times of this hardware, where it can have one."""

    def fed(self, head: FedBackend) -> FedBackend:
        """The fed head with the times of this hardware, where it can have one."""

    def policy(self, policy: Policy) -> Policy:
        """The policy with the times of this hardware."""


class RealHardware:
    """This machine: everything takes the time that it takes."""

    clock = staticmethod(time.monotonic)

    def context(self, backend: Backend, role: Literal["target", "draft"]) -> Backend:
        """The backend itself."""
        del role
        return backend

    has_head = True

    def head(self, head: FeatureHead) -> FeatureHead:
        """The head itself."""
        return head

    def fed(self, head: FedBackend) -> FedBackend:
        """The head itself."""
        return head

    def policy(self, policy: Policy) -> Policy:
        """The policy itself."""
        return policy


class SimulatedHardware:
    """The machine of a table, with a clock at 0."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine
        self.clock = SimulatedClock()

    def context(self, backend: Backend, role: Literal["target", "draft"]) -> Backend:
        """The backend with the prices of its role."""
        return SimulatedBackend(backend, self._machine, role, self.clock)

    @property
    def has_head(self) -> bool:
        """Whether the table has a price for one."""
        return self._machine.head is not None and self._machine.head.kind == "feature"

    def head(self, head: FeatureHead) -> FeatureHead:
        """The head with its price."""
        assert self._machine.head is not None  # noqa: S101 - as `has_head` says
        return SimulatedHead(head, self._machine.head.token_ms, self.clock)

    def fed(self, head: FedBackend) -> FedBackend:
        """The head with its price, which the table has (`worker/fed_heads.py`)."""
        assert self._machine.head is not None  # noqa: S101 - as above
        return SimulatedFed(head, self._machine.head.token_ms, self.clock)

    def policy(self, policy: Policy) -> Policy:
        """The policy with the host's time in its rounds."""
        return SimulatedPolicy(policy, self._machine.host, self.clock)
