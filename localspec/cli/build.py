"""`localspec build`: compiles llama.cpp for this machine, for installations without `make`."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from localspec import built, paths
from localspec.errors import RequestError


@click.command()
@click.option(
    "--backend",
    default="auto",
    show_default=True,
    type=click.Choice(["auto", "cuda", "hip", "vulkan", "metal", "cpu"]),
    help="What computes besides the CPU; auto takes the first that is found.",
)
@click.option("--remote", is_flag=True, help="Able to use other machines (worker-host).")
def build(backend: str, *, remote: bool) -> None:
    """Compile llama.cpp for this machine, prove it, and use it from then on.

    A package brings llama.cpp as PyPI has it, which works everywhere and lacks LocalSpec's kernels,
    cheaper rows and states. It takes a C++ compiler and some minutes; the result is kept in the
    user's cache, outlives upgrades that it fits, and is used from the next load of a model on.

    Example: localspec build --backend cuda
    """
    from localspec.build import compile as compiling  # noqa: PLC0415  other commands need none of it
    from localspec.build import toolchain  # noqa: PLC0415
    from localspec.build.source import Pip  # noqa: PLC0415

    if (root := built.checkout()) is not None:
        raise RequestError(
            f"This LocalSpec runs from a clone, which make builds: {root}.", fix="make install"
        )

    def say(sentence: str) -> None:
        click.echo(sentence, err=True)

    tools = toolchain.find(backend, remote=remote, say=say)
    log = paths.state_dir() / "build.log"
    paths.make_directory(log.parent)
    with compiling.working(tools) as work:
        pip = Pip(Path(sys.executable), work)
        shop = compiling.Workshop(tools, pip, work, log, say)
        compiling.build(shop, compiling.IntoCache(work), chosen=backend != "auto")
    click.echo(f"{built.kept()} is used from the next load on: localspec restart")
