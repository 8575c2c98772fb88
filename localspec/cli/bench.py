"""`localspec bench`, `verify` and `tune`: is it faster here, is it exact, and what was learned?"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click
import msgspec

from localspec import paths
from localspec.bench import (
    advice,
    arms,
    hindsight,
    host,
    measure,
    page,
    readiness,
    replay,
    report,
    suite,
)
from localspec.bench.results import Batch, Replay, Results, Settings
from localspec.bench.suite import Prompt
from localspec.bench.summary import Summary, summarize
from localspec.catalog import header
from localspec.cli import launch, render
from localspec.client import Client
from localspec.errors import LocalSpecError, RequestError

DIFFERENCES_SHOWN = 20
PIPED_COLUMNS = 160
"""In a file or a pipe nothing need be narrow."""


def _names(_ctx: click.Context, _param: click.Parameter, given: str) -> tuple[str, ...]:
    """Comma-separated names without blanks."""
    return tuple(name.strip() for name in given.split(",") if name.strip())


def _options(*decorators: Callable[[Any], Any]) -> Callable[[Any], Any]:
    def decorate(command: Any) -> Any:
        for decorator in reversed(decorators):
            command = decorator(command)
        return command

    return decorate


_WHICH_PROMPTS = _options(
    click.option(
        "--prompts",
        "file",
        type=click.Path(path_type=Path, dir_okay=False),
        metavar="FILE",
        help="Spec-Bench's question.jsonl instead of the built-in suite.",
    ),
    click.option("--slices", callback=_names, default="", metavar="A,B", help="Only these slices."),
    click.option("--limit", type=click.IntRange(1), help="At most this many prompts of a slice."),
    click.option(
        "--tokens", type=click.IntRange(2), default=128, show_default=True, help="Per answer."
    ),
)
_MODEL = click.option("-m", "--model", help="By default models.default.")
_SEED = click.option("--seed", type=int, default=0, show_default=True, help="Fixes every draw.")
_JSON = click.option("--json", "as_json", is_flag=True, help="JSON on stdout, for machines.")
_NO_SPAWN = click.option(
    "--no-spawn", is_flag=True, help="Fail if no daemon runs instead of starting one."
)


@click.command()
@_WHICH_PROMPTS
@_MODEL
@click.option(
    "--repeats", type=click.IntRange(1), default=3, show_default=True, help="Of everything."
)
@click.option("-t", "--temperature", type=click.FloatRange(0, 100), default=0.0, show_default=True)
@_SEED
@click.option(
    "--concurrency",
    type=click.IntRange(1, 64),
    default=1,
    show_default=True,
    help="Prompts asked at the same time.",
)
@click.option(
    "--arms", "names", callback=_names, default="", metavar="A,B",
    help="Of plain, auto, the drafters' names and prediction; by default all but the last.",
)  # fmt: skip
@click.option(
    "--against", multiple=True, metavar="URL",
    help="Another server, http://host:port or unix:///path; repeatable.",
)  # fmt: skip
@click.option(
    "-o", "--output", type=click.Path(path_type=Path, file_okay=False), metavar="DIR",
    help="Write results.json, report.md and report.html there.",
)  # fmt: skip
@click.option(
    "--bound/--no-bound", default=True, show_default=True,
    help="Replay plain's texts afterwards: how much of what was possible was reached?",
)  # fmt: skip
@click.option(
    "--host", "host_only", is_flag=True,
    help="Only the host time of a round, over logits in memory: no model, no daemon.",
)  # fmt: skip
@_JSON
@_NO_SPAWN
def bench(  # noqa: PLR0913  one argument per option is click's way
    *,
    file: Path | None,
    slices: tuple[str, ...],
    limit: int | None,
    tokens: int,
    model: str | None,
    repeats: int,
    temperature: float,
    seed: int,
    concurrency: int,
    names: tuple[str, ...],
    against: tuple[str, ...],
    output: Path | None,
    bound: bool,
    host_only: bool,
    as_json: bool,
    no_spawn: bool,
) -> None:
    """Measure speculation against plain decoding and other servers.

    Every arm answers every prompt, interleaved. docs/benchmarks.md says what the figures mean.

    Example: localspec bench --limit 2 --against http://127.0.0.1:8080 -o bench
    """
    if host_only:
        _measure_host(as_json=as_json)
        return
    settings = Settings(tokens, repeats, temperature, seed, concurrency)
    prompts = _prompts(file, slices, limit)
    others = [arms.against(url) for url in dict.fromkeys(against)]
    if output:
        _make(output)
    client = _reach(spawn=not no_spawn)
    with _progress("loading") as tell:
        found = readiness.loaded(client, model)
        compared = [*arms.chosen(arms.own(client, found), names), *others]
        tell(0, "warming up")
        readiness.warm(compared, settings)
        found = readiness.settled(client, found["name"])
    began = datetime.now(UTC)
    with _progress("bench", len(prompts) * len(compared) * repeats) as tell:
        batches, skipped = measure.measure(compared, prompts, settings, tell)
    replays: list[Replay] = []
    if bound and not temperature and concurrency == 1:
        with _progress("replay", len(prompts)) as tell:
            replays = hindsight.replays(compared, prompts, _first_texts(batches), tell)
    results = Results(
        version=client.status()["version"],
        created=began.strftime("%Y-%m-%d %H:%M UTC"),
        machine=readiness.machine(),
        settings=settings,
        model=readiness.model_of(client, found["name"]),
        arms=[arm.name for arm in compared],
        batches=batches,
        skipped=skipped,
        replays=replays,
    )
    _publish(results, output, as_json=as_json)


def _first_texts(batches: Sequence[Batch]) -> dict[tuple[str, int], str]:
    """Plain's answers of the first repeat, by prompt and turn."""
    return {
        (answer.prompt, answer.turn): answer.text
        for batch in batches
        if (batch.arm, batch.repeat) == (arms.PLAIN, 0)
        for answer in batch.answers
    }


def _measure_host(*, as_json: bool) -> None:
    with _progress("measuring the host path"):
        found = host.measure()
    if as_json:
        click.echo(msgspec.json.encode(found).decode())
        return
    for table in host.tables(found):
        _show(table)


def _publish(results: Results, output: Path | None, *, as_json: bool) -> None:
    if not results.answers(arms.PLAIN):
        raise RequestError(
            "No prompt was taken by every server: "
            + "; ".join(f"{name}: {why}" for name, why in results.skipped.items())
        )
    summary = summarize(results)
    if output:
        _write(output, results, summary)
    if as_json:
        brief = {"heading": report.heading(results), "summary": summary}
        click.echo(msgspec.json.encode(brief).decode())
    else:
        for line in report.heading(results):
            click.echo(render.printable(line))
        for table in report.tables(results, summary):
            _show(table)
    if output:
        click.echo(f"written: {output / 'report.html'}", err=True)


@click.command()
@_WHICH_PROMPTS
@_MODEL
@_SEED
@_JSON
@_NO_SPAWN
def verify(  # noqa: PLR0913  one argument per option is click's way
    *,
    file: Path | None,
    slices: tuple[str, ...],
    limit: int | None,
    tokens: int,
    model: str | None,
    seed: int,
    as_json: bool,
    no_spawn: bool,
) -> None:
    """Replay prompts with drafts and without, and compare the texts.

    Greedy and at T = 0.8 with a seed; by auto, and by each drafter made to draft every round. Exit
    code 1 if anything differs although exactness is strict.

    Example: localspec verify --slices code,edit --limit 2
    """
    prompts = _prompts(file, slices, limit)
    client = _reach(spawn=not no_spawn)
    with _progress("loading"):
        found = readiness.loaded(client, model)
    compared = list(arms.forced(client, found).values())
    with _progress("verify", len(prompts) * len(replay.WAYS)) as tell:
        settings = Settings(max_tokens=tokens, seed=seed)
        verification = replay.verify(compared, prompts, settings, found, tell)
    if as_json:
        click.echo(msgspec.json.encode(verification).decode())
    else:
        _tell_verification(verification)
    if verification.broken:
        click.get_current_context().exit(LocalSpecError.exit_code)


def _tell_verification(verification: replay.Verification) -> None:
    click.echo(render.printable(f"{verification.model}, exactness {verification.exactness}"))
    rows = [
        [tally.way, tally.arm, f"{tally.equal} of {tally.compared}",
         f"{tally.accepted} of {tally.drafted}"]
        for tally in verification.tallies
    ]  # fmt: skip
    _show(report.Table("Texts equal to plain's", ["way", "arm", "equal", "accepted drafts"], rows))
    for one in verification.differences[:DIFFERENCES_SHOWN]:
        click.echo(
            render.printable(
                f"\n{one.prompt}, turn {one.turn + 1}, {one.way}, {one.arm}: "
                f"first difference at character {one.position}, after {one.before!r}\n"
                f"  plain: {one.plain!r}\n  {one.arm}: {one.found!r}"
            )
        )
        if one.likeliest and one.logit_gap is not None:
            likelier, other = one.likeliest
            click.echo(
                render.printable(f"  logit gap {one.logit_gap:.2f}: {likelier!r} before {other!r}")
            )
    hidden = len(verification.differences) - DIFFERENCES_SHOWN
    if hidden > 0:
        click.echo(f"\n{hidden} more differences; --json has them all.")
    if verification.differences and not verification.broken:
        click.echo(
            '\nexactness = "standard" lets the last bits of a logit depend on how many rows were '
            'computed with it;\nwhere two tokens are nearly equal, that shows. "strict" does not.'
        )


@click.command()
@_MODEL
@_JSON
@_NO_SPAWN
def tune(*, model: str | None, as_json: bool, no_spawn: bool) -> None:
    """Show what was learned about this machine, and what to change.

    Nothing needs tuning: the daemon decides by these figures itself.

    Example: localspec tune
    """
    client = _reach(spawn=not no_spawn)
    with _progress("measuring costs"):
        found = readiness.settled(client, readiness.loaded(client, model)["name"])
    learned = advice.learned(found, _weight_types(found.get("target_path")), has_gpu=_has_gpu())
    if as_json:
        click.echo(msgspec.json.encode(learned).decode())
    else:
        _tell_learned(learned)


def _tell_learned(learned: advice.Learned) -> None:
    click.echo(render.printable(learned.model))
    rows = [
        [str(stair.rows), f"{stair.ms:.1f}", f"{stair.relative:.2f}", "edge" * stair.edge]
        for stair in learned.stairs
    ]
    note = (
        "A round of n rows beats plain if it commits more tokens than its relative cost.\n"
        "Edges are the row counts worth filling: cheaper by the row than any fewer, dearer after."
    )
    if rows:
        _show(report.Table("Cost of one forward", ["rows", "ms", "relative", ""], rows, note))
    for name, (accepted, drafted) in learned.acceptance.items():
        if drafted:
            click.echo(
                f"{name}: {accepted} of {drafted} drafted accepted ({accepted / drafted:.0%})"
            )
    if learned.tokens_per_second:
        click.echo(f"speed lately: {learned.tokens_per_second:.1f} tok/s")
    for sentence in learned.advice:
        click.echo(render.printable(f"* {sentence}"))
    if not learned.advice:
        click.echo("Nothing to change.")


def _prompts(file: Path | None, slices: Sequence[str], limit: int | None) -> list[Prompt]:
    return suite.choose(suite.spec_bench(file) if file else suite.builtin(), slices, limit)


def _reach(*, spawn: bool) -> Client:
    notice = render.Notice()
    try:
        return launch.reach(spawn=spawn, tell=notice.show)
    finally:
        notice.clear()


@contextmanager
def _progress(what: str, total: int | None = None) -> Iterator[measure.Told]:
    """A bar on stderr if that is a terminal; without `total` it only shows that time passes."""
    if not sys.stderr.isatty():
        yield lambda _count, _text: None
        return
    from rich import progress  # noqa: PLC0415  slow to import, and only a terminal needs it
    from rich.console import Console  # noqa: PLC0415  the same

    columns = [
        progress.TextColumn("{task.description}", markup=False),
        progress.BarColumn(),
        *([progress.MofNCompleteColumn()] if total else []),
        progress.TimeElapsedColumn(),
        *([progress.TimeRemainingColumn()] if total else []),
    ]
    # Twice a second: the processor belongs to what is measured.
    with progress.Progress(
        *columns, console=Console(stderr=True), transient=True, refresh_per_second=2
    ) as bar:
        task = bar.add_task(what, total=total)
        done = 0

        def tell(count: int, text: str) -> None:
            nonlocal done
            bar.update(task, completed=done if total else None, description=render.printable(text))
            done += count

        yield tell


def _show(table: report.Table) -> None:
    """A table on stdout, as wide as the terminal is."""
    from rich import box  # noqa: PLC0415  slow to import, of no use for --json
    from rich.console import Console  # noqa: PLC0415  the same
    from rich.table import Table  # noqa: PLC0415  the same
    from rich.text import Text  # noqa: PLC0415  the same

    drawn = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for place, name in enumerate(table.head):
        drawn.add_column(
            Text(render.printable(name)), justify="right" if place else "left", overflow="fold"
        )
    for row in table.rows:
        drawn.add_row(*(Text(render.printable(cell)) for cell in row))
    console = Console(highlight=False, width=None if sys.stdout.isatty() else PIPED_COLUMNS)
    console.print(Text(f"\n{table.title}", style="bold"))
    console.print(drawn)
    if table.note:
        console.print(Text(table.note, style="dim"))


def _make(directory: Path) -> None:
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise _unwritable(directory, error) from error


def _write(directory: Path, results: Results, summary: Summary) -> None:
    files = {
        "results.json": msgspec.json.encode({"results": results, "summary": summary}),
        "report.md": report.markdown(results, summary).encode(),
        "report.html": page.html(results, summary).encode(),
    }
    for name, data in files.items():
        try:
            paths.write_atomically(directory / name, data, 0o644)
        except OSError as error:
            raise _unwritable(directory / name, error) from error


def _unwritable(path: Path, error: OSError) -> RequestError:
    return RequestError(f"{path} cannot be written: {error.strerror}.", fix="Choose another.")


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
