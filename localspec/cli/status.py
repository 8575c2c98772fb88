"""`localspec status`: the daemon and its models, as `/v1/status` tells them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import click

from localspec.cli import chosen, footer
from localspec.cli.columns import columns, hung
from localspec.cli.waiting import stage
from localspec.client import Json, other_version
from localspec.errors import NotRunning, escaped

LABEL_WIDTH = len("speculation")


@click.command()
@click.option("--json", "as_json", is_flag=True, help="One JSON object, as the daemon sent it.")
def status(*, as_json: bool) -> None:
    """Show what is loaded, where, and how it does.

    Exit code 69 if no daemon runs.

    Example: localspec status --json | jq .models
    """
    client = chosen.client()
    try:
        report = client.status()
    except NotRunning:
        if as_json:
            click.echo(json.dumps({"running": False, "socket": str(client)}))
        raise
    if as_json:
        click.echo(json.dumps({"running": True, **report}, separators=(",", ":")))
    else:
        show(report)


def show(report: Json) -> None:
    """Print the report for people."""
    from rich.console import Console  # noqa: PLC0415  slow to import, of no use for --json

    console = Console(markup=False, highlight=False)
    width = columns()
    console.print(hung("", _head(report), width), soft_wrap=True)
    for name, value in _daemon_rows(report):
        style = "red" if name == "config error" else None
        console.print(hung(f"{name}: ", escaped(value), width), style=style, soft_wrap=True)
    for model in report.get("models", []):
        console.print(f"\n{escaped(model['name'] + _title(model))}", style="bold")
        for name, value in _model_rows(model):
            label = f"  {name:<{LABEL_WIDTH}}  "
            console.print(hung(label, escaped(value), width), soft_wrap=True)
    for name, value in _upstream_rows(report):
        console.print(f"\n{escaped(f'{name}: {value}')}", soft_wrap=True)


def _head(report: Json) -> str:
    where = [str(report[key]) for key in ("socket", "tcp") if report.get(key)]
    draining = ["draining"] if report.get("draining") else []
    return " · ".join(
        [
            f"localspec {report['version']}",
            f"pid {report['pid']}",
            f"up {span(report['uptime_seconds'])}",
            *where,
            *draining,
        ]
    )


def _daemon_rows(report: Json) -> Iterator[tuple[str, str]]:
    if said := other_version(report["version"]):
        yield "version", said
    if report.get("updated"):
        yield "updated", "since the daemon started, which runs the old code; localspec restart"
    if report.get("config_error"):
        yield "config error", f"{report['config_error']} (the last good one is in force)"
    if report.get("restart_needed"):
        yield "after a restart", ", ".join(report["restart_needed"])
    if report.get("machine"):
        yield (
            "machine",
            f"{report['machine']}, on a simulated machine: answers are timed by that table",
        )
    for device in report.get("devices", []):
        yield device["name"], _device(device)
    if limit := report.get("memory_bytes"):
        yield "memory", f"models may take {size(limit)} of the CPU's together"
    if not report.get("models"):
        yield "models", f"none in {report.get('models_directory', 'the models directory')}"


def _device(device: Json) -> str:
    known = [device["description"]] if device["description"] else []
    known.append(f"{size(device['free_bytes'])} of {size(device['total_bytes'])} free")
    if device["held_bytes"]:
        known.append(f"models hold {size(device['held_bytes'])}")
    return ", ".join(known)


def _upstream_rows(report: Json) -> Iterator[tuple[str, str]]:
    for upstream in report.get("upstreams", []):
        yield f"upstream {upstream['name']}", f"{upstream['url']}: {', '.join(upstream['models'])}"


def _title(model: Json) -> str:
    words = [" (default)" if model.get("default") else "", f": {model['state']}"]
    if loading := model.get("loading"):
        words.append(f", {stage(loading)}")
    for key, what in (("active", "answering"), ("queued", "waiting")):
        if model.get(key):
            words.append(f", {model[key]} {what}")
    if model.get("idle_seconds") is not None and model["state"] == "ready":
        words.append(f", idle for {span(model['idle_seconds'])}")
    if model.get("stalled"):
        words.append(", stalled")
    return "".join(words)


def _model_rows(model: Json) -> Iterator[tuple[str, str]]:
    """Rows of one model, the most wanted first."""
    for key in ("error", "last_crash"):
        if model.get(key):
            yield key.replace("_", " "), model[key]
    if model.get("target_path"):
        of_bytes = f", {size(model['size_bytes'])}" if model.get("size_bytes") else ""
        yield "target", Path(model["target_path"]).name + of_bytes
    if model.get("draft_path"):
        yield "draft", Path(model["draft_path"]).name
    yield from _memory_rows(model)
    yield from _placement_rows(model)
    if model.get("speculation_off") == "embeddings":
        yield "gives", "a vector of each text; nothing is drafted"
    else:
        yield from _format_rows(model)
        yield from _speculation_rows(model)


def _placement_rows(model: Json) -> Iterator[tuple[str, str]]:
    for device, (first, last) in (model.get("layers") or {}).items():
        yield "layers", f"{device}: {first} to {last}"
    if model.get("context"):
        yield "context", f"{model['context']} tokens of {model.get('context_train', '?')} trained"
    yield from _rows_as_they_are(model, "placement", "template")
    for adapter in model.get("adapters") or []:
        yield "adapter", f"{Path(adapter['path']).name}, scale {adapter['scale']:g}"
    if model.get("kv_cells"):
        held, cells = model.get("kv_held", 0), model["kv_cells"]
        yield "kv cache", f"{held} of {cells} tokens, at most {model.get('cells', cells)}"
    if kept := model.get("prefixes"):
        yield from _prefix_rows(kept)


def _prefix_rows(kept: Json) -> Iterator[tuple[str, str]]:
    """Rows about prompts that need not be read again."""
    if kept["texts"]:
        there = f"{size(kept['memory_bytes'])} in memory, {size(kept['disk_bytes'])} on disk"
        yield "prefixes", f"{kept['texts']} text{'s' * (kept['texts'] != 1)}: {there}"
    if kept["hits"]:
        spared = f"{kept['tokens']} tokens of {kept['hits']} prompt{'s' * (kept['hits'] != 1)}"
        yield "not read", f"{spared}, which had taken {span(kept['seconds'])}"


def _rows_as_they_are(model: Json, *keys: str) -> Iterator[tuple[str, str]]:
    """Rows of sentences that the daemon has written."""
    for key in keys:
        if model.get(key):
            yield key, model[key]


def _format_rows(model: Json) -> Iterator[tuple[str, str]]:
    """Rows about the format of a model's calls, and faults of its chat template."""
    if model.get("format"):
        warning = model.get("format_warning")
        generic = model["format"] == "generic"
        like = model["format"] if generic else f"like {model['format']}'s"
        yield "format", like + (f": {warning}" if warning else "")


def _memory_rows(model: Json) -> Iterator[tuple[str, str]]:
    for device, held in (model.get("memory") or {}).items():
        yield "holds", f"{size(held)} of {device}"
    for buffer in model.get("devices", []):
        yield "memory", f"{buffer['device']}: {buffer['what']} {size(buffer['bytes'])}"


def _speculation_rows(model: Json) -> Iterator[tuple[str, str]]:
    if model.get("drafters"):
        yield "drafters", ", ".join(model["drafters"])
    if why := model.get("speculation_off"):
        yield ("no draft", why) if model.get("drafters") else ("speculation", f"off: {why}")
    yield from _rows_as_they_are(model, "head", "projector", "corpus", "rollback")
    yield from _exactness_rows(model)
    if model.get("safe_kernels"):
        yield (
            "kernels",
            "safe ones until it is unloaded, because the fast ones crashed or gave no numbers",
        )
    elif model.get("kernels"):
        yield "kernels", model["kernels"]
    if model.get("tokens_per_second"):
        yield "speed", f"{model['tokens_per_second']:.1f} tokens/s"
    if model.get("cost_ms_by_rows"):
        yield "decode", ", ".join(f"{n}: {ms:.0f} ms" for n, ms in _costs(model)) + " by rows"
    for source, drafted in (model.get("drafted") or {}).items():
        accepted = (model.get("accepted") or {}).get(source, 0)
        yield "accepted", f"{source} {accepted} of {drafted}{share(accepted, drafted)}"
    if model.get("routing"):
        yield "requests", "; ".join(_requests(model["routing"]))


def _exactness_rows(model: Json) -> Iterator[tuple[str, str]]:
    """The row about exactness, strict or standard, and its details."""
    if model.get("exactness"):
        detail = model.get("exactness_detail")
        yield "exactness", model["exactness"] + (f": {detail}" if detail else "")


def _costs(model: Json) -> list[tuple[int, float]]:
    """Costs of 1, 2, 4, 8 ... rows: `localspec tune` shows all."""
    costs = sorted((int(rows), ms) for rows, ms in model["cost_ms_by_rows"].items())
    return [(rows, ms) for rows, ms in costs if rows.bit_count() == 1]


def _requests(routing: Mapping[str, int]) -> Iterator[str]:
    """How many requests had speculation, and how many not for each reason, the most first."""
    for reason, count in sorted(routing.items(), key=lambda item: -item[1]):
        if reason == footer.SPECULATING:
            yield f"{count} with speculation"
        else:
            yield f"{count} without: {footer.without(reason)}"


def share(part: int, whole: int) -> str:
    """` (57%)`; "" for a whole of 0."""
    return f" ({part / whole:.0%})" if whole else ""


def size(count_bytes: int) -> str:
    """`1.12 GB`, as file managers count."""
    value, unit = float(count_bytes), "B"
    for larger in ("kB", "MB", "GB", "TB"):
        if value < 1000:  # noqa: PLR2004  the factor between SI units
            break
        value, unit = value / 1000, larger
    return f"{value:.0f} {unit}" if unit in ("B", "kB", "MB") else f"{value:.2f} {unit}"


def span(seconds: float) -> str:
    """`3 h 12 min`, the two largest units."""
    total = int(seconds)
    parts = [(total // 86400, "d"), (total // 3600 % 24, "h"), (total // 60 % 60, "min")]
    words = [f"{count} {unit}" for count, unit in [*parts, (total % 60, "s")] if count]
    return " ".join(words[:2]) or "0 s"
