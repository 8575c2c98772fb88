"""Replays plain's texts, to compute bounds on every arm and the reliability of each source.

A replay tells how many tokens of each drafter would have been accepted at each position of a text.
The bound of every arm follows from that, and how often each drafter's expected acceptance was
right.
"""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeAlias

import msgspec

from localspec.bench.arms import AUTO, PLAIN, PREDICTION, Arm
from localspec.bench.bound import FixedDepth, Prices, best_ms, fixed_ms, plain_ms
from localspec.bench.results import Replay, Results
from localspec.bench.suite import Prompt
from localspec.client import Json
from localspec.errors import RequestError
from localspec.wire.messages import Replayed, Trace

EDGES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98)
"""Limits between the bins of expected acceptance; closer where chains get long."""


DEPTHS = (0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 31)
"""Depths of the fixed settings that are tried; 0 leaves a drafter out."""

_Setting: TypeAlias = tuple[tuple[str, int], ...]
"""The depth of each drafter, free drafters first."""


class Possible(NamedTuple):
    """Ratios to plain on one prompt: of the best possible decisions, and of the best fixed setting.

    In a setting a neural drafter drafts only where the free ones have nothing. The best setting is
    found afterwards by trying all of them. Drafters read the text at no cost.
    """

    best: float
    tuned: float


@dataclass(slots=True)
class _Times:
    """Milliseconds of a conversation, whose turns share one setting."""

    plain: float = 0.0
    best: float = 0.0
    fixed: defaultdict[_Setting, float] = field(default_factory=lambda: defaultdict(float))


class Bin(msgspec.Struct, frozen=True):
    """Tokens that a source was expected to get right with about the same probability.

    `predicted` is the mean of the expected probabilities of these `count` tokens, all of them from
    `low` to `high`; `observed` is the share of them that were the text's.
    """

    low: float
    high: float
    predicted: float
    observed: float
    count: int


def replays(
    arms: Iterable[Arm],
    prompts: Iterable[Prompt],
    texts: Mapping[tuple[str, int], str],
    tell: Callable[[int, str], None],
) -> list[Replay]:
    """Replay every text of plain's once, and once more for an arm that predicts it.

    A text that the daemon refuses, because it is too long now, has no replay.

    Args:
        arms: Plain is asked, and arms that predict, for the texts for which they have a prediction.
        prompts: The conversations.
        texts: Plain's answers by prompt and turn. A conversation ends where one is missing.
        tell: Called for each prompt.
    """
    asking = [arm for arm in arms if arm.name == PLAIN or arm.predicts]
    found: list[Replay] = []
    for prompt in prompts:
        tell(1, f"replay: {prompt.name}")
        messages: list[Json] = []
        for turn, question in enumerate(prompt.turns):
            text = texts.get((prompt.name, turn))
            if text is None:
                break
            messages.append({"role": "user", "content": question})
            found += [
                replay
                for arm in asking
                if arm.name == PLAIN or arm.prediction(question)
                if (replay := _replay(arm, prompt.name, turn, messages, text))
            ]
            messages.append({"role": "assistant", "content": text})
    return found


def _replay(arm: Arm, prompt: str, turn: int, messages: Sequence[Json], text: str) -> Replay | None:
    expected = arm.prediction(messages[-1]["content"])
    try:
        answer = arm.client.replay(
            messages, text, prediction=expected, model=arm.fields.get("model")
        )
    except RequestError:
        return None
    told = msgspec.convert(answer, Replayed)
    return Replay(
        prompt,
        turn,
        told.tokens,
        told.max_draft,
        told.drafters,
        predicts=bool(expected),
        prompt_tokens=told.prompt_tokens,
    )


def possible(results: Results) -> dict[str, dict[str, Possible]]:
    """The best ratios to plain that each arm's drafters allowed on plain's text, by arm and prompt.

    The first token of an answer comes from the prompt's forward and counts neither here nor in a
    measured ratio. Empty if there is no replay or no staircase.
    """
    found: dict[str, dict[str, Possible]] = {}
    for arm in results.arms:
        drafters = _drafters(arm, results)
        totals: dict[str, _Times] = {}
        for replay in _told(results.replays, predicting=arm == PREDICTION) if drafters else ():
            prices = _prices(results, replay)
            if prices is None:
                return {}
            total = totals.setdefault(replay.prompt, _Times())
            total.plain += plain_ms(replay.tokens - 1, prices)
            total.best += _best_ms(replay, drafters, prices)
            for setting, ms in _fixed_ms(replay, drafters, prices).items():
                total.fixed[setting] += ms
        ratios = {
            prompt: Possible(total.plain / total.best, total.plain / min(total.fixed.values()))
            for prompt, total in totals.items()
            if total.best > 0
        }
        if ratios:
            found[arm] = ratios
    return found


def _prices(results: Results, replay: Replay) -> Prices | None:
    """Costs of a text's rounds: from the table if the machine was simulated, else as measured."""
    cells = replay.prompt_tokens + replay.tokens / 2
    if results.table is None:
        return Prices.of(results.model, cells)
    neural = [name for name, trace in replay.drafters.items() if not trace.free]
    return Prices.on(results.table, neural, cells)


def _drafters(arm: str, results: Results) -> list[str]:
    """The drafters of an arm; none for plain, no corpus, and servers that cannot be replayed."""
    loaded: list[str] = results.model.get("drafters") or []
    if arm in (AUTO, PREDICTION):
        return loaded
    return [name for name in loaded if name == arm]


def _told(replays: Iterable[Replay], *, predicting: bool) -> Iterable[Replay]:
    """One replay of each text: the one with a prediction if it is wanted and there is one."""
    chosen: dict[tuple[str, int], Replay] = {}
    for replay in replays:
        key = replay.prompt, replay.turn
        if not replay.predicts:
            chosen.setdefault(key, replay)
        elif predicting:
            chosen[key] = replay
    return chosen.values()


def _best_ms(replay: Replay, drafters: Sequence[str], prices: Prices) -> float:
    traces = {name: replay.drafters[name] for name in drafters if name in replay.drafters}
    decoded = range(1, replay.tokens)
    free = [
        max((trace.survives[place] for trace in traces.values() if trace.free), default=0)
        for place in decoded
    ]
    neural = {name: trace.survives[1:] for name, trace in traces.items() if not trace.free}
    return best_ms(free, neural, prices, replay.max_draft)


def _fixed_ms(replay: Replay, drafters: Sequence[str], prices: Prices) -> dict[_Setting, float]:
    """Milliseconds by setting."""
    chains = {
        name: [
            survives if predicted is not None else None
            for predicted, survives in zip(trace.predicted, trace.survives, strict=True)
        ][1:]
        for name, trace in replay.drafters.items()
        if name in drafters
    }
    free = [name for name in chains if replay.drafters[name].free]
    paid = [name for name in chains if name in prices.draft_ms]
    ways = itertools.product(*(itertools.product([name], DEPTHS) for name in (*free, *paid)))
    return {
        way: fixed_ms(
            [
                FixedDepth(chains[name], depth, prices.draft_ms.get(name, 0.0))
                for name, depth in way
                if depth
            ],
            replay.tokens - 1,
            prices,
        )
        for way in ways
    }


def reliability(replays: Iterable[Replay]) -> dict[str, list[Bin]]:
    """Expected against measured acceptance of the next token, by source.

    Every token of a text counts once for each source that had a proposal for it.
    """
    pairs: dict[str, list[tuple[float, bool]]] = {}
    for replay in _told(replays, predicting=False):
        for name, trace in replay.drafters.items():
            pairs.setdefault(name, []).extend(_pairs(trace))
    return {name: found for name, each in pairs.items() if (found := _binned(each))}


def _pairs(trace: Trace) -> Iterable[tuple[float, bool]]:
    for predicted, survives in zip(trace.predicted, trace.survives, strict=True):
        if predicted is not None:
            yield predicted, survives > 0


def _binned(pairs: Iterable[tuple[float, bool]]) -> list[Bin]:
    bins: list[list[tuple[float, bool]]] = [[] for _ in range(len(EDGES) + 1)]
    for predicted, right in pairs:
        bins[bisect_right(EDGES, predicted)].append((predicted, right))
    return [
        Bin(
            low=low,
            high=high,
            predicted=sum(predicted for predicted, _ in held) / len(held),
            observed=sum(right for _, right in held) / len(held),
            count=len(held),
        )
        for held, low, high in zip(bins, (0.0, *EDGES), (*EDGES, 1.0), strict=True)
        if held
    ]
