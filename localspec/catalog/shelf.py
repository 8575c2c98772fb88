"""Imports the user's own files into the models directory, and removes models from it."""

from __future__ import annotations

import contextlib
import os
import shutil
import stat
from collections.abc import Callable, Sequence
from pathlib import Path

from localspec import paths
from localspec.catalog import (
    entries,
    filenames,
    head_files,
    header,
    joining,
    origins,
    pairing,
    projectors,
    transfer,
)
from localspec.catalog.memory import show_bytes
from localspec.catalog.registry import Model, Registry
from localspec.catalog.transfer import Report, Step, disk_error
from localspec.errors import (
    BadGGUF,
    DiskFull,
    LocalSpecError,
    ModelError,
    PullError,
    UnknownModel,
    Unreadable,
)


def add(  # noqa: PLR0913 - what a user may say about a file, all by name
    source: Path,
    directory: Path,
    on_progress: Report,
    *,
    name: str | None = None,
    draft: str | None = None,
    link: bool = False,
) -> Model:
    """Copy a GGUF into the models directory, or link to it, after checking its header.

    `name` defaults to the file's own. `draft` is a model that drafts for the new one; the pair must
    be able to speculate. If the model has several files, `source` is the first, and they are
    joined. A projector of images beside a model of one file is taken along. Raises BadGGUF,
    BadPair, UnknownModel, ModelError, PullError, DiskFull.
    """
    parts = joining.parts(source)
    found = header.read(source) if len(parts) == 1 else None
    registry = Registry(directory)
    chosen = _free_name(registry, name or joining.stem(source).lower().replace(" ", "-"))
    destination = directory / f"{chosen}.gguf"
    if draft is not None and found is not None:
        draft = _fitting(registry, found, draft)
    try:
        paths.make_directory(directory, paths.MODELS_MODE)
        paths.sweep(directory)
        if found is None:
            _join(parts, destination, on_progress)
        else:
            _take(source, destination, on_progress, link=link)
            seen_by, _ = projectors.find(source, source.parent)
            if seen_by:
                beside = projectors.beside(destination)  # one that a deleted model left is replaced
                _take(Path(seen_by), beside, on_progress, link=link, place=Path.replace)
    except OSError as error:
        raise PullError(f"{destination} cannot be written: {error.strerror}.") from error
    if draft is not None:
        try:
            registry.attach(chosen, _fitting(registry, header.read(destination), draft))
        except LocalSpecError:  # the pair was refused: the copy is removed again
            destination.unlink(missing_ok=True)
            raise
    return registry.find(chosen)


def remove(name: str, directory: Path) -> int:
    """Remove a model; returns the bytes freed on the disk.

    A link is removed, but not its target. Remains of an interrupted pull are removed too. Raises
    UnknownModel, ModelError.
    """
    registry = Registry(directory)
    model = registry.find(name)
    entry = entries.load().get(model.name) if model.from_catalog else None
    candidates = [directory / model.file] if model.file else []
    if entry is not None:
        candidates.append(directory / entry.file)
        candidates += (directory / entry.workplace).glob("*")
    if model.file:
        candidates.append(projectors.beside(directory / model.file))
        candidates += head_files.places(directory, Path(model.file).stem)
    candidates += [left for path in candidates for left in transfer.remains(path)]
    present = [path for path in dict.fromkeys(candidates) if path.is_symlink() or path.exists()]
    if not present:
        raise UnknownModel(f'Model "{model.name}" is not on this machine.')
    freed = 0
    for path in present:
        status = path.lstat()
        try:
            path.unlink()
        except OSError as error:
            raise ModelError(f"{path} cannot be removed: {error.strerror}.") from error
        freed += status.st_size if stat.S_ISREG(status.st_mode) and status.st_nlink == 1 else 0
    if model.name in registry.drafts():
        registry.attach(model.name, None)
    if model.file is not None:
        with contextlib.suppress(OSError):  # a stale origin names a missing file and does no harm
            origins.remember(directory, model.file, None)
    return freed


def _take(
    source: Path,
    destination: Path,
    on_progress: Report,
    *,
    link: bool,
    place: Callable[[Path, Path], object] = transfer.give_name,
) -> None:
    if link:
        destination.symlink_to(source.resolve())
    else:
        _copy(source, destination, on_progress, place)


def _free_name(registry: Registry, name: str) -> str:
    filenames.check_model_name(name)
    try:
        taken = registry.find(name)
    except UnknownModel:
        return name
    if taken.installed or name == taken.name:
        raise ModelError(
            f'The name "{name}" is taken.',
            fix="Choose another one: localspec models import FILE --name NAME",
        )
    return name  # the file of a catalog entry that is not here yet


def _fitting(registry: Registry, target: header.Header, draft: str) -> str:
    model = registry.resolve(draft)
    pairing.check_draft(target, model.target_path)
    return model.name


def _join(parts: Sequence[Path], destination: Path, on_progress: Report) -> None:
    total = sum(part.stat().st_size for part in parts)
    _check_room(parts[0].name, total, destination.parent)
    joining.join(
        parts,
        destination,
        lambda done: on_progress(Step(destination.stem, "copying", done, total)),
    )
    try:
        header.read(destination)
    except Unreadable:
        raise
    except BadGGUF:
        destination.unlink(missing_ok=True)
        raise


def _check_room(name: str, total: int, directory: Path) -> None:
    free = shutil.disk_usage(directory).free
    if total > free:
        raise DiskFull(
            f"{name} needs {show_bytes(total)}; {directory} has {show_bytes(free)} free.",
            fix="Make room, or use --link.",
        )


def _copy(
    source: Path,
    destination: Path,
    on_progress: Report,
    place: Callable[[Path, Path], object],
) -> None:
    before = source.stat()
    total = before.st_size
    _check_room(source.name, total, destination.parent)
    done = 0

    def copied(count: int) -> None:
        nonlocal done
        done = count
        on_progress(Step(destination.stem, "copying", done, total))

    try:
        with paths.beside(destination) as temporary:
            transfer.copy(source, temporary, copied)
            # With its date the copy is known again without reading both.
            os.utime(temporary, ns=(before.st_atime_ns, before.st_mtime_ns))
            header.parse(temporary)
            place(temporary, destination)
    except OSError as error:
        raise disk_error(error, destination, total - done) from error
