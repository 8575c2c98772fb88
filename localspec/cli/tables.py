"""Prints a report's table in a window: cells are folded between words, columns come in parts.

Each part repeats the columns that name a row, so that nothing is lost and no word is broken where a
window is narrow. The width of a pipe is `measuring.PIPED_COLUMNS`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len
from rich.console import Console, JustifyMethod
from rich.table import Table as Drawn
from rich.text import Text

from localspec.bench.report import Table
from localspec.cli.columns import with_hard_spaces, wrapped
from localspec.cli.render import printable

_GAP = 2


def show(table: Table, console: Console) -> None:
    """Print a table with its title and its note."""
    console.print(Text(f"\n{printable(table.title)}", style="bold"), soft_wrap=True)
    cells = [[printable(cell) for cell in row] for row in (table.head, *table.rows)]
    for number, places in enumerate(parts(cells, table.labels, console.width)):
        if number:
            console.print()
        console.print(_drawn(table, cells, places, console.width))
    if table.note:
        console.print(Text(f"\n{table.note}", style="dim"))


def parts(cells: Sequence[Sequence[str]], labels: int, width: int) -> list[list[int]]:
    """Divide columns into parts shown below each other; the first `labels` are in every part."""
    least = _widths(cells, _longest_word)
    named, room = list(range(labels)), width - sum(least[:labels]) - _GAP * labels
    found: list[list[int]] = [[]]
    taken = -_GAP
    for place in range(labels, len(least)):
        taken += _GAP + least[place]
        if found[-1] and taken > room:
            found.append([])
            taken = least[place]
        found[-1].append(place)
    return [named + others for others in found]


def _drawn(
    table: Table, cells: Sequence[Sequence[str]], places: Sequence[int], width: int
) -> Drawn:
    rows = [[row[place] for place in places] for row in cells]
    drawn = Drawn(box=SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0), pad_edge=False)
    widths = _fitted(rows, width)
    heads, *others = [
        [Text(wrapped(*cell)) for cell in zip(row, widths, strict=True)] for row in rows
    ]
    for place, head, room in zip(places, heads, widths, strict=True):
        justify: JustifyMethod = "left" if table.is_text(place) else "right"
        drawn.add_column(head, justify=justify, width=room, overflow="fold")
    for row in others:
        drawn.add_row(*row)
    return drawn


def _fitted(rows: Sequence[Sequence[str]], width: int) -> list[int]:
    """The columns' widths: the widest are narrowed first, at most to their longest words."""
    widths, least = _widths(rows, cell_len), _widths(rows, _longest_word)
    excess = sum(widths) + _GAP * (len(widths) - 1) - width
    while excess > 0:
        slack = [at for at, columns in enumerate(widths) if columns > least[at]]
        if not slack:  # a word as long as the window
            widest = max(range(len(widths)), key=widths.__getitem__)
            widths[widest] = max(1, widths[widest] - excess)
            break
        widest = max(slack, key=widths.__getitem__)
        widths[widest] -= 1
        excess -= 1
    return widths


def _widths(rows: Sequence[Sequence[str]], measure: Callable[[str], int]) -> list[int]:
    return [max(map(measure, column)) for column in zip(*rows, strict=True)]


def _longest_word(text: str) -> int:
    return max(map(cell_len, with_hard_spaces(text).split()), default=0)
