"""`localspec tune`: shows what was learned about this machine."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import click
import msgspec

from localspec.bench import advice, readiness, report
from localspec.catalog import header
from localspec.cli import measuring, waiting
from localspec.errors import escaped


@click.command()
@measuring.MODEL
@measuring.JSON
@measuring.NO_SPAWN
def tune(*, model: str | None, as_json: bool, no_spawn: bool) -> None:
    """Show what was learned about this machine, and what to change.

    Nothing needs tuning: the daemon decides by these figures itself.

    Example: localspec tune
    """
    client = waiting.running_daemon(spawn=not no_spawn)
    with measuring.progress_bar("measuring costs"):
        found = readiness.with_costs(client, readiness.loaded(client, model)["name"])
    learned = advice.learned(found, _weight_types(found.get("target_path")), has_gpu=_has_gpu())
    if as_json:
        click.echo(msgspec.json.encode(learned).decode())
    else:
        _tell_learned(learned)


def _tell_learned(learned: advice.LearnedCosts) -> None:
    click.echo(escaped(learned.model))
    rows = [
        [
            str(stair.rows),
            f"{stair.ms:.1f}",
            f"{stair.relative:.2f}",
            f"{stair.far_ms:.1f}",
            "edge" * stair.edge,
        ]
        for stair in learned.stairs
    ]
    behind = f"ms behind {learned.far_tokens} tokens"
    note = (
        "A round of n rows beats plain if it commits more tokens than its relative cost. "
        "Edges are the row counts worth filling: cheaper by the row than any fewer, dearer after."
    )
    if rows:
        measuring.show(
            report.Table("Cost of one forward", ["rows", "ms", "relative", behind, ""], rows, note)
        )
    for name, (accepted, drafted) in learned.acceptance.items():
        if drafted:
            share = f"{accepted / drafted:.0%}"
            measuring.say(f"{name}: {accepted} of {drafted} drafted accepted ({share})")
    if learned.prompt_tokens_per_second:
        click.echo(f"reads a prompt at about {learned.prompt_tokens_per_second:.0f} tokens/s")
    if learned.tokens_per_second:
        click.echo(f"speed lately: {learned.tokens_per_second:.1f} tokens/s")
    for sentence in learned.advice:
        measuring.say(sentence, "* ")
    if not learned.advice:
        click.echo("Nothing to change.")


def _weight_types(path: str | None) -> list[str]:
    """Element types of a model's weights, most bytes first; none if the file is not here."""
    if not path or not Path(path).exists():
        return []
    num_bytes: Counter[str] = Counter()
    for tensor in header.read(Path(path)).tensors:
        num_bytes[tensor.type.name] += tensor.num_bytes
    return [name for name, _ in num_bytes.most_common()]


def _has_gpu() -> bool:
    """True when the system's NVIDIA driver has a card."""
    cards = Path("/proc/driver/nvidia/gpus")
    return cards.is_dir() and any(cards.iterdir())
