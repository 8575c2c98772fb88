"""Plain's texts once more, to know afterwards what would have been possible, and who was honest.

A replay says how many tokens each drafter would have got through at each position of a text. From
that follow the bound of every arm, and how often what was expected of a drafter came true.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

from localspec.bench.arms import AUTO, PLAIN, PREDICTION, Arm
from localspec.bench.bound import Prices, best_ms, plain_ms
from localspec.bench.results import Replay, Results
from localspec.bench.suite import Prompt
from localspec.client import Json
from localspec.errors import RequestError
from localspec.protocol import Replayed, Trace

EDGES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98)
"""Between bins of expected acceptance; finer where chains get long."""


class Bin(msgspec.Struct, frozen=True):
    """Tokens that a source was expected to get right with about the same probability.

    `predicted` is the mean of what was expected of these `count` tokens, all of it from `low` to
    `high`; `observed` is the share that was the text's.
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

    A text that is refused, for being too long now, has no replay.

    Args:
        arms: Plain's is asked; one that predicts too, where it has something to say.
        prompts: The conversations.
        texts: Plain's answers by prompt and turn. A conversation that lacks one is left there.
        tell: Hears of each prompt.
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


def bounds(results: Results) -> dict[str, dict[str, float]]:
    """By arm and prompt: the highest ratio to plain that its drafters allowed on plain's text.

    The first token of an answer is the prompt's and counts neither here nor in a measured ratio.
    Empty where no replay or no staircase is there.
    """
    found: dict[str, dict[str, float]] = {}
    for arm in results.arms:
        drafters = _drafters(arm, results)
        totals: dict[str, list[float]] = {}
        for replay in _told(results.replays, predicting=arm == PREDICTION) if drafters else ():
            prices = Prices.of(results.model, replay.prompt_tokens + replay.tokens / 2)
            if prices is None:
                return {}
            total = totals.setdefault(replay.prompt, [0.0, 0.0])
            total[0] += plain_ms(replay.tokens - 1, prices)
            total[1] += _best_ms(replay, drafters, prices)
        ratios = {prompt: plain / best for prompt, (plain, best) in totals.items() if best > 0}
        if ratios:
            found[arm] = ratios
    return found


def _drafters(arm: str, results: Results) -> list[str]:
    """Who may draft for an arm; nobody for plain, and for servers that cannot be replayed."""
    loaded: list[str] = results.model.get("drafters") or []
    if arm in (AUTO, PREDICTION):
        return loaded
    return [name for name in loaded if name == arm]


def _told(replays: Iterable[Replay], *, predicting: bool) -> Iterable[Replay]:
    """One replay of each text: the one with a prediction if that is wanted and there."""
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


def reliability(replays: Iterable[Replay]) -> dict[str, list[Bin]]:
    """By source: what was expected of its next token against how often it was right.

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
