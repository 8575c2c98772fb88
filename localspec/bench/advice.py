"""Advice from what the daemon has learned about this machine: `localspec tune`. Pure.

Every sentence follows from a figure shown with it. There is no advice on unmeasured things.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from localspec.bench.results import staircase
from localspec.client import Json

SAME_TREAD = 1.05
"""Row counts that cost less than 5 % more than fewer rows are on the same tread."""
UNEVEN = 1.25
"""The usual error of a measurement; fewer rows should never cost this much more than more rows."""
STEEP_ROWS, STEEP_COST = 4, 2.5
"""On CPUs K-quants verify 4 rows at about 3 times one row; the kernels of Q4_0 at about 1.8."""
GPU_DEVICES = ("CUDA", "ROCm", "Vulkan", "SYCL", "Metal")
"""Beginnings of llama.cpp's names of GPU memory; "..._Host" is memory of the CPU."""
SHORT_SHARE = 0.5
MANY_REQUESTS = 20


class Stair(msgspec.Struct, frozen=True):
    """A row count and its cost: in milliseconds, relative to one row, and after a long text.

    A round of `rows` rows is faster than plain decoding if it commits more than `relative` tokens,
    apart from the time of drafting. `edge` marks a good row count to stop at: its cost per row is
    lower than with fewer rows, and one more row costs clearly more.
    """

    rows: int
    ms: float
    relative: float
    edge: bool
    far_ms: float


class LearnedCosts(msgspec.Struct, frozen=True):
    """Measurements of one model; None and empty where there are none yet."""

    model: str
    far_tokens: int
    stairs: list[Stair]
    acceptance: dict[str, tuple[int, int]]
    prompt_tokens_per_second: float | None
    tokens_per_second: float | None
    routing: dict[str, int]
    exactness: str | None
    advice: list[str]


def learned(model: Json, weight_types: Sequence[str], *, has_gpu: bool) -> LearnedCosts:
    """Everything that `tune` shows. Prompts are assumed to be read at the cheapest rate per row.

    Args:
        model: The model's entry in the daemon's status.
        weight_types: Element types of the target's weights, the one with most bytes first.
        has_gpu: Whether this machine's system knows of a GPU.
    """
    far_tokens = model.get("far_tokens") or 0
    stairs = treads(staircase(model), dict(staircase(model, far_tokens)))
    drafted, accepted = model.get("drafted") or {}, model.get("accepted") or {}
    return LearnedCosts(
        model=model["name"],
        far_tokens=far_tokens,
        stairs=stairs,
        acceptance={name: (accepted.get(name, 0), count) for name, count in drafted.items()},
        prompt_tokens_per_second=max((1000 * row.rows / row.ms for row in stairs), default=None),
        tokens_per_second=model.get("tokens_per_second") or None,
        routing=model.get("routing") or {},
        exactness=model.get("exactness"),
        advice=[
            sentence
            for sentence in (
                _unmeasured(stairs),
                _uneven(stairs),
                _steep(stairs, weight_types),
                _idle_gpu(model, has_gpu=has_gpu),
                _safe_kernels(model),
                _off(model),
                _no_draft(model),
                _short(model),
            )
            if sentence
        ],
    )


def treads(costs: Sequence[tuple[int, float]], far: Mapping[int, float]) -> list[Stair]:
    """The staircase with its edges; empty unless one row was measured, as costs are relative to it.

    `far` maps row counts to their costs after a long text.
    """
    if not costs or costs[0][0] != 1:
        return []
    one = costs[0][1]
    stairs = []
    cheapest = float("inf")
    for place, (rows, ms) in enumerate(costs):
        following = costs[place + 1][1] if place + 1 < len(costs) else float("inf")
        edge = ms / rows < cheapest and following >= SAME_TREAD * ms
        cheapest = min(cheapest, ms / rows)
        stairs.append(Stair(rows, ms, ms / one, edge, far.get(rows, ms)))
    return stairs


def _unmeasured(stairs: Sequence[Stair]) -> str:
    if stairs:
        return ""
    return "No costs are measured yet; the daemon measures while it has nothing else to do."


def _uneven(stairs: Sequence[Stair]) -> str:
    """A sentence if more rows cost clearly less than fewer; names the pair that differs most."""
    pairs = [(one, more) for at, one in enumerate(stairs) for more in stairs[at + 1 :]]
    one, more = max(pairs, key=lambda pair: pair[0].ms / pair[1].ms, default=(None, None))
    if one is None or more is None or one.ms < UNEVEN * more.ms:
        return ""
    return (
        f"{one.rows} rows were measured at {one.relative:.1f} times one row and {more.rows} rows "
        f"at {more.relative:.1f}. Either this build is slow with {one.rows} rows, or other "
        "programs used the processor during the measurement."
    )


def _steep(stairs: Sequence[Stair], weight_types: Sequence[str]) -> str:
    cost = next((stair.relative for stair in stairs if stair.rows == STEEP_ROWS), None)
    main = weight_types[0] if weight_types else ""
    if cost is None or cost <= STEEP_COST or not main.endswith("_K"):
        return ""
    return (
        f"{STEEP_ROWS} rows cost {cost:.1f} times one row with {main} weights. Q4_0 may verify "
        "cheaper on this processor: `localspec models quantize` makes such a model and measures "
        "both. It is another model, whose answers differ."
    )


def _idle_gpu(model: Json, *, has_gpu: bool) -> str:
    devices = {held["device"] for held in model.get("devices") or []}
    on_gpu = any(name.startswith(GPU_DEVICES) and "_Host" not in name for name in devices)
    if not has_gpu or not devices or on_gpu:
        return ""
    return (
        "This machine has a GPU, and the model is in the memory of the CPU alone: either "
        "engine.target.gpu_layers is 0, or llama.cpp was built without it (`make` builds it again)."
    )


def _safe_kernels(model: Json) -> str:
    if not model.get("safe_kernels"):
        return ""
    return (
        "The fast kernels crashed or gave no numbers while loading, so slower ones are in use. A "
        "newer llama.cpp may mend it; `localspec logs` has the crash."
    )


def _off(model: Json) -> str:
    reason = (model.get("speculation_off") or "").removesuffix(".")
    what = "No draft model" if model.get("drafters") else "Speculation is off for this model"
    return f"{what}: {reason}." if reason else ""


def _no_draft(model: Json) -> str:
    if model.get("draft_path") or model.get("speculation_off"):
        return ""
    return (
        "There is no draft model, so drafts come from earlier text alone: "
        f"`localspec models pull {model['name']}` fetches one, if the catalog has one."
    )


def _short(model: Json) -> str:
    routing = model.get("routing") or {}
    total, short = sum(routing.values()), routing.get("short-request", 0)
    if total < MANY_REQUESTS or short < SHORT_SHARE * total:
        return ""
    return (
        f"{short} of {total} requests were expected to be so short that drafting could not pay. "
        "That is as it should be; speculation changes nothing for them."
    )
