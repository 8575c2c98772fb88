"""`localspec corpus`: folders of the user's own files from which answers are drafted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

import click
import msgspec
import tomlkit

from localspec import config as configuration
from localspec import paths
from localspec.cli import config_edit
from localspec.cli.columns import columns, hung
from localspec.cli.groups import Group
from localspec.corpus import contents, folders
from localspec.errors import ConfigError, RequestError, escaped

_KEY = "draft.corpus"
_FOLDERS = click.argument(
    "names", nargs=-1, required=True, metavar="FOLDER...", type=click.Path(file_okay=False)
)


@click.group(cls=Group)
def corpus() -> None:
    """Draft answers from your own files: add, list and drop folders.

    An answer is the same with them or without; it comes faster where it repeats what they say.
    """


@corpus.command()
@_FOLDERS
def add(names: tuple[str, ...]) -> None:
    """Let answers be drafted from the files of FOLDER.

    What .gitignore names, hidden files, links, files without text or with secrets, and files over
    1 MiB are left out; your home as a whole is refused. The daemon reads the folder while it is
    idle, and again when it changes.

    Example: localspec corpus add ~/src/project
    """
    known = _configured()
    new: list[str] = []
    for name in map(_named, names):
        if why := folders.unusable(name):
            raise RequestError(why, fix="localspec corpus add ~/src/project")
        if any(_same(name, each) for each in (*known, *new)):
            click.echo(hung("", f"{escaped(name)} is there already", columns()))
            continue
        new.append(name)
    if new:
        _write(new=new)
        for name in new:
            click.echo(hung("added: ", escaped(name), columns()))


@corpus.command("list")
@click.option("--json", "as_json", is_flag=True, help="One JSON object of all folders.")
def list_corpus(*, as_json: bool) -> None:
    """Show the folders, and what of them is in the index of each tokenizer.

    Example: localspec corpus list
    """
    names = _configured()
    indexes = contents.every()
    if as_json:
        found = {
            "folders": [{"folder": name, "why": folders.unusable(name)} for name in names],
            "indexes": [
                {
                    "path": str(path),
                    "bytes": path.stat().st_size,
                    "model": held.tokenizer,
                    "tokens": held.tokens,
                    "files": len(held.files),
                    "folders": held.folders,
                }
                for path, held in indexes
            ],
        }
        click.echo(msgspec.json.encode(found).decode())
        return
    if not names:
        click.echo("There are no folders. Add one: localspec corpus add FOLDER")
    for name in names:
        why = folders.unusable(name)
        click.echo(hung("", why or escaped(name), columns()))
        told = [(held, each) for _, held in indexes for each in held.folders if each.folder == name]
        for held, each in told:
            click.echo(hung("    ", _sentence(held.tokenizer, each), columns()))
        if not told and not why:
            click.echo("    not read yet: a loaded model reads it while it is idle")


@corpus.command()
@_FOLDERS
def drop(names: tuple[str, ...]) -> None:
    """Draft no more from FOLDER, and delete what was read of it.

    Example: localspec corpus drop ~/src/project
    """
    gone: list[str] = []
    known = _configured()
    for name in names:
        there = [each for each in known if each == name or _same(_named(name), each)]
        if not there:
            raise RequestError(
                f"{escaped(name)} is none of the folders.",
                fix="`localspec corpus list` shows them.",
            )
        gone += there
    _write(gone=gone)
    try:
        contents.forget()  # the daemon indexes the remaining folders anew
    except OSError as error:
        raise RequestError(
            f"The index in {contents.directory()} cannot be deleted: {error.strerror}.",
            fix="Delete that directory.",
        ) from error
    for name in known:
        if name in gone:
            click.echo(hung("dropped: ", escaped(name), columns()))


def _sentence(model: str, folder: contents.Folder) -> str:
    """The files and tokens that an index holds of a folder."""
    said = f"{folder.files} files, {folder.tokens} tokens of {escaped(model) or 'a model'}"
    left_out = ", ".join(f"{count} {reason}" for reason, count in folder.left_out.items())
    said += f"; left out: {left_out}" if left_out else ""
    return f"{said}. {folder.why}" if folder.why else said


def _configured() -> tuple[str, ...]:
    return configuration.load(paths.config_file()).draft.corpus


def _named(name: str) -> str:
    """A folder as it is written in the configuration: absolute, or ~/... if it is in the home."""
    if not name.strip():
        raise RequestError("The name of a folder is empty.", fix="A dot is the current one.")
    place = folders.place_of(name)
    place = Path.cwd() / place if not place.is_absolute() else place
    place = Path(*_without_dots(place.parts))
    home = paths.home()
    if place.is_relative_to(home) and place != home:
        return f"~/{place.relative_to(home)}"
    return str(place)


def _without_dots(parts: Sequence[str]) -> Iterable[str]:
    """The parts of a path without `.` and `..`, by names alone: links are not followed."""
    kept: list[str] = []
    for part in parts:
        if part == ".." and len(kept) > 1:
            kept.pop()
        elif part not in {".", ".."}:
            kept.append(part)
    return kept


def _same(one: str, other: str) -> bool:
    try:
        return folders.place_of(one).resolve() == folders.place_of(other).resolve()
    except (OSError, RuntimeError):
        return one == other


def _write(*, new: Sequence[str] = (), gone: Sequence[str] = ()) -> None:
    """Change the folders in the configuration as it is now. Raises ConfigError."""

    def change(document: tomlkit.TOMLDocument) -> None:
        if "draft" not in document:
            document["draft"] = tomlkit.table()
        draft = document["draft"]
        if not isinstance(draft, dict):
            raise ConfigError("draft is no table in the configuration.", param="draft")
        there = draft.get("corpus", [])
        left = [each for each in there if each not in gone]
        config_edit.put(draft, "corpus", [*left, *(each for each in new if each not in left)])
        if not draft["corpus"]:
            config_edit.without(_KEY)(document)

    config_edit.apply(paths.config_file(), change)
