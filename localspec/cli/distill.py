"""`localspec models distill`: teaches a copy of a draft by its target's own texts."""

from __future__ import annotations

import subprocess
import sys

import click

from localspec.catalog.registry import Registry
from localspec.cli import chosen
from localspec.cli.columns import columns, hung
from localspec.cli.names import complete_models
from localspec.errors import ModelError


@click.command()
@click.argument("draft", shell_complete=complete_models)
@click.option(
    "--for", "target", required=True, metavar="TARGET", shell_complete=complete_models,
    help="The model that it drafts for.",
)  # fmt: skip
@click.option(
    "--tokens", type=click.IntRange(1000), default=100_000, show_default=True,
    help="Of all answers that TARGET writes.",
)  # fmt: skip
@click.pass_context
def distill(context: click.Context, draft: str, target: str, tokens: int) -> None:
    """Teach a copy of DRAFT what TARGET would have said, and use it if it is right more often.

    TARGET writes texts, as for a head; the output rows of DRAFT learn to say of what it computes
    what TARGET said. The copy, DRAFT-distilled, takes DRAFT's place only if replay says that 0.02
    more of its tokens are accepted; a model as large as before is no slower. It needs torch
    (pip install 'localspec[train]'). How long it takes is said first; interrupted, the same command
    goes on.

    Example: localspec models distill qwen2.5-coder-0.5b-instruct --for qwen2.5-coder-1.5b-instruct
    """
    registry = Registry(chosen.models_directory())
    ours, theirs = registry.resolve(target), registry.resolve(draft)
    made = registry.directory / f"{theirs.name}-distilled.gguf"
    if made.exists():
        raise ModelError(
            f"{made.name} is already here.", fix=f"Remove it first: localspec models rm {made.stem}"
        )
    command = [sys.executable, "-P", "-m", "localspec.worker.distill", str(ours.target_path)]
    command += [str(theirs.target_path), str(made), f"--tokens={tokens}"]
    done = subprocess.run(command, check=False)  # noqa: S603 - our own
    if done.returncode:
        context.exit(done.returncode)
    if not made.exists():
        click.echo(hung(f"{theirs.name}: ", "It stays as it is.", columns()))
        return
    registry.attach(ours.name, made.stem)
    said = f"It is the draft of {ours.name} from the next load on: localspec reload"
    click.echo(hung(f"{made.stem}: ", said, columns()))
