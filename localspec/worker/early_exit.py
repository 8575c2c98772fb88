"""Measures in idle moments whether a target can draft by an early exit, and after which layer."""

from __future__ import annotations

import logging
from collections.abc import Generator, Iterator, Mapping
from typing import TYPE_CHECKING, cast

from localspec.config import Placement
from localspec.control.costs import Costs
from localspec.drafters.early_exit import NAME, EarlyExitDrafter
from localspec.engine.images import words
from localspec.engine.step import Engine
from localspec.errors import EngineError, ModelError
from localspec.types import Row, Token
from localspec.worker.profile import Profile

if TYPE_CHECKING:
    from localspec.engine.llama.context import Context
    from localspec.engine.llama.early_exit import EarlyExit

_log = logging.getLogger("localspec.worker")

_PARTS, _LAST = 8, 3
"""Exits are tried at every eighth of the layers and at the last three: later ones agree more."""
_ROWS = 16
LEAST_TOKENS, MOST_TOKENS = 64, 160
"""Tokens of the text that exits are measured on; the most take half an idle minute on two cores."""
_PAYS = 1.05
"""An exit must promise to be this many times as fast as plain: one text is little evidence."""
_NODES = 16


def part(target: Context, *, alone: bool) -> EarlyExit | None:
    """The target for forwards that end early, None where they cannot.

    `alone`: no fed head taps its layers, and no simulated machine has a price for its forwards.
    """
    from localspec.engine.llama import early_exit  # noqa: PLC0415 - see `assemble.load`

    return early_exit.EarlyExit(target) if alone and early_exit.possible(target) else None


def candidates(count: int) -> list[int]:
    """The numbers of layers to try, of `count`."""
    tried = {round(count * each / _PARTS) for each in range(1, _PARTS)}
    return sorted((tried | {count - each for each in range(1, _LAST + 1)}) & {*range(1, count)})


def best(agreements: Mapping[int, float], count: int, costs: Costs) -> tuple[int, float]:
    """The layers, of `count`, after which an exit promises most, and its speed-up over plain.

    Assumes that every node is accepted as often as the first one, and that drafting a node takes
    the share of a forward that its layers are of all.
    """
    row, found = costs.target(1), (0, 0.0)
    for layers, agreement in agreements.items():
        for nodes in range(1, _NODES + 1):
            tokens = sum(agreement**node for node in range(nodes + 1))
            seconds = costs.target(1 + nodes) + nodes * row * layers / count
            found = max(found, (layers, tokens * row / seconds), key=lambda each: each[1])
    return found


class ExitChoice:
    """Chooses the exit: reads the end of a text that a slot holds, by all layers and by fewer.

    It reads in a context of its own on the loaded weights. The profile keeps, by layers, how often
    the likeliest token is that of all layers. The exit that promises most drafts from then on,
    unless none pays. The engine's thread.

    Args:
        engine: Has the drafter, if exits are possible.
        profile: Keeps the measured agreement.
        placement: The target's.
    """

    def __init__(self, engine: Engine, profile: Profile, placement: Placement) -> None:
        self._engine, self._profile, self._placement = engine, profile, placement
        found = engine.drafters.get(NAME)
        self._exit: EarlyExit | None = None
        if isinstance(found, EarlyExitDrafter):
            self._exit = cast("EarlyExit", found.target)
        self._work: Iterator[None] | None = None
        self._choose()

    @property
    def sentence(self) -> str:
        """The exit that drafts, or that none pays; empty while nothing is known."""
        if self._exit is None or not self._profile.exits:
            return ""
        if self._exit.layers:
            agreement = self._profile.exits[self._exit.layers]
            return f"{self._exit.layers} layers of it draft, which agree in {agreement:.2f}"
        layers, _ = self._best()
        agreement = self._profile.exits[layers]
        return f"an early exit does not pay: {layers} layers agree in {agreement:.2f}"

    def advance(self, _now: float = 0.0) -> bool:
        """Compute one forward; False where there is nothing to do, or no text for it yet."""
        if self._exit is None or self._profile.exits:
            return False
        if self._work is None:
            if (text := self._text()) is None:
                return False
            self._work = self._measuring(self._exit.whole, text)
        return next(self._work, self) is None

    def close(self) -> None:
        """Stop measuring, before the weights are freed."""
        self._work = self._exit = None

    def _text(self) -> list[Token] | None:
        """The end of the longest text that a slot holds, if it is long enough."""
        texts = (words(tokens) for _, tokens in self._engine.held())
        longest = max(texts, key=len, default=[])
        return longest[-MOST_TOKENS:] if len(longest) >= LEAST_TOKENS else None

    def _measuring(self, target: Context, text: list[Token]) -> Iterator[None]:
        try:
            agreed = yield from self._agreed(target, text)
        except (ModelError, EngineError, MemoryError) as error:
            _log.warning("early exits are not measured: %s", error)
            self._exit = None
            return
        self._profile.exits = {layers: count / len(text) for layers, count in agreed.items()}
        self._profile.save()
        self._choose()

    def _agreed(self, target: Context, text: list[Token]) -> Generator[None, None, dict[int, int]]:
        """By layers, at how many places of a text the likeliest token is that of all layers."""
        from localspec.engine.llama.context import Context  # noqa: PLC0415 - see `assemble.load`

        agreed = dict.fromkeys(candidates(target.model.n_layer), 0)
        context = Context.open(
            target.model, self._placement, slots=1, context=len(text), rows=_ROWS
        )
        try:
            for start in range(0, len(text), _ROWS):
                rows = [
                    Row(token, place, 0, wants_logits=True)
                    for place, token in enumerate(text[start : start + _ROWS], start)
                ]
                said = {}
                for layers in agreed:
                    said[layers] = context.decode_early(rows, layers).logits.argmax(axis=1)
                    context.truncate(0, start)
                    yield
                told = context.decode(rows).logits.argmax(axis=1)
                for layers, tokens in said.items():
                    agreed[layers] += int((tokens == told).sum())
                yield
        finally:
            context.close()
        return agreed

    def _best(self) -> tuple[int, float]:
        assert self._exit is not None  # noqa: S101 - its callers check
        return best(self._profile.exits, self._exit.whole.model.n_layer, self._profile.costs)

    def _choose(self) -> None:
        """Draft from the best exit from now on, if it pays."""
        if self._exit is None or not self._profile.exits:
            return
        layers, times = self._best()
        if times >= _PAYS:
            self._exit.layers = layers
            share = layers / self._exit.whole.model.n_layer
            self._profile.costs.expect_draft(NAME, share)
