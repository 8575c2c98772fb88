"""`localspec bench`: measures whether speculation is faster on this machine."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import click
import msgspec

from localspec import config, paths
from localspec.bench import arms, hindsight, host, measure, page, readiness, report
from localspec.bench import tables as bench_tables
from localspec.bench.arms import Arm
from localspec.bench.home import Home
from localspec.bench.results import Batch, Replay, Results, Settings
from localspec.bench.suite import Prompt
from localspec.bench.summary import Summary, summarize
from localspec.cli import measuring, waiting
from localspec.cli.groups import Number
from localspec.cli.names import complete_machines
from localspec.client import Client
from localspec.errors import RequestError
from localspec.machine import Machine
from localspec.ranges import SAMPLING

_REPEATS = 3
_TEMPERATURE = Number(SAMPLING["temperature"].low, SAMPLING["temperature"].high)


@click.command()
@measuring.WHICH_PROMPTS
@measuring.MODEL
@click.option(
    "--repeats", type=click.IntRange(1),
    help="Of everything; by default 3, on a simulated machine 1.",
)  # fmt: skip
@click.option("-t", "--temperature", type=_TEMPERATURE, default=0.0, show_default=True)
@measuring.SEED
@click.option(
    "--concurrency",
    type=click.IntRange(1, 64),
    default=1,
    show_default=True,
    help="Prompts asked at the same time.",
)
@click.option(
    "--pause", type=Number(0, 3600), default=0.0, show_default=True, metavar="SECONDS",
    help="Before later turns of a conversation, as a reader of the answer would.",
)  # fmt: skip
@click.option(
    "--arms", "names", callback=measuring.names, default="", metavar="A,B",
    help="Of plain, auto, the drafters' names and prediction; by default all but the last, "
    "lookahead and early_exit.",
)  # fmt: skip
@click.option(
    "--against", multiple=True, metavar="URL",
    help="Another server, http://host:port or unix:///path; repeatable.",
)  # fmt: skip
@click.option(
    "--against-key", metavar="VARIABLE", help="Environment variable that holds their API key."
)
@click.option(
    "-o", "--output", type=click.Path(path_type=Path, file_okay=False), metavar="DIR",
    help="Write results.json, report.md and report.html there.",
)  # fmt: skip
@click.option(
    "--bound/--no-bound", default=True, show_default=True,
    help="Replay plain's texts afterwards: how much of what was possible was reached?",
)  # fmt: skip
@click.option(
    "--machine", "machines", multiple=True, metavar="FILE", shell_complete=complete_machines,
    help="Time everything as on the machine of this table, or of the shipped one of that name; "
    "repeatable.",
)  # fmt: skip
@click.option(
    "--host", "host_only", is_flag=True,
    help="Only the host time of a round, over logits in memory: no model, no daemon.",
)  # fmt: skip
@measuring.JSON
@measuring.NO_SPAWN
def bench(  # noqa: PLR0913  one argument per option is click's way
    *,
    file: Path | None,
    slices: tuple[str, ...],
    limit: int | None,
    tokens: int,
    model: str | None,
    repeats: int | None,
    temperature: float,
    seed: int,
    concurrency: int,
    pause: float,
    names: tuple[str, ...],
    against: tuple[str, ...],
    against_key: str | None,
    output: Path | None,
    bound: bool,
    machines: tuple[str, ...],
    host_only: bool,
    as_json: bool,
    no_spawn: bool,
) -> None:
    """Measure speculation against plain decoding and other servers.

    Every arm answers every prompt, interleaved. docs/measuring.md says what the figures mean.

    Example: localspec bench --limit 2 --against http://127.0.0.1:8080 -o bench
    """
    if host_only:
        _measure_host(as_json=as_json)
        return
    tables = [bench_tables.find(name) for name in dict.fromkeys(machines)]
    if tables and (against or pause or no_spawn or concurrency > 1):
        raise RequestError(
            "A simulated machine has no other servers, no pauses and one prompt at a time.",
            fix="Leave out --against, --pause, --no-spawn and --concurrency, or --machine.",
        )
    repeats = repeats or (1 if tables else _REPEATS)
    settings = Settings(tokens, repeats, temperature, seed, concurrency, pause, bool(tables))
    prompts = measuring.prompts_of(file, slices, limit)
    key = _key(against_key) if against_key else ""
    others = [arms.against(url, key) for url in dict.fromkeys(against)]
    if output:
        _make(output)
    options = _Options(prompts, model, settings, names, others, bound)
    if tables:
        _bench_simulated(options, tables, output, as_json=as_json)
    else:
        results = _measured(waiting.running_daemon(spawn=not no_spawn), options)
        _publish(results, output, as_json=as_json)


@dataclass(frozen=True, slots=True)
class _Options:
    """The options of one measurement, without the simulated machine."""

    prompts: Sequence[Prompt]
    model: str | None
    settings: Settings
    names: Sequence[str]
    others: Sequence[Arm]
    bound: bool


def _measured(client: Client, options: _Options, table: Machine | None = None) -> Results:
    prompts, settings = options.prompts, options.settings
    with measuring.progress_bar("loading") as tell:
        found = readiness.loaded(client, options.model)
        compared = [*arms.chosen(arms.own(client, found), options.names), *options.others]
        tell(0, "warming up")
        readiness.warm(compared, settings)
        found = readiness.with_costs(client, found["name"])
    began = datetime.now(UTC)
    with measuring.progress_bar("bench", len(prompts) * len(compared) * settings.repeats) as tell:
        batches, skipped = measure.measure(compared, prompts, settings, tell)
    replays: list[Replay] = []
    if options.bound and not settings.temperature and settings.concurrency == 1:
        with measuring.progress_bar("replay", len(prompts)) as tell:
            replays = hindsight.replays(compared, prompts, _first_texts(batches), tell)
    return Results(
        version=client.status()["version"],
        created=began.strftime("%Y-%m-%d %H:%M UTC"),
        machine=readiness.machine(),
        settings=settings,
        model=readiness.model_of(client, found["name"]),
        arms=[arm.name for arm in compared],
        batches=batches,
        skipped=skipped,
        replays=replays,
        table=table,
    )


def _bench_simulated(
    options: _Options, tables: Sequence[tuple[Path, Machine]], output: Path | None, *, as_json: bool
) -> None:
    """Measure machine after machine, each with a new daemon that has learned nothing yet."""
    user = config.load(paths.config_file())
    found: list[tuple[Results, Summary]] = []
    for path, table in tables:
        place = output / path.stem if output and len(tables) > 1 else output
        if place:
            _make(place)
        with Home(bench_tables.config(path, user)) as home:
            home.localspec("start")
            results = _measured(home.client, options, table)
        if found and not as_json:
            click.echo()
        found.append((results, _publish(results, place, as_json=as_json)))
    if len(found) > 1 and not as_json:
        for arm in found[0][0].arms[1:]:
            measuring.show(report.machines(found, arm))


def _key(variable: str) -> str:
    """The API key in the environment `variable`; it is sent to the other servers, never printed."""
    key = os.environ.get(variable, "").strip()
    if not key.isascii() or not key.isprintable() or not key:
        raise RequestError(
            f"The environment variable {variable} holds no key.",
            fix=f"export {variable}=...",
            param="against-key",
        )
    return key


def _first_texts(batches: Sequence[Batch]) -> dict[tuple[str, int], str]:
    """Plain's answers of the first repeat, by prompt and turn."""
    return {
        (answer.prompt, answer.turn): answer.text
        for batch in batches
        if (batch.arm, batch.repeat) == (arms.PLAIN, 0)
        for answer in batch.answers
    }


def _measure_host(*, as_json: bool) -> None:
    with measuring.progress_bar("measuring the host path"):
        found = host.measure()
    if as_json:
        click.echo(msgspec.json.encode(found).decode())
        return
    for table in host.tables(found):
        measuring.show(table)


def _publish(results: Results, output: Path | None, *, as_json: bool) -> Summary:
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
            measuring.say(line)
        for table in report.tables(results, summary):
            measuring.show(table)
    if output:
        click.echo(f"written: {output / 'report.html'}", err=True)
    return summary


def _make(directory: Path) -> None:
    try:
        paths.make_directory(directory, 0o755)
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
