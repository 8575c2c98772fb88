"""`localspec models prune`: makes a draft of some of its target's own layers."""

from __future__ import annotations

import subprocess
import sys

import click

from localspec.catalog import header
from localspec.catalog import prune as pruning
from localspec.catalog.registry import Registry
from localspec.cli import chosen
from localspec.cli.columns import columns, hung
from localspec.cli.names import complete_models
from localspec.errors import ModelError


@click.command()
@click.argument("model", shell_complete=complete_models)
@click.option("--layers", help="Which to keep, such as 0-7,24-27; else those that measure best.")
@click.option(
    "--tokens",
    type=click.IntRange(200),
    default=1000,
    show_default=True,
    help="Of the texts by which layers are chosen.",
)
@click.option("--use", is_flag=True, help="Make it MODEL's draft even where it has another.")
@click.pass_context
def prune(
    context: click.Context, model: str, layers: str | None, tokens: int, *, use: bool
) -> None:
    """Make a draft of MODEL that is some of its own layers, MODEL-pruned, and measure it.

    MODEL writes some texts; layers are chosen by how often what is left says the same. The file
    drafts for MODEL alone, in whatever quantization. Without training, layers are missed: a draft
    of the same family agrees more often and takes less, so this is for a MODEL that has none.

    Example: localspec models prune qwen2.5-coder-1.5b-instruct --layers 0-20,26-27
    """
    registry = Registry(chosen.models_directory())
    found = registry.resolve(model)
    made = registry.directory / f"{found.name}-pruned.gguf"
    if made.exists():
        raise ModelError(
            f"{made.name} is already here.", fix=f"Remove it first: localspec models rm {made.stem}"
        )
    target = header.read(found.target_path)
    if reason := pruning.refusal(target):
        raise ModelError(f"{found.target_path.name} cannot be pruned. {reason}")
    command = [sys.executable, "-P", "-m", "localspec.worker.prune", str(found.target_path)]
    command += [str(made), f"--tokens={tokens}"]
    if layers is not None:
        pruning.listed(layers, pruning.trunk(target))
        command.append(f"--layers={layers}")
    done = subprocess.run(command, check=False)  # noqa: S603 - our own
    if done.returncode:
        context.exit(done.returncode)
    if found.draft_name is not None and not use:
        said = f"{found.draft_name} stays the draft of {found.name}, as without --use."
    else:
        registry.attach(found.name, made.stem)
        said = f"It is the draft of {found.name} from the next load on: localspec reload"
    click.echo(hung(f"{made.stem}: ", said, columns()))
