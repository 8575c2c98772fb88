"""Compares our kernels for the many rows of a prompt with llama.cpp's.

`python -m localspec.microbench.prompts [MODEL] [--libraries DIR] [--threads N]` prints a table of
products as large as those of the default target, in the layout that weights have on this processor.
Figures are billions of operations a second, two for each weight and row, by llama.cpp's kernels and
by ours, in turns, the fastest of several. With a MODEL it also prints the tokens a second of
reading a prompt of 1,500 tokens. `--libraries` tries the libraries of another build, which need no
llama.cpp; this module imports none before a MODEL is given.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from localspec.built import installed
from localspec.engine.llama.kernels import NEVER, KernelInfo
from localspec.engine.llama.products import FORMATS, Products, activations

_SHAPES = ((1536, 8960), (8960, 1536))
"""Widths of the activations and of the outputs of the default target's two largest products."""
_ROWS = (32, 64, 128, 256, 512)
"""From a short question to the most rows of one forward."""
_TURNS = 3
_TOKENS, _FORWARD_ROWS = 1500, 512


class Way(NamedTuple):
    """Kernels by name, and a function that makes them compute from now on."""

    name: str
    use: Callable[[], None]


def ways(kernels: KernelInfo) -> list[Way]:
    """The kernels of one library that differ in their numbers or in their speed."""

    def use(*, ours: bool, tiles_from: int = NEVER) -> None:
        kernels.use(ours)
        kernels.many_rows(tiles_from)

    found = [
        Way("llama.cpp", lambda: use(ours=False)),
        Way("ours", lambda: use(ours=True)),
    ]
    if kernels.many_rows(NEVER):
        found.append(Way("bf16 tiles", lambda: use(ours=True, tiles_from=_ROWS[0])))
    return found


def fastest(all_: Sequence[Way], run: Callable[[], float]) -> list[float]:
    """The least time that `run` returns for each way, with the ways in turns."""
    spans = [float("inf")] * len(all_)
    for _ in range(_TURNS):
        for at, way in enumerate(all_):
            way.use()
            spans[at] = min(spans[at], run())
    return spans


def products(library: Products) -> Iterator[tuple[str, list[float]]]:
    """Each product by name, with billions of operations a second of each way."""
    found = ways(library)
    for name, kind in FORMATS.items():
        for width, outputs in _SHAPES:
            layout = "tiles" if "AMX" in library.buffer_types else library.fastest(name, outputs)
            weights = library.weights(layout, kind, width, outputs)
            for rows in _ROWS:
                x = activations(width, rows)
                spans = fastest(found, lambda w=weights, x=x: library.product(w, x, 2)[1])  # type: ignore[misc]
                work = 2e-9 * width * outputs * rows
                yield f"{name} {layout} {width}x{outputs} {rows}", [work / each for each in spans]
            library.free(weights)


def reading(path: Path, threads: int) -> tuple[str, list[float]]:
    """The name of reading a prompt with a model, and its tokens a second of each way."""
    # Imported here: products of another build need no llama.cpp.
    from localspec.config import Placement  # noqa: PLC0415 - see above
    from localspec.engine.llama.context import Context  # noqa: PLC0415
    from localspec.engine.llama.library import ours  # noqa: PLC0415
    from localspec.engine.llama.model import Model  # noqa: PLC0415
    from localspec.types import Row  # noqa: PLC0415

    placement = Placement(threads=threads)
    model = Model.load(path, placement)
    context = Context.open(model, placement, slots=1, context=2 * _TOKENS, rows=_FORWARD_ROWS)

    def read() -> float:
        context.truncate(0, 0)
        rows = [Row(at * 7919 % context.n_vocab, at, 0, at == _TOKENS - 1) for at in range(_TOKENS)]
        began = time.perf_counter()
        for start in range(0, _TOKENS, _FORWARD_ROWS):
            context.decode(rows[start : start + _FORWARD_ROWS])
        return time.perf_counter() - began

    read()  # kernels and memory are set up
    spans = fastest(ways(ours), read)
    context.close()
    model.close()
    return f"{path.name}, tokens a second", [_TOKENS / each for each in spans]


def main() -> None:
    """As the module says."""
    parser = argparse.ArgumentParser(prog="python -m localspec.microbench.prompts")
    parser.add_argument("model", type=Path, nargs="?")
    parser.add_argument("--libraries", type=Path)
    parser.add_argument("--threads", type=int, default=2)
    asked = parser.parse_args()
    library = Products(asked.libraries or installed(), threads=asked.threads)
    names = " ".join(f"{way.name:>12}" for way in ways(library))
    say = sys.stdout.write
    say(f"{library.kernels or 'no kernels of ours'}, {asked.threads} threads\n")
    say(f"{'product':<36} {names} {'last/first':>12}\n")

    def line(name: str, figures: Sequence[float]) -> None:
        told = " ".join(f"{each:12.0f}" for each in figures)
        say(f"{name:<36} {told} {figures[-1] / figures[0]:12.2f}\n")
        sys.stdout.flush()

    if asked.model:
        line(*reading(asked.model, asked.threads))
    for name, figures in products(library):
        line(name, figures)


if __name__ == "__main__":
    main()
