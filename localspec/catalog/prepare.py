"""Prepares the files of a model and its draft: pull the target, pull and build the draft."""

from __future__ import annotations

import shutil
from pathlib import Path

from localspec import paths
from localspec.catalog import entries, header, verified
from localspec.catalog.entries import Entry
from localspec.catalog.locks import building
from localspec.catalog.pull import pull
from localspec.catalog.quantize import Quantized, quantize
from localspec.catalog.registry import Registry, Resolved
from localspec.catalog.transfer import Report, Step
from localspec.errors import LocalSpecError, ModelError

_WITHOUT_KERNELS = frozenset({"F32", "F16", "BF16", "Q4_1", "Q5_0", "Q5_1"})
"""Element types that LocalSpec has no kernels for, and which are no smaller than INT4. A token of
SmolLM2 135M takes 7.8 ms in Q4_1 and 4.8 in Q4_0, four rows 18 and 6.7 (two cores of a Zen 4)."""


def ensure_pair(
    name: str, directory: Path, on_progress: Report, *, draft_required: bool = False
) -> Resolved:
    """The files of `name` and of its draft, fetched and built where they are missing.

    Quick when everything is installed. A draft that cannot be obtained is reported as a "skipped"
    step and left out, because lookup needs none; with `draft_required` it is an error. Raises
    UnknownModel, PullError and the errors of quantizing.
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
    """Install the file of `entry`; returns the result of quantizing, if it ran.

    The source of a quantized model is fetched into a workplace and removed afterwards, unless
    `keep_source` is set or the user has put it here already.
    """
    if entry.quantize is None or entry.quantized_file is None:
        pull(entry, directory, on_progress)
        return None
    made = directory / entry.quantized_file
    if verified.holds(made, entry.sha256) and not keep_source:
        return None
    paths.make_directory(directory, paths.MODELS_MODE)

    def wait() -> None:
        on_progress(Step(entry.name, "waiting", detail="another process is building a model"))

    with building(directory, wait):
        return _build(entry, made, on_progress, keep_source=keep_source)


def _build(entry: Entry, made: Path, on_progress: Report, *, keep_source: bool) -> Quantized | None:
    directory = made.parent
    if keep_source:
        pull(entry, directory, on_progress)
    if made.exists():  # built by another process meanwhile, or put here by the user
        header.read(made)
        verified.mark(made, entry.sha256)
        return None
    workplace = directory / entry.workplace
    source_here = (directory / entry.file).exists()
    source = pull(entry, directory if source_here else workplace, on_progress)
    result = quantize(source, made, on_progress, kind=entry.quantize or "q4_0")
    verified.mark(made, entry.sha256)
    shutil.rmtree(workplace, ignore_errors=True)
    on_progress(Step(entry.name, "done", result.bytes_after, result.bytes_after, str(result)))
    return result


def int4_draft(name: str, directory: Path, on_progress: Report) -> str:
    """The name of a draft's fastest form: `name` itself, or its INT4 copy, made if it is missing.

    Raises UnknownModel and the errors of quantizing.
    """
    path = Registry(directory).resolve(name).target_path
    matrices = [each for each in header.read(path).tensors if len(each.shape) > 1]
    slow = sum(each.num_bytes for each in matrices if each.type.name in _WITHOUT_KERNELS)
    if 2 * slow <= sum(each.num_bytes for each in matrices):
        return name
    made = _quantized_name(path, directory, "q4_0")
    if not made.exists():
        quantize_model(name, directory, on_progress, kind="q4_0")
    return made.stem


def _quantized_name(path: Path, directory: Path, kind: str) -> Path:
    return directory / f"{path.stem.lower().removesuffix(f'-{kind}')}-{kind}.gguf"


def quantize_model(
    name: str, directory: Path, on_progress: Report, *, kind: str, threads: int = 0
) -> Quantized:
    """Requantize an installed model into a new one, `<file>-<kind>`, which keeps its draft.

    Raises UnknownModel and the errors of quantizing.
    """
    registry = Registry(directory)
    found = registry.resolve(name)
    made = _quantized_name(found.target_path, directory, kind)
    if made.exists():
        raise ModelError(
            f"{made.name} is already here.", fix=f"Remove it first: localspec models rm {made.stem}"
        )

    def wait() -> None:
        on_progress(Step(name, "waiting", detail="another process is building a model"))

    with building(directory, wait):
        result = quantize(found.target_path, made, on_progress, kind=kind, threads=threads)
    if found.draft_name is not None and Registry(directory).find(made.stem).draft is None:
        registry.attach(made.stem, found.draft_name)
    return result
