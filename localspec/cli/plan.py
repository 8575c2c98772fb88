"""`localspec models plan`: where a model and its draft would be, before anything is loaded."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
import msgspec

from localspec import paths
from localspec.bench import native, tables
from localspec.catalog import (
    devices,
    entries,
    head_memory,
    header,
    pairing,
    placement,
    reading,
)
from localspec.catalog.devices import Device, Present
from localspec.catalog.entries import Sizes
from localspec.catalog.head_memory import FedOutline
from localspec.catalog.header import Header
from localspec.catalog.memory import Outline, outline, show_bytes
from localspec.catalog.plan import Amounts, Plan, PlanRequest
from localspec.catalog.registry import Model, Registry
from localspec.cli import chosen as configured
from localspec.cli import waiting
from localspec.cli.columns import columns, hung
from localspec.config import Config
from localspec.errors import BadGGUF, BadPair, ConfigError, UnknownModel, escaped
from localspec.wire.messages import Load


@click.command()
@click.argument("model", required=False)
@click.option(
    "--machine", metavar="FILE", help="A table with [[device]], or the shipped one of that name."
)
@click.option("--memory", metavar="SIZE", help="A machine with one GPU of SIZE, such as 24GiB.")
@click.option("--context", type=click.IntRange(64, 1 << 22), help="Tokens of one session.")
@click.option("--slots", type=click.IntRange(1, 64), help="Sessions at the same time.")
@click.option("--json", "as_json", is_flag=True, help="JSON on stdout, for machines.")
def plan(  # noqa: PLR0913, PLR0917 - one for each option
    model: str | None,
    machine: str | None,
    memory: str | None,
    context: int | None,
    slots: int | None,
    as_json: bool,  # noqa: FBT001 - click passes it by name
) -> None:
    """Show what of MODEL, its draft and its head would be where, and what memory remains.

    On this computer, or on one that is described; the model need not be pulled.

    Example: localspec models plan qwen2.5-coder-1.5b-instruct --memory 24GiB
    """
    if machine and memory:
        raise ConfigError("--machine and --memory exclude each other.", fix="Give one of them.")
    settings = configured.settings()
    changes = {"context": context, "slots": slots}
    chosen = {name: value for name, value in changes.items() if value is not None}
    settings = msgspec.structs.replace(
        settings, engine=msgspec.structs.replace(settings.engine, **chosen)
    )
    present = _machine(machine, memory)
    request = wished(model or settings.models.default, settings, present)
    best = placement.plans(request, present.devices)[0]
    amounts = Amounts.of(request, best)
    if as_json:
        report = {"devices": present.devices, "plan": _as_json(best), "placement": best.sentence()}
        report["reads"] = reading.bytes_by_device(request.target, best.target)
        click.echo(msgspec.json.encode({**report, "bytes": amounts}).decode())
    else:
        for line in table(best, present.devices):
            click.echo(hung("", escaped(line), columns()))
        if request.target.has_experts:
            click.echo(hung("", read_by_a_token(request, best, present.devices), columns()))
        for label, value in sums(best, amounts):
            click.echo(hung(f"{label}: ", escaped(value), columns()))


def _machine(described: str | None, memory: str | None) -> Present:
    """The machine of the options; this one where none is described."""
    if described:
        return Present(devices.described(tables.file(described)))
    if memory:
        return Present(devices.of_size(memory))
    return _present()


def _present() -> Present:
    with waiting.shown("looking at this machine's memory"):
        return native.ask(Present, "worker.planning")


def wished(name: str, settings: Config, there: Present) -> PlanRequest:
    """The request to plan a model and its draft, from headers or, if not pulled, the catalog.

    `name` may be a file, which has no draft. Raises UnknownModel, BadGGUF.
    """
    path = paths.expanded(name)
    registry = _registry(settings)
    if ("/" in name or name.lower().endswith(".gguf")) and path.exists():
        target, head = with_head(header.read(path), settings)
        return PlanRequest.of(settings, [target], there.own, head)
    found = registry.find(name)
    draft = registry.find(found.draft) if found.draft else None
    if found.path:
        target, head = with_head(header.read(found.path), settings)
    else:
        target, head = _expected(found.name), None
    request = PlanRequest.of(settings, [target, *_of_draft(found, draft)], there.own, head)
    return request.seeing(found.projector[0] if found.sees else None)


def _registry(settings: Config) -> Registry:
    chosen = settings.models.directory
    return Registry(paths.expanded(chosen) if chosen else paths.models_dir())


def with_head(target: Header, settings: Config) -> tuple[Outline, FedOutline | None]:
    """The memory of a target, and that of the head that a load would find for it."""
    path = target.path or Path(target.file)
    head, _ = _registry(settings).head(path, complete=False)
    return head_memory.outlines(target, Load("", str(path), None, settings, head=head))


def _of_draft(target: Model, draft: Model | None) -> list[Outline]:
    """The draft's outline; [] where there is no draft, or a load leaves it out."""
    if not draft or not draft.path:
        return [_expected(draft.name)] if draft else []
    with contextlib.suppress(BadGGUF, BadPair):
        if target.path:
            return [outline(pairing.check_draft(header.read(target.path), draft.path))]
        return [outline(header.read(draft.path))]
    return []


def together(headers: Sequence[Header], settings: Config) -> list[tuple[str, str]]:
    """The memory of a load of a target and perhaps a draft, at first and when grown."""
    there = _present()
    target, head = with_head(headers[0], settings)
    drafts = [outline(found) for found in headers[1:]]
    request = PlanRequest.of(settings, [target, *drafts], there.own, head)
    best = placement.plans(request, there.devices)[0]
    return sums(best, Amounts.of(request, best))


def _as_json(plan: Plan) -> dict[str, Any]:
    """A plan as JSON; experts are listed only where some have a device of their own."""
    listed: dict[str, Any] = msgspec.to_builtins(plan)
    for layout in filter(None, (listed["target"], listed["draft"], listed["head"])):
        if not layout["experts"]:
            del layout["experts"]
    return listed


def read_by_a_token(request: PlanRequest, plan: Plan, there: Sequence[Device]) -> str:
    """Bytes that decoding a token of a mixture of experts reads, and the least time for that."""
    reads = reading.bytes_by_device(request.target, plan.target)
    seconds = reading.seconds(request.target, plan.target, there)
    share = f"{request.target.expert_share:.1%} of the experts"
    return f"a token wakes {share} and reads {_sizes(reads)}: {seconds * 1e3:.1f} ms by bandwidths"


def sums(plan: Plan, amounts: Amounts) -> list[tuple[str, str]]:
    """The sums of a plan as text: at first and at most."""
    most = f"{_sizes(amounts.full)}, with all {plan.cells:,} tokens"
    if amounts.peak != amounts.full:
        most += f"; {_sizes(amounts.peak)} for a moment while it grows to that"
    return [("memory loaded", _sizes(amounts.loaded)), ("memory at most", most)]


def _sizes(held: Mapping[str, int]) -> str:
    return " + ".join(f"{show_bytes(size)} on {name}" for name, size in held.items() if size)


def _expected(name: str) -> Outline:
    """A catalog model that is not pulled, by its known sizes."""
    sizes = entries.load()[name].sizes
    if sizes is None:
        raise UnknownModel(
            f"The catalog knows the size of {name}, and not that of its layers.",
            fix=f"Pull it first: localspec models pull {name}",
        )
    return from_sizes(name, sizes)


def from_sizes(name: str, sizes: Sizes) -> Outline:
    """An outline with layers of equal size."""
    plain = (*(sizes.layers_bytes // sizes.layers,) * sizes.layers, sizes.output_bytes)
    return Outline(
        name=name,
        input_bytes=sizes.input_bytes,
        device_bytes=plain,
        host_bytes=plain,
        kv_values=(sizes.kv_values,) * sizes.layers,
        heads=sizes.heads,
        width=sizes.width,
        feed_forward=sizes.feed_forward,
        vocabulary=sizes.vocabulary,
        context_length=sizes.context,
    )


def table(plan: Plan, there: list[Device]) -> list[str]:
    """Device by device what each model takes when all cells are taken, and what remains."""
    row = "{:9} {:7} {:>6} {:>8} {:>8} {:>8} {:>8}"
    lines = [row.format("DEVICE", "MODEL", "BLOCKS", "WEIGHTS", "KV", "COMPUTE", "REMAINS")]
    taken = plan.taken()
    for device in there:
        parts: list[Any] = [part for part in plan.parts if part.device == device.name]
        for part in parts:
            sizes = (part.weight_bytes, part.kv_bytes, part.compute_bytes)
            shown = map(show_bytes, sizes)
            lines.append(row.format(device.name, part.model, part.blocks, *shown, ""))
        left = device.free_bytes - taken.get(device.name, 0)
        remains = show_bytes(left) if left >= 0 else f"-{show_bytes(-left)}"
        free = f"{show_bytes(device.free_bytes)} free"
        lines.append(f"{device.name:9} {free:41} {remains:>8}")
    lines += ["", plan.sentence()]
    if plan.cells > plan.start_cells:
        lines.append(f"{plan.cells} tokens of KV, taken as needed from {plan.start_cells} on")
    if not plan.fits:
        lines.append("This does not fit; a load would try it all the same.")
    return lines
