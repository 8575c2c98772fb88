"""The figures of a run in one line and, for `/stats`, in full. Missing figures are left out."""

from __future__ import annotations

from collections.abc import Iterator

from localspec.cli.columns import hung
from localspec.client import End, Json

SPECULATING = "speculating"
"""The router's reason for a request that may speculate."""

NOTICED_SHARE = 0.5
"""From this share of the context on, a line says how full the context is."""

WHOLE_SHARE = 0.99
"""An answer cut at this share of the context or above was cut by the context's end."""

_WHY_WITHOUT = {
    "off-by-request": "it was switched off",
    "no-rollback": "this model cannot take tokens back",
    "pair-mismatch": "the draft model does not fit this model",
    "no-drafter": "this model has nothing to draft with",
    "short-request": "so short an answer gains nothing",
    "high-temperature": "at this temperature most drafts are rejected",
}
"""The reasons of engine/routing.py in words for the user."""


def line(end: End, plain_ms: float = 0.0, context_share: float = 0.0) -> str:
    """One line: `212 tokens at 48.1 tokens/s, 1.9 times as fast as without speculation`.

    `plain_ms` is the time of a token without speculation (see `plain_ms`); with 0 the speed-up is
    left out. `context_share` is the share of the context that the conversation takes, shown from
    half on.
    """
    return "; ".join([_speed(end, plain_ms), *_limits(end, context_share)])


def without(reason: str) -> str:
    """The reason in words why a request had no speculation."""
    return _WHY_WITHOUT.get(reason, reason)


def plain_ms(model: Json, end: End) -> float:
    """Milliseconds that a token of this answer would have cost without speculation; 0 if unknown.

    The mean time of a round's verification, times the cost of one row over the cost of the round's
    mean rows, plus the host's time. Both costs were measured on the idle machine (`model` is the
    model's entry in the status). Only their ratio is used, so a busy machine does not distort it.
    """
    costs = {int(rows): ms for rows, ms in (model.get("cost_ms_by_rows") or {}).items()}
    rounds = end.speculation.get("rounds", 0)
    if 1 not in costs or not rounds:
        return 0.0
    rows = 1 + end.speculation["drafted"] / rounds
    verified_ms = 1000 * end.speculation["verify_seconds"] / rounds
    host_ms = 1000 * end.speculation["host_seconds"] / rounds
    return float(verified_ms * costs[1] / _between(costs, rows) + host_ms)


def _between(costs: dict[int, float], rows: float) -> float:
    """The cost of `rows`, interpolated between the nearest measured counts."""
    below = max(known for known in costs if known <= rows)
    above = min((known for known in costs if known > rows), default=below)
    share = (rows - below) / (above - below) if above > below else 0.0
    return costs[below] + share * (costs[above] - costs[below])


def _speed(end: End, plain_ms: float) -> str:
    tokens = end.usage.get("completion_tokens", end.timings.get("predicted_n", 0))
    said = f"{tokens} token{'s' * (tokens != 1)}"
    if per_second := end.timings.get("predicted_per_second"):
        said += f" at {per_second:.1f} tokens/s"
    reason = end.speculation.get("reason", SPECULATING)
    if reason != SPECULATING:
        return f"{said}, without speculation: {without(reason)}"
    if per_second and plain_ms and end.speculation:
        times = per_second * plain_ms / 1000
        return f"{said}, {times:.1f} times as fast as without speculation"
    return said


def _limits(end: End, context_share: float) -> Iterator[str]:
    if end.reason == "length":
        whole = context_share >= WHOLE_SHARE
        yield "cut at the end of the context" if whole else "cut at the token limit"
    if context_share >= NOTICED_SHARE:
        yield f"the context is {context_share:.0%} full"


def table(end: End, width: int | None = None, plain_ms: float = 0.0) -> str:
    """The figures of a run as aligned lines: counts, times, acceptance by source and position."""
    rows = list(_rows(end, plain_ms))
    label = max(len(name) for name, _ in rows)
    return "\n".join(hung(f"{name:<{label}}  ", value, width) for name, value in rows)


def _rows(end: End, plain_ms: float) -> Iterator[tuple[str, str]]:
    usage, timings, report = end.usage, end.timings, end.speculation
    yield "answer", line(end, plain_ms)
    if end.model:
        yield "model", end.model
    if usage:
        cached = (usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0)
        known = f", {cached} of them known from before" if cached else ""
        yield "prompt", f"{usage.get('prompt_tokens', 0)} tokens{known}"
    if timings:
        yield "prefill", _rate(timings, "prompt")
        yield "decode", _rate(timings, "predicted")
    if not report:
        return
    if "ttft_seconds" in report:
        yield "first token", f"after {_span(report['ttft_seconds'])}"
    yield "seed", str(report.get("seed", "not told"))
    if report["drafted"]:
        share = report["accepted"] / report["drafted"]
        yield "drafts", f"{report['accepted']} of {report['drafted']} tokens accepted ({share:.0%})"
    yield "rounds", f"{report['rounds']}, verified by the {report['verify']} rule"
    seconds = [f"{part} {_span(report[f'{part}_seconds'])}" for part in ("draft", "verify", "host")]
    yield "time in rounds", ", ".join(seconds)
    for name, count in report["sources"].items():
        yield name, f"{count['accepted']} of {count['drafted']} accepted{_positions(count)}"


def _positions(count: dict[str, list[int]]) -> str:
    pairs = zip(count["accepted_by_position"], count["drafted_by_position"], strict=False)
    shares = [f"{accepted / drafted:.0%}" for accepted, drafted in pairs if drafted]
    return f"; by position {' '.join(shares)}" if shares else ""


def _rate(timings: dict[str, float], phase: str) -> str:
    per_second = timings.get(f"{phase}_per_second", 0.0)
    span = _span(timings.get(f"{phase}_ms", 0.0) / 1000)
    return f"{timings.get(f'{phase}_n', 0)} tokens in {span}, {per_second:.1f} tokens/s"


def _span(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"
