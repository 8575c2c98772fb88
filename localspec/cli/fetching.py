"""Models of the Hub: `localspec models search`, and what `pull` does with a reference."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import click
import msgspec

from localspec.bench import native
from localspec.catalog import (
    acquire,
    entries,
    head_files,
    header,
    hub_cache,
    pairing,
    partner,
    prepare,
    repository,
    templates,
)
from localspec.catalog.devices import Present
from localspec.catalog.entries import Offer
from localspec.catalog.partner import Partner
from localspec.catalog.reference import Reference, parse
from localspec.catalog.registry import Registry
from localspec.catalog.repository import Hit
from localspec.catalog.variants import DRAFT_ORDER, MEMORY_FACTOR
from localspec.cli import chosen, waiting
from localspec.cli.columns import columns, folded, hung
from localspec.cli.progress import shown
from localspec.errors import BadPair, LocalSpecError, PullError, UnknownModel, escaped

_ASKING = "asking the Hugging Face Hub"
_FIGURES_COLUMNS = 34
"""Columns that a table of repositories has besides their names."""


@click.command()
@click.argument("word", default="")
@click.option("--json", "as_json", is_flag=True, help="JSON on stdout, for machines.")
def search(word: str, *, as_json: bool) -> None:
    """List models of the catalog with WORD in their name or in what they are good at.

    With them what the Hugging Face Hub has as GGUF under WORD, most fetched first; without WORD the
    whole catalog, which needs no network.

    Example: localspec models search code
    """
    known = entries.offers(word)
    hits: list[Hit] = []
    if word:
        try:
            with waiting.shown(_ASKING):
                hits = repository.search(word)
        except PullError as error:
            if not known:
                raise
            _say(f"The Hub was not asked: {error.message}")
    if as_json:
        click.echo(
            msgspec.json.encode(
                {"models": hits, "catalog": [each._asdict() for each in known]}
            ).decode()
        )
        return
    if not known and not hits:
        click.echo(f'The Hub has no GGUF repository under "{escaped(word)}".')
        return
    for line in [*offered(known, columns()), *(table(hits, columns()) if hits else ())]:
        click.echo(escaped(line))
    first = known[0].name if known else hits[0].name
    click.echo(escaped(f"Fetch one: localspec models pull {first}"), err=True)


def offered(known: Sequence[Offer], width: int | None) -> Iterator[str]:
    """Models of the catalog in rows: size at about four bits, memory needed, use."""
    if not known:
        return
    longest = max(len(each.name) for each in known)
    yield f"{'NAME':{longest}}  {'SIZE':>8}  {'MEMORY':>8}  {'SPECULATES BY':13}  LICENCE; GOOD AT"
    for each in known:
        sizes = (each.size_bytes, int(each.size_bytes * MEMORY_FACTOR))
        size, memory = (f"{count / 1e9:.1f} GB" if count else "-" for count in sizes)
        said = f"{each.license or 'see its page'}; {each.good_at}"
        row = f"{each.name:{longest}}  {size:>8}  {memory:>8}  {each.drafted:13}  "
        first, *below = folded(row, said, width)
        yield first
        yield from hung("    ", said, width).splitlines() if below else ()


def table(hits: Sequence[Hit], width: int | None) -> Iterator[str]:
    """Repositories in rows; on two lines each where the window is too narrow for one."""
    longest = max(len(hit.name) for hit in hits)
    if width is not None and longest + _FIGURES_COLUMNS > width:
        for hit in hits:
            yield hit.name
            yield f"  {hit.downloads:,} fetched, {hit.likes:,} likes, {hit.license or 'no licence'}"
        return
    yield f"{'REPOSITORY':{longest}}  {'FETCHED':>10}  {'LIKES':>6}  LICENCE"
    for hit in hits:
        figures = f"{hit.downloads:>10,}  {hit.likes:>6,}  {hit.license or '-'}"
        yield f"{hit.name:{longest}}  {figures}"


def reference_of(model: str) -> Reference | None:
    """The Hub reference that `model` is; None for a model of the catalog. Raises PullError."""
    if {model.strip().lower(), f"{entries.spelled(model)}-instruct"} & entries.load().keys():
        return None
    if (known := entries.short(model)) is not None:
        return Reference(known.repository, known.quantization)
    return parse(model)


def fetch(  # noqa: PLR0913 - what a person may say of a model
    wanted: Reference,
    directory: Path,
    name: str | None,
    wants_draft: bool | None,  # noqa: FBT001 - None asks at the terminal
    *,
    as_json: bool,
    quiet: bool = False,
) -> str:
    """Fetch a model and its draft, and report it (on stderr if `quiet`). Returns the model's name.

    Raises PullError, and the errors of fetching.
    """
    registry = Registry(directory)
    path, fetched = _here(registry, wanted), None
    if path is None:
        path, fetched = _fetch(wanted, directory, name, as_json=as_json)
    model = registry.find(path.stem)
    found = header.read(path)
    if fetched is not None:
        _take_head(path, fetched, as_json=as_json)
        acquire.finish(fetched, path)
    if not found.chat_template and not found.embeds:
        _say(f"Its chat template is {templates.NONE}; {templates.REMEDY}.")
    if model.draft is None and wants_draft is not False:
        names = (wanted.repo, path.stem, found.text("general.name"))
        find_draft(path, names, registry, wanted=bool(wants_draft), as_json=as_json)
        model = registry.find(path.stem)
    if as_json:
        ready = {"stage": "ready", "model": model.name, "path": str(path), "draft": model.draft}
        click.echo(msgspec.json.encode(ready).decode())
    else:
        click.echo(f"{model.name}: {path}", err=quiet)
    return model.name


def offer(model: str) -> None:
    """Fetch a model from the Hub, if the user at this terminal agrees."""
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return
    wanted, directory = reference_of(model), chosen.models_directory()
    if wanted is None or _here(Registry(directory), wanted):
        return
    if click.confirm(f"{escaped(model)} is not here. Fetch it?", default=True, err=True):
        fetch(wanted, directory, None, None, as_json=False, quiet=True)


def _here(registry: Registry, wanted: Reference) -> Path | None:
    """The model's file if it is here already; None otherwise."""
    try:
        return registry.find(str(wanted)).path
    except UnknownModel:
        return None


def _room() -> int:
    """Free bytes of the devices that a model would be loaded on."""
    with waiting.shown("looking at this machine's memory"):
        found = native.ask(Present, "worker.planning")
    return sum(device.free_bytes for device in found.devices)


def _fetch(
    wanted: Reference, directory: Path, name: str | None, *, as_json: bool
) -> tuple[Path, acquire.Found]:
    """The model's file, and where it was found."""
    room = _room()
    with waiting.shown(_ASKING):
        found = acquire.look(wanted, room)
    _say(found.sentence())
    try:
        with shown(as_json=as_json) as report:
            return acquire.fetch(found, directory, report, name), found
    except PullError as error:
        if found.gated and not hub_cache.token():  # not refused earlier: a mirror may need none
            raise repository.gated(found.origin.source) from error
        raise


def _take_head(target: Path, fetched: acquire.Found, *, as_json: bool) -> None:
    """Fetch the draft head that suits the model best; an error is only reported."""
    try:
        head, why = head_files.choose(target, fetched)
        if head is None:
            if why:
                _say(why)
            return
        _say(f"To draft for it: {head.sentence}.")
        with shown(as_json=as_json) as report:
            head_files.fetch(head, target, report)
    except LocalSpecError as error:
        _say(f"Without a head: {error}")


def find_draft(
    path: Path, names: tuple[str, ...], registry: Registry, *, wanted: bool, as_json: bool
) -> None:
    """Attach the best draft that is here; else fetch or offer the one that the catalog names."""
    if known := partner.here(path, registry):
        _attach(path, known.name, registry, as_json=as_json)
        return
    suitable = partner.elsewhere(names)
    if suitable is None:
        _say("No draft is known for it. It speculates by lookup, which needs none.")
        return
    offer = f"{suitable.name} could draft for it: {_promise(suitable)}."
    if not wanted:
        _say(offer)
        if as_json or not (sys.stdin.isatty() and sys.stderr.isatty()):
            _say(f"Fetch it with: localspec models pull {names[0] or path.stem} --draft")
            return
        if not click.confirm("Fetch it too?", default=True, err=True):
            return
    try:
        _fetch_draft(path, suitable, registry, as_json=as_json)
    except LocalSpecError as error:
        _say(f"Without a draft: {error}")


def _fetch_draft(target: Path, suitable: Partner, registry: Registry, *, as_json: bool) -> None:
    """Fetch a draft and attach it. Raises PullError, BadPair and what fetching raises."""
    room = _room()
    with waiting.shown(_ASKING):
        found = acquire.look(Reference(suitable.name), room, DRAFT_ORDER)
    found = msgspec.structs.replace(found, projector=None)  # a draft sees no images
    _say(found.sentence())
    was_here = (registry.directory / f"{found.name}.gguf").exists()
    with shown(as_json=as_json) as report:
        path = acquire.fetch(found, registry.directory, report)
    try:
        pairing.check(header.read(target), header.read(path)).demand_same_tokens()
    except BadPair:
        if not was_here:
            acquire.discard(path)
        raise
    acquire.finish(found, path)
    _attach(target, path.stem, registry, as_json=as_json)


def _attach(target: Path, name: str, registry: Registry, *, as_json: bool) -> None:
    """Attach a model as the target's draft, made INT4; unchanged if that fails."""
    try:
        with shown(as_json=as_json) as report:
            name = prepare.int4_draft(name, registry.directory, report)
    except LocalSpecError as error:
        _say(f"{name} is not made INT4: {error}")
    registry.attach(target.stem, name)
    share = registry.find(name).size_bytes / target.stat().st_size
    _say(f"{name} drafts for it: {_promise(Partner(name, share))}.")


def _promise(known: Partner) -> str:
    low, high = partner.expected_speedup(known.share)
    return f"answers should come {low:.1f} to {high:.1f} times as fast"


def _say(text: str) -> None:
    click.echo(hung("", escaped(text), columns(sys.stderr)), err=True)
