"""The values and protocols of the engine, without llama.cpp, HTTP, text or clocks.

A drafter implements `Drafter` and `DraftSession` (`drafters/`), a target or draft model `Backend`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple, Protocol, TypeAlias, runtime_checkable

import msgspec

from localspec.chain import SamplingParams as SamplingParams  # noqa: PLC0414 - looked for here
from localspec.forward_counts import ForwardCounts

if TYPE_CHECKING:  # reading settings need not wait for numpy
    import numpy as np
    from numpy.typing import NDArray
Token: TypeAlias = int
Floats: TypeAlias = "NDArray[np.float32]"
VerificationRule: TypeAlias = Literal["coupled", "rejection"]
FinishReason: TypeAlias = Literal["stop", "length", "cancelled"]
Origin: TypeAlias = Literal["slot", "memory", "disk"]
"""Where a prefix was: in the memory of slots, or in the prefix store."""

PREDICTION = "prediction"
"""The source of nodes copied from the client's prediction of the answer."""
LOOKAHEAD = "lookahead"
"""The source of nodes in rows that are paid anyway."""


class SpeculationParams(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A request's wishes for speculation. `auto` lets the router and the controller decide.

    `drafters` None means all, `max_draft` None no cap. A request whose strict `exactness` cannot be
    given is refused.
    """

    mode: Literal["auto", "off", "always"] = "auto"
    drafters: list[str] | None = None
    max_draft: int | None = None
    verify: VerificationRule = "coupled"
    exactness: Literal["auto", "strict"] = "auto"


@dataclass(frozen=True, slots=True, eq=False)
class Probs:
    """A law with finite support: `tokens` int32 (k,), `logp` float64 (k,), normalised."""

    tokens: NDArray[np.int32]
    logp: NDArray[np.float64]


class Signal(NamedTuple):
    """The evidence for one drafted node, in a form that acceptance can be calibrated on.

    Nodes of one `source` that share a `bucket` share a calibrated probability of being accepted,
    given that their parent was; `prior` is that probability before anything was observed.
    """

    source: str
    bucket: int
    prior: float


@dataclass(frozen=True, slots=True)
class Draft:
    """A tree of proposed tokens; a chain is the special case where each node hangs off the last.

    Node i hangs off node parents[i], always an earlier one; -1 is the last committed token.
    laws[i] is the law node i was drawn from, None where the proposal was deterministic.
    """

    tokens: tuple[Token, ...] = ()
    parents: tuple[int, ...] = ()
    signals: tuple[Signal, ...] = ()
    laws: tuple[Probs | None, ...] = ()

    def __len__(self) -> int:
        return len(self.tokens)

    @classmethod
    def chain(
        cls,
        tokens: Sequence[Token],
        signals: Sequence[Signal],
        laws: Sequence[Probs | None] | None = None,
    ) -> Draft:
        """A draft in which every node continues the one before it."""
        count = len(tokens)
        return cls(
            tuple(tokens),
            tuple(range(-1, count - 1)),
            tuple(signals),
            tuple(laws) if laws is not None else (None,) * count,
        )

    @property
    def drawn(self) -> int:
        """The count of leading nodes that must be verified: up to the last one drawn from a law.

        Whether a drawn token is verified may not depend on which token it is: a rule that drops
        unlikely ones, where the target then draws anew, makes likely tokens more frequent than
        under the target (`engine/verify.py`).
        """
        drawn = (node for node in range(len(self.laws), 0, -1) if self.laws[node - 1] is not None)
        return next(drawn, 0)

    def head(self, count: int) -> Draft:
        """The first `count` nodes; still a tree, because parents come first."""
        if count >= len(self.tokens):
            return self
        return Draft(
            self.tokens[:count], self.parents[:count], self.signals[:count], self.laws[:count]
        )

    def trunk(self) -> Draft:
        """The path from the root along first children, for backends that cannot verify trees."""
        path: list[int] = []
        for node, parent in enumerate(self.parents):
            if parent == (path[-1] if path else -1):
                path.append(node)
        if len(path) == len(self.tokens):
            return self
        return Draft.chain(
            [self.tokens[node] for node in path],
            [self.signals[node] for node in path],
            [self.laws[node] for node in path],
        )

    def then(self, tail: Draft) -> Draft:
        """This chain continued by another, which joins two sources in one draft."""
        count = len(self.tokens)
        return Draft(
            self.tokens + tail.tokens,
            self.parents + tuple(count + parent for parent in tail.parents),
            self.signals + tail.signals,
            self.laws + tail.laws,
        )


@dataclass(frozen=True, slots=True)
class Verified:
    """A result of verification: accepted nodes from root to leaf, then the target's next token.

    `token` is the correction after a rejection and the bonus after a fully accepted draft. When an
    accepted node ended generation, nothing may follow it: then `token` is that node's own token and
    `accepted` stops before it.
    """

    accepted: tuple[int, ...]
    token: Token


@dataclass(frozen=True, slots=True)
class Row:
    """One position to decode: `token` at `position` of `slot`, with logits or without.

    It follows the row of its slot that stands `back` rows before it in the same forward; a slot's
    first row follows the tokens that the slot holds. It attends to all that it so follows.
    """

    token: Token
    position: int
    slot: int
    wants_logits: bool = False
    back: int = 1


def _untapped() -> None:
    """No features."""


class ForwardOutput(NamedTuple):
    """The output of a forward; views, valid until the next one.

    `logits` (rows that want them, n_vocab); `states` (as many rows, width) are the last hidden
    vectors of which these are made, None where they are not shown. `features()` copies what was
    tapped of all rows (rows, numbers); it gives None where nothing was tapped.
    """

    logits: Floats
    states: Floats | None = None
    features: Callable[[], Floats | None] = _untapped


class Backend(Protocol):
    """One llama.cpp context. Owned by one thread; `engine/llama/context.py` implements it."""

    n_vocab: int
    n_slots: int
    max_rows: int

    @property
    def context(self) -> int:
        """Tokens that one slot may hold."""

    def decode(self, rows: Sequence[Row]) -> ForwardOutput:
        """Decode all rows."""

    def truncate(self, slot: int, length: int) -> int:
        """Forget a slot's tokens from `length` on, and more if it must. Returns how many remain."""

    def checkpoint(self, slot: int, *, lasting: bool = False) -> None:
        """Save the slot's state for `truncate`, until the next call; a lasting copy stays."""


class FedOutput(NamedTuple):
    """The output of a forward whose rows carry vectors; views, valid until the next one.

    `logits` (rows that want them, n_vocab), -inf for tokens that the head does not know. `vectors`
    (rows, width) are the inputs of a row behind each.
    """

    logits: Floats
    vectors: Floats


class FedBackend(Protocol):
    """A head whose rows carry a vector beside their token; `engine/llama/fed.py` implements it.

    A slot holds pairs at positions from 0 up, without gaps.
    """

    n_vocab: int
    n_slots: int
    max_rows: int
    context: int
    """Pairs that one slot may hold."""
    inputs: int
    """Numbers of the target's features for one row."""

    def fuse(self, features: Floats) -> Floats:
        """The vectors (rows, width) of a target's features (rows, inputs)."""

    def decode(self, rows: Sequence[Row], vectors: Floats) -> FedOutput:
        """Decode pairs of a row and its vector."""

    def truncate(self, slot: int, length: int) -> None:
        """Forget a slot's pairs from position `length` on."""


@runtime_checkable
class Sharing(Backend, Protocol):
    """A backend whose slots share cells; when none is left, `on_full` may truncate some slot."""

    on_full: Callable[[], bool]

    @property
    def shared_cells(self) -> int | None:
        """Tokens that all slots may hold together; None where each has a part of its own."""

    @property
    def held(self) -> Sequence[int]:
        """Tokens that each slot holds."""

    @property
    def kv_cells(self) -> int:
        """Tokens of all slots for which there is memory now."""


@runtime_checkable
class Copying(Backend, Protocol):
    """A backend on which a slot can copy tokens of another one."""

    def copy(self, source: int, slot: int, length: int) -> None:
        """Let `slot` hold the first `length` tokens that `source` holds, and nothing else."""


@runtime_checkable
class Branching(Backend, Protocol):
    """A backend whose forwards may verify trees."""

    @property
    def trees(self) -> bool:
        """Whether a row may follow another one than the row before it."""

    def keep(self, slot: int, row: int, length: int) -> int:
        """As `truncate`; of the slot's latest rows only `row` and those it follows are kept."""


READ_ROWS = 256
"""Pending tokens that a drafter reads in one round: a long prompt is read over several rounds,
because other sessions wait meanwhile."""


STEPS = 3
"""The longest prefix behind which a source drafts that reads it one token a forward: behind more
nodes its own vectors are too far from what the target computes."""


def _no_guess(_nodes: Draft) -> Sequence[Token]:
    return ()


@dataclass(frozen=True, slots=True)
class DraftRequest:
    """One session's request for a draft in a round.

    The drafter extends `prefix` (the proposal of an earlier source, may be empty) by at most
    `budget` nodes. Before each further node it calls `worth` with the signals found so far in its
    own extension; False ends the draft. `worth` is pure and cheap.

    `guess` returns the tokens that cheaper sources expect after `prefix` and the nodes given to it,
    as far as reading them in the same forward pays. A drafter calls it at most once for each
    forward; where it agrees with a guess it gets several nodes from one forward.

    A drafter with pending tokens reads at most `read` of them now. One that is `Skipping` leaves
    out the oldest `skip` of them from now on. With `siblings` a drafter that knows second choices
    hangs one beside each node; these are not counted in `budget`.
    """

    session: DraftSession
    prefix: Draft
    budget: int
    worth: Callable[[Sequence[Signal]], bool]
    guess: Callable[[Draft], Sequence[Token]] = _no_guess
    read: int = READ_ROWS
    skip: int = 0
    siblings: bool = False


class Proposing(Protocol):
    """A request's sampler chain, as far as a drafter needs it. Request lifetime."""

    greedy: bool
    """Temperature 0: the likeliest token is the token."""
    constraint: Constraint | None

    @property
    def looks_back(self) -> int:
        """The count of latest tokens that `propose` needs as `recent`."""

    def propose(
        self, logits: Floats, recent: Sequence[Token], path: Sequence[Token], position: int
    ) -> tuple[Token, Probs | None]:
        """A draft model's token by its own `logits`, and the law it was drawn from, if it was.

        `recent` are the latest committed tokens, `path` the drafted ones from there to `position`.
        """


class DraftSession(Protocol):
    """A drafter's memory of one request. Learns from committed tokens only."""

    @property
    def pending(self) -> int:
        """Tokens to read before it can propose; 0 for drafters without a model."""

    def commit(self, tokens: Sequence[Token]) -> None:
        """Take tokens that have just become part of the text, in order, each exactly once."""

    def close(self) -> None:
        """End the request. The drafter may keep what helps the slot's next one."""


@runtime_checkable
class Skipping(DraftSession, Protocol):
    """A drafter's memory of a request that may have gaps (`DraftRequest.skip`)."""

    @property
    def skipped(self) -> int:
        """Tokens of the text that it has left out."""


class Following(DraftSession, Protocol):
    """A drafter's memory of a request that is fed with the target's features."""

    inputs: int
    """Numbers of the features of one token."""

    @property
    def ready(self) -> bool:
        """Whether it could draft now: features of the text's last tokens have come."""

    def follow(self, start: int, features: Floats) -> None:
        """Take features (tokens, inputs) of decided tokens of the text, from place `start` on.

        Places that were taken before are skipped; places that never come are a gap.
        """


class Drafter(Protocol):
    """A source of drafts with the lifetime of the model: weights, indexes, statistics."""

    name: str
    free: bool
    """True when proposing costs host time only; if that is long, `takes_time = True` as well."""

    def open(
        self,
        slot: int,
        prompt: Sequence[Token],
        sampler: Proposing,
        prediction: Sequence[Token] = (),
    ) -> DraftSession:
        """Begin a request in `slot`. Must not decode anything yet.

        `prediction` is the output that the client expects; a drafter may ignore it.
        """

    def propose(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        """One extension per request, in order; Draft() where it has none.

        A node that was drawn from a law is proposed, whatever token it is: see `Draft.drawn`.
        All requests of a round come together, so that a neural drafter decodes them as one batch.
        """

    def close(self) -> None:
        """Free what the drafter holds."""


@runtime_checkable
class Computing(Protocol):
    """A drafter that runs a model, and counts its forwards."""

    forwards: ForwardCounts


@runtime_checkable
class Reading(Drafter, Protocol):
    """A drafter that can read a text some tokens at a time, before it is asked for a draft."""

    def read(self, session: DraftSession, most: int) -> int:
        """Read at most `most` pending tokens, return how many. A draft model leaves the last."""


class Constraint(Protocol):
    """Restricts which token may come next, as a grammar does. Request lifetime."""

    def mask(self, path: Sequence[Token]) -> NDArray[np.bool_] | None:
        """Allowed tokens (n_vocab,) after the committed text plus `path`; None for all."""

    def forced(self, path: Sequence[Token]) -> Sequence[Token]:
        """Tokens of the only text that may follow `path`; empty where there is a choice."""

    def commit(self, tokens: Sequence[Token]) -> None:
        """Advance over tokens that became part of the text."""


@dataclass(slots=True)
class SourceCount:
    """Drafted and accepted nodes of one source, in total and by position in the draft."""

    drafted: int = 0
    accepted: int = 0
    drafted_by_position: list[int] = field(default_factory=list)
    accepted_by_position: list[int] = field(default_factory=list)
