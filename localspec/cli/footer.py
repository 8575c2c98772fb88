"""The figures of a run in one line and, for `/stats`, in full. What was not sent is not shown."""

from __future__ import annotations

from collections.abc import Iterator

from localspec.cli.columns import hung
from localspec.client import End

SPECULATING = "speculating"
"""The router's word for a request that was not kept from speculating."""

NOTICED_SECONDS = 0.5
"""Below it nobody wonders where the time went."""

NOTICED_SHARE = 0.5
"""Of the context: below it nobody need think of its end."""

WHOLE_SHARE = 0.99
"""Of the context: an answer that is cut from here on was cut by its end."""


def line(end: End, waited_seconds: float = 0.0, context_share: float = 0.0) -> str:
    """One line: `212 tokens · 48.1 tok/s · 71% of 180 drafted accepted (lookup 102, ...) · ...`.

    `waited_seconds` is what the person waited for the first text; it is shown where it is more than
    the engine's own time to first token, because a model was loaded or others were first.
    `context_share` is how much of the context the conversation takes, shown from half on.
    """
    meter = [f"context {context_share:.0%} full"] if context_share >= NOTICED_SHARE else []
    return " · ".join([*_parts(end, waited_seconds, context_share), *meter])


def _parts(end: End, waited_seconds: float, context_share: float) -> Iterator[str]:
    tokens = end.usage.get("completion_tokens", end.timings.get("predicted_n"))
    if tokens is not None:
        yield f"{tokens} token{'s' * (tokens != 1)}"
    if end.timings.get("predicted_per_second"):
        yield f"{end.timings['predicted_per_second']:.1f} tok/s"
    yield from _drafts(end, tokens or 0)
    if "ttft_seconds" in end.speculation:
        ttft_seconds = end.speculation["ttft_seconds"]
        yield f"ttft {_span(ttft_seconds)}"
        if waited_seconds > ttft_seconds + NOTICED_SECONDS:
            yield f"after {_span(waited_seconds - ttft_seconds)} of waiting"
    cached = (end.usage.get("prompt_tokens_details") or {}).get("cached_tokens")
    if cached:
        yield f"cached {cached}"
    if end.reason == "length":
        whole = context_share >= WHOLE_SHARE
        yield "cut at the end of the context" if whole else "cut at the token limit"


def _drafts(end: End, tokens: int) -> Iterator[str]:
    report = end.speculation
    if not report:
        return
    if report["reason"] != SPECULATING:
        yield f"plain: {report['reason']}"
    drafted, accepted = report["drafted"], report["accepted"]
    if drafted:
        shares = ", ".join(
            f"{name} {count['accepted']}" for name, count in report["sources"].items()
        )
        yield f"{accepted / drafted:.0%} of {drafted} drafted accepted ({shares})"
        yield f"{accepted / max(tokens, accepted):.0%} of tokens from drafts"
    elif report["reason"] == SPECULATING:
        yield "nothing was worth drafting"


def table(end: End, width: int | None = None) -> str:
    """The figures of a run as aligned lines: counts, times, acceptance by source and position."""
    rows = list(_rows(end))
    label = max(len(name) for name, _ in rows)
    return "\n".join(hung(f"{name:<{label}}  ", value, width) for name, value in rows)


def _rows(end: End) -> Iterator[tuple[str, str]]:
    usage, timings, report = end.usage, end.timings, end.speculation
    yield "answer", line(end)
    if end.model:
        yield "model", end.model
    if usage:
        yield "prompt", f"{usage.get('prompt_tokens', 0)} tokens"
    if timings:
        yield "prefill", _rate(timings, "prompt")
        yield "decode", _rate(timings, "predicted")
    if not report:
        return
    yield "seed", str(report.get("seed", "not told"))
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
    return f"{timings.get(f'{phase}_n', 0)} tokens in {span}, {per_second:.1f} tok/s"


def _span(seconds: float) -> str:
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"
