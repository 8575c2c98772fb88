"""Policies that always draft, so that laws are tested at every depth and not where it pays."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import takewhile

import numpy as np

from localspec.control.round import DraftPlan, Round, SessionStats, View
from localspec.types import READ_ROWS, Draft, DraftRequest, DraftSession, Proposing, Signal, Token


def _always(_signals: Sequence[Signal]) -> bool:
    return True


@dataclass
class PredictedSession:
    """The rest of an answer that was told beforehand, for sources that know it."""

    tokens: list[Token]
    pending: int = 0

    def commit(self, tokens: Sequence[Token]) -> None:
        """Drop what came."""
        del self.tokens[: len(tokens)]

    def close(self) -> None:
        """Nothing held."""


class FixedDepth:
    """Every round drafts `depth` nodes: the free source's, then `extend`'s.

    Without `joins` what a free source proposes is only a guess of what `extend` may draft. That
    reads `read` pending tokens in a round.
    """

    def __init__(
        self,
        depth: int,
        extend: str | None = None,
        *,
        joins: bool = True,
        read: int = READ_ROWS,
    ) -> None:
        self.depth = depth
        self.read = read
        self.extend = extend
        self.joins = joins
        self.rounds: list[Round] = []

    def open_session(self) -> None:
        """No memory."""

    def wants_slow_source(
        self, name: str, stats: SessionStats | None, beside: str | None = None
    ) -> bool:
        """Every time."""
        del name, stats, beside
        return True

    def likely(self, stats: SessionStats | None) -> Callable[[Sequence[Signal]], bool]:
        """Whole chains."""
        del stats
        return _always

    def plan(self, views: Sequence[View], other_rows: int = 0, before: int = 0) -> list[DraftPlan]:
        """The longest free chain, continued by the named source."""
        del other_rows, before
        plans = []
        for view in views:
            depth = min(self.depth, view.budget)
            free = view.free if self.joins else ()
            base = max(free, key=len, default=Draft()).head(depth)
            able = any(neural.name == self.extend for neural in view.neural)
            extend = self.extend if able and len(base) < depth else None
            budget = depth - len(base)
            plans.append(DraftPlan(base, extend, budget, _always, read=self.read))
        return plans

    def trees(self, views: Sequence[View], drafts: Sequence[Draft]) -> list[Draft]:
        """As they come."""
        del views
        return list(drafts)

    def cut(self, views: Sequence[View], drafts: Sequence[Draft], other_rows: int = 0) -> list[int]:
        """Everything that was drafted is verified."""
        del views, other_rows
        return [len(draft) for draft in drafts]

    def paid(self, views: Sequence[View], nodes: Sequence[int], other_rows: int = 0) -> list[int]:
        """No guesses."""
        del nodes, other_rows
        return [0] * len(views)

    def padded(self, rows: int) -> int:
        """No more rows than are needed."""
        return rows

    def asks(self, stats: SessionStats | None) -> bool:
        """Always."""
        del stats
        return True

    def even(self, rows: Sequence[int]) -> bool:
        """Every other round, so that both ways are tried."""
        return len(rows) > 1 and len(self.rounds) % 2 > 0

    def observe(self, round_: Round) -> None:
        """Keep it for the test to look at."""
        self.rounds.append(round_)


class Choosy(FixedDepth):
    """Wants no node verified that its drafter was not sure of, nor any behind it."""

    def cut(self, views: Sequence[View], drafts: Sequence[Draft], other_rows: int = 0) -> list[int]:
        """The leading nodes that are more likely than not."""
        del views, other_rows
        return [likely(draft) for draft in drafts]


def likely(draft: Draft) -> int:
    """How many leading nodes have a prior of more than a half."""
    return sum(1 for _ in takewhile(lambda signal: signal.prior > 0.5, draft.signals))


class Gappy(FixedDepth):
    """Leaves out some of what a source has to read, at random, whenever there is much of it.

    So that there is much to read it is asked only now and then.
    """

    def __init__(self, depth: int, extend: str) -> None:
        super().__init__(depth, extend)
        self.skipped = 0
        self._random = np.random.default_rng(11)

    def plan(self, views: Sequence[View], other_rows: int = 0, before: int = 0) -> list[DraftPlan]:
        """A gap of any length before each draft, and plain rounds between."""
        plans = super().plan(views, other_rows, before)
        for place, (view, plan) in enumerate(zip(views, plans, strict=True)):
            if plan.extend is None:
                continue
            if self._random.random() < 0.5:
                plans[place] = DraftPlan(plan.base, None, 0, _always)
            elif (pending := view.neural[0].pending) > 1:
                skip = int(self._random.integers(pending))
                plans[place] = replace(plan, skip=skip)
                self.skipped += skip
        return plans


class Padding(FixedDepth):
    """Adds up to `most` times `step` rows to each forward, as chance has it."""

    def __init__(
        self, depth: int, extend: str | None = None, *, step: int = 1, most: int = 40
    ) -> None:
        super().__init__(depth, extend)
        self.added = 0
        self._step = step
        self._most = most
        self._random = np.random.default_rng(7)

    def padded(self, rows: int) -> int:
        """A random number of rows more."""
        more = self._step * int(self._random.integers(self._most + 1))
        self.added += more
        return rows + more


@dataclass
class _Silent:
    tokens: list[Token]
    pending: int = 0
    closed: bool = field(default=False)

    def commit(self, tokens: Sequence[Token]) -> None:
        self.tokens += tokens

    def close(self) -> None:
        self.closed = True


class Foretelling:
    """Knows the answer, which is predicted, and drafts of it what `spoilt` makes of it."""

    name, free = "foretelling", True

    def open(
        self,
        slot: int,
        prompt: Sequence[Token],
        sampler: Proposing,
        prediction: Sequence[Token] = (),
    ) -> DraftSession:
        """Remember the answer."""
        del slot, prompt, sampler
        return PredictedSession(list(prediction))

    def propose(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        """The rest of the answer, spoilt."""
        found = []
        for request in requests:
            assert isinstance(request.session, PredictedSession)
            tokens = self.spoilt(request.session.tokens[: request.budget], request.budget)
            found.append(Draft.chain(tokens, [Signal(self.name, 0, 0.5)] * len(tokens)))
        return found

    def spoilt(self, tokens: list[Token], budget: int) -> list[Token]:
        """Some of them, and some of those wrong; as they are unless a law says otherwise."""
        del budget
        return tokens

    def close(self) -> None:
        """Nothing held."""


class Rubbish:
    """A drafter that proposes random tokens, now and then a whole tree of them.

    Half of them come from the text, so that chance alone has some accepted.
    """

    name = "rubbish"
    free = True

    def __init__(self, n_vocab: int) -> None:
        self._n_vocab = n_vocab
        self._random = np.random.default_rng(1)

    def open(
        self,
        slot: int,
        prompt: Sequence[Token],
        sampler: Proposing,
        prediction: Sequence[Token] = (),
    ) -> DraftSession:
        """Nothing to prepare."""
        del slot, sampler, prediction
        return _Silent(list(prompt))

    def propose(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        """As many random tokens as the budget allows."""
        drafts = []
        for request in requests:
            session = request.session
            assert isinstance(session, _Silent)
            seen = session.tokens[-4:]
            tokens = [
                seen[int(self._random.integers(len(seen)))]
                if self._random.random() < 0.5
                else int(self._random.integers(self._n_vocab))
                for _ in range(request.budget)
            ]
            draft = Draft.chain(tokens, [Signal(self.name, 0, 0.5)] * len(tokens))
            if self._random.random() < 0.3:
                parents = tuple(
                    int(self._random.integers(-1, node + 1)) - 1 for node in range(len(tokens))
                )
                parents = tuple(max(-1, parent) for parent in parents)
                draft = Draft(draft.tokens, parents, draft.signals, draft.laws)
            drafts.append(draft)
        return drafts

    def close(self) -> None:
        """Nothing held."""


class Raising(Rubbish):
    """Drafter that raises in every call."""

    name = "raising"

    def propose(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        """Never answers."""
        raise RuntimeError(f"no draft for {len(requests)} sessions")


class Lying(Rubbish):
    """A drafter that proposes tokens which do not exist, and too many of them."""

    name = "lying"

    def propose(self, requests: Sequence[DraftRequest]) -> list[Draft]:
        """Ids beyond the vocabulary."""
        tokens = [-1, 1 << 31, self._n_vocab] * 40
        return [Draft.chain(tokens, [Signal(self.name, 0, 1.0)] * len(tokens)) for _ in requests]
