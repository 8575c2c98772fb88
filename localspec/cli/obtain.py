"""Makes a model available here: copies a file of the user's, or fetches from the Hub."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec

from localspec import paths
from localspec.catalog import header, joining, prepare, shelf, verified
from localspec.catalog.registry import Model, Registry
from localspec.cli import chosen, fetching, waiting
from localspec.cli.progress import shown
from localspec.errors import PullError, UnknownModel


def file_of(model: str) -> Path | None:
    """The file of this machine that an argument names; None for a name, a reference or a URL.

    Raises PullError for a path without a file.
    """
    text = model.removeprefix("file://")
    path = paths.expanded(text)
    is_path = text != model or text.startswith(("./", "../", "/", "~"))
    if not is_path and not (text.lower().endswith(".gguf") and path.is_file()):
        return None
    if path.is_dir():
        raise PullError(f"{path} is a directory.", fix="Name the GGUF file in it.")
    if not path.exists():
        raise PullError(f"There is no file {path}.", fix="Give the path of a GGUF file.")
    return path


def copy_file(
    file: Path,
    directory: Path,
    name: str | None,
    wants_draft: bool | None,  # noqa: FBT001 - None asks at the terminal
    *,
    as_json: bool,
) -> Model:
    """Copy a file of the user's into the models' directory, and find a draft for it.

    A file that was copied before is not copied again.
    """
    registry = Registry(directory)
    found = None if name else _copied_before(registry, file)
    if found is None:
        with shown(as_json=as_json) as report:
            found = shelf.add(file, directory, report, name=name)
    if found.path and found.draft is None and wants_draft is not False:
        names = (header.read(found.path).text("general.name"), found.name)
        fetching.find_draft(found.path, names, registry, wanted=bool(wants_draft), as_json=as_json)
        found = registry.find(found.name)
    if as_json:
        ready = {"stage": "ready", "model": found.name, "path": str(found.path)}
        click.echo(msgspec.json.encode({**ready, "draft": found.draft}).decode())
    else:
        click.echo(f"{found.name}: {found.path}", err=True)
    return found


def _copied_before(registry: Registry, file: Path) -> Model | None:
    """The model that is this file or was copied from it before, if any."""
    try:
        found = registry.find(joining.stem(file).lower().replace(" ", "-"))
    except UnknownModel:
        return None
    if found.path is None:
        return None
    ours, theirs = found.path.stat(), file.stat()
    if found.path.samefile(file):
        return found
    if ours.st_size != theirs.st_size:
        return None
    if ours.st_mtime_ns == theirs.st_mtime_ns:  # as `shelf.add` leaves a copy
        return found
    with waiting.shown(f"comparing {file.name} with {found.name}, which is here"):
        same = verified.digest(found.path) == verified.digest(file)
    return found if same else None


def fetched_name(model: str) -> str:
    """Return a model's name, fetching it if it is not here. Raises the errors of fetching."""
    directory = chosen.models_directory()
    if file := file_of(model):
        return copy_file(file, directory, None, False, as_json=False).name
    registry = Registry(directory)
    try:
        found = registry.find(model)
    except UnknownModel:
        wanted = fetching.reference_of(model)
        if wanted is None:
            raise
        return fetching.fetch(wanted, directory, None, None, as_json=False, quiet=True)
    if not found.installed:
        with shown() as report:
            prepare.ensure_pair(found.name, directory, report, draft_required=True)
    return found.name
