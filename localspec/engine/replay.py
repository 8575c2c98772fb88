"""Replays a finished text: how sure the target was of it, and what drafters would have drafted.

Target and drafters follow the given tokens instead of their own, in a slot of the engine between
two of its steps. Tokens and numbers only, as in the whole engine.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from localspec.engine.adapters import Scales
from localspec.engine.sampling import Sampler
from localspec.engine.speculation.agreement import agreement
from localspec.engine.speculation.drafting import indexed
from localspec.engine.speculation.states import commit, feed
from localspec.engine.step import Engine
from localspec.types import (
    READ_ROWS,
    Draft,
    Drafter,
    DraftRequest,
    DraftSession,
    Floats,
    ForwardOutput,
    SamplingParams,
    Signal,
    Token,
)
from localspec.wire.messages import Trace

_log = logging.getLogger("localspec.engine")

_FREE_STRIDE = 8
"""Positions for which a free drafter is asked before other work gets a turn: some milliseconds."""


@dataclass(frozen=True, slots=True)
class Script:
    """A text to be replayed: `text` is what followed `prompt`.

    `prediction` is what the client had expected, for the drafters. Prompt and text together fit
    the engine's context. `drafters` are asked, None for all that are loaded, each for at most
    `max_draft` tokens at a position. `client` keys the prefix cache, and `adapters` are scales, as
    in a request.
    """

    client: str
    prompt: list[Token]
    prediction: list[Token]
    text: list[Token]
    drafters: list[str] | None
    max_draft: int
    adapters: Scales = ()


@dataclass(slots=True)
class Reading:
    """The results of replaying a script of n tokens.

    gaps: (n,) the target's largest logit minus that of the text's token; 0 where greedy decoding
        gives that token.
    margins: (n + 1,) largest logit minus the second; the last one is of the position after the end.
    likeliest: The two likeliest tokens at the position after the end.
    traces: By drafter; one that failed is missing.
    """

    cached_tokens: int
    gaps: list[float] = field(default_factory=list)
    margins: list[float] = field(default_factory=list)
    likeliest: tuple[Token, Token] = (0, 0)
    traces: dict[str, Trace] = field(default_factory=dict)

    def score(self, logits: Floats, tokens: Sequence[Token]) -> None:
        """Take the next rows and the text's tokens there; at its end there is one row more."""
        for row, values in enumerate(logits):
            second, first = np.argpartition(values, -2)[-2:]
            self.margins.append(float(values[first] - values[second]))
            if row < len(tokens):
                self.gaps.append(float(values[first] - values[tokens[row]]))
            else:
                self.likeliest = int(first), int(second)


def replay(
    engine: Engine, script: Script, estimate: Callable[[Signal], float]
) -> Generator[None, None, Reading]:
    """Replay a script in the engine; yields after each piece of work, returns what it found.

    The first piece takes a slot. When the generator ends or is closed, the slot is given back with
    the prefix that it holds then.

    Args:
        engine: With a free slot; only its own thread may advance the generator.
        script: What to replay.
        estimate: The calibrated probability that a node is accepted, given its parent was.

    Raises:
        Busy: every slot is taken.
        EngineError: the target failed; the engine must not be used any more.
    """
    tokens = [*script.prompt, *script.text]
    judged = len(script.prompt) - 1
    slot, held = engine.take_slot(script.client, script.prompt)
    reading = Reading(cached_tokens=held)
    stage = _Stage(slot, script, engine.context, estimate)
    try:
        while held < len(tokens):
            output, count = engine.read(slot, tokens, held, judged, script.adapters)
            stage.look(held, count, output)
            held += count
            logits = output.logits[:count]
            reading.score(logits, tokens[held - len(logits) + 1 : held + 1])
            yield
        for name, drafter in engine.drafters.items():
            wanted = script.drafters is None or name in script.drafters
            if wanted and not getattr(drafter, "live", False):  # a live one needs a real round
                trace = yield from _trace(drafter, stage)
                if trace is not None:
                    reading.traces[name] = trace
    finally:
        engine.release_slot(slot, script.client, tokens[:held], adapters=script.adapters)
    return reading


@dataclass(slots=True)
class _Stage:
    """The place where drafters are asked along a script: what they may know, and who estimates.

    `states` are the target's, one for each judged row of the text, where the target shows them.
    """

    slot: int
    script: Script
    context: int
    estimate: Callable[[Signal], float]
    states: list[NDArray[np.float16]] = field(default_factory=list)
    features: list[tuple[int, NDArray[np.float16]]] = field(default_factory=list)
    """The features of the prompt's last tokens and of the text, in parts with their first place."""

    def look(self, start: int, count: int, output: ForwardOutput) -> None:
        """Keep the states and the features of a forward's `count` tokens from `start` on."""
        if output.states is not None:
            self.states.extend(output.states[:count].astype(np.float16))
        if start + count > len(self.script.prompt) - READ_ROWS:
            features = output.features()
            if features is not None:
                self.features.append((start, features[:count].astype(np.float16)))

    def feed(self, opened: DraftSession, first: int, end: int) -> None:
        """Feed a session the features of the tokens from place `first` on, before `end`."""
        for start, features in self.features:
            part = features[max(0, first - start) : max(0, end - start)]
            if len(part):
                feed(opened, max(start, first), part.astype(np.float32))

    def state(self, position: int) -> Floats | None:
        """The state of which the text's token at a position came."""
        return self.states[position].astype(np.float32) if self.states else None


def _trace(drafter: Drafter, stage: _Stage) -> Generator[None, None, Trace | None]:
    """The proposals of one drafter along the text; None if it failed, for it is optional.

    A free source is asked for a whole chain at every position, because the place it copies from
    depends on the position. A neural one is asked for one token at a time: it is greedy, so as long
    as its tokens agree with the text, a longer chain would have had the same ones. So a run of
    agreed tokens is its chain, and no forward is wasted.
    """
    script, text = stage.script, stage.script.text
    survives: list[int] = []
    predicted: list[float | None] = []
    opened: DraftSession | None = None
    try:
        sampler = Sampler(SamplingParams(temperature=0))
        opened = drafter.open(stage.slot, script.prompt, sampler, script.prediction)
        yield from indexed(drafter, opened)
        known = len(script.prompt)
        stage.feed(opened, 0, known - 1)
        for position, token in enumerate(text):
            room = stage.context - len(script.prompt) - position - 1
            budget = min(script.max_draft if drafter.free else min(script.max_draft, 1), room)
            draft = yield from _proposed(drafter, DraftRequest(opened, Draft(), budget, _always))
            survives.append(agreement(draft, text[position:]))
            predicted.append(stage.estimate(draft.signals[0]) if draft.tokens else None)
            commit(opened, [token], stage.state(position))
            stage.feed(opened, known + position - 1, known + position)
            if not drafter.free or position % _FREE_STRIDE == 0:
                yield
    except Exception:  # noqa: BLE001 - a drafter is optional whatever is wrong with it
        _log.exception("drafter %s failed and is left out of a replay", drafter.name)
        return None
    finally:
        if opened is not None:
            opened.close()
    if not drafter.free:
        survives = _runs(survives, script.max_draft)
    return Trace(drafter.free, survives, predicted)


def _proposed(drafter: Drafter, request: DraftRequest) -> Generator[None, None, Draft]:
    """The drafter's chain, after it has read all that it must read first."""
    while request.budget > 0:
        pending = request.session.pending
        (draft,) = drafter.propose([request])
        if draft.tokens or not 0 < request.session.pending < pending:
            return draft.trunk()
        yield
    return Draft()


def _runs(agreed: Sequence[int], most: int) -> list[int]:
    """The length of the run of agreed tokens that begins at each position, at most `most`."""
    runs: list[int] = []
    for one in reversed(agreed):
        runs.append(min(1 + runs[-1] if runs else 1, most) if one else 0)
    return runs[::-1]


def _always(_signals: Sequence[Signal]) -> bool:
    return True
