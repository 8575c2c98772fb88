"""From a model's name to files that can be loaded: pull the target, pull and build its draft."""

from __future__ import annotations

from pathlib import Path

from localspec.catalog import entries, header, verified
from localspec.catalog.entries import Entry
from localspec.catalog.pull import pull
from localspec.catalog.quantize import Quantized, quantize
from localspec.catalog.registry import Registry, Resolved
from localspec.catalog.transfer import Report, Step
from localspec.errors import LocalSpecError


def ensure_pair(
    name: str, directory: Path, on_progress: Report, *, draft_required: bool = False
) -> Resolved:
    """The files of `name` and of its draft, fetched and built where they are missing.

    Quick when everything is here. A draft that cannot be had is reported as a "skipped" step and
    left out, because lookup speculates without one; with `draft_required` it is an error. Raises
    UnknownModel, PullError and what quantizing raises.
    """
    registry = Registry(directory)
    model = registry.find(name)
    catalog = entries.load()
    if model.from_catalog:
        ensure_entry(catalog[model.name], directory, on_progress)
    if model.draft in catalog:
        try:
            ensure_entry(catalog[model.draft], directory, on_progress)
        except LocalSpecError as error:
            if draft_required:
                raise
            on_progress(Step(model.draft, "skipped", detail=str(error)))
    return registry.resolve(model.name)


def ensure_entry(
    entry: Entry, directory: Path, on_progress: Report, *, keep_source: bool = False
) -> Quantized | None:
    """Make sure that the file serving as `entry` is here; what quantizing brought, if it ran.

    The file that a quantized model was made from is removed afterwards, unless `keep_source` is set
    or it was here before: then it is the user's.
    """
    if entry.quantize is None or entry.quantized_file is None:
        pull(entry, directory, on_progress)
        return None
    made, source = directory / entry.quantized_file, directory / entry.file
    if keep_source:
        pull(entry, directory, on_progress)
    if verified.holds(made, entry.sha256):
        return None
    if made.exists():
        header.read(made)
        verified.mark(made, entry.sha256)
        return None
    was_here = source.exists()
    pull(entry, directory, on_progress)
    result = quantize(source, made, on_progress, kind=entry.quantize)
    verified.mark(made, entry.sha256)
    if not was_here:
        source.unlink()
    on_progress(Step(entry.name, "done", result.bytes_after, result.bytes_after))
    return result
