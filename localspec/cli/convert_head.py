"""`localspec models convert-head`: makes a draft head of published Medusa or Hydra heads."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import click

from localspec.cli import chosen
from localspec.cli.names import complete_models


@click.command("convert-head")
@click.argument("path", type=click.Path(exists=True, path_type=Path))
@click.option(
    "--for", "model", required=True, metavar="MODEL", shell_complete=complete_models,
    help="The model that the heads were made for.",
)  # fmt: skip
@click.option(
    "--words",
    type=click.IntRange(256),
    default=32_768,
    show_default=True,
    help="Most words that may be foretold, the most frequent ones.",
)
@click.pass_context
def convert_head(context: click.Context, path: Path, model: str, words: int) -> None:
    """Make of published Medusa or Hydra heads a draft head of MODEL.

    PATH is medusa_lm_head.safetensors, medusa_lm_head.pt, hydra_lm_head.pt, or a directory with
    one of them; nothing that a .pt names is run. The head is kept in heads/ beside MODEL and used
    from the next load on, in place of a feature head. Each position has output rows of its own,
    which take memory and time; delete the file to have the feature head back.

    Example: localspec models convert-head ./medusa-vicuna-7b-v1.3 --for vicuna-7b-v1.3-q4_k_m
    """
    target = chosen.files(model)[0]
    place = target.parent / "heads" / f"{target.stem}-by-position.gguf"
    command = [sys.executable, "-P", "-m", "localspec.worker.convert_head"]
    command += [str(target), str(path), str(place), f"--words={words}"]
    done = subprocess.run(command, check=False)  # noqa: S603 - our own
    if done.returncode:
        context.exit(done.returncode)
    click.echo(f"{place} is used from the next load on: localspec reload")
