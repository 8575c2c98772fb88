"""The registry of installed models: their names, and the draft of each.

A model is a file in the models directory. Names are keys of a scanned map and are never joined
into paths, so no name can reach outside. Pure Python: the supervisor imports this.
"""

from __future__ import annotations

import difflib
import functools
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from localspec import paths
from localspec.catalog import (
    adapters,
    draft_heads,
    entries,
    filenames,
    header,
    locks,
    origins,
    projectors,
)
from localspec.catalog.entries import Entry
from localspec.catalog.memory import show_bytes
from localspec.errors import BadGGUF, ConfigError, UnknownModel, unreadable
from localspec.wire.values import Adapter, DraftHead

DRAFTS_FILE = "drafts.json"
_SUFFIX = ".gguf"
_SHOWN_RELATIVES = 6


@dataclass(frozen=True, slots=True)
class Model:
    """One name of the registry. `path` is None while a model of the catalog is not pulled.

    `file` is the name in the models directory; `path` is where its bytes are, links resolved.
    `projector` is a pair: the file that makes vectors of images for the model, and the reason why
    none is used.
    """

    name: str
    path: Path | None
    file: str | None = None
    draft: str | None = None
    role: str = "target"
    size_bytes: int = 0
    modified: float = 0.0
    linked: bool = False
    aliases: tuple[str, ...] = ()
    from_catalog: bool = False
    projector: tuple[str, str] = ("", "")

    @property
    def sees(self) -> bool:
        """Whether it reads images, as far as its projector's header says."""
        return bool(self.projector[0])

    @property
    def installed(self) -> bool:
        """Whether its file is here."""
        return self.path is not None


@dataclass(frozen=True, slots=True)
class Resolved:
    """The files that a worker loads; `draft_path` is None while the model has no draft."""

    name: str
    target_path: Path
    draft_path: Path | None
    draft_name: str | None = None


@dataclass(frozen=True, slots=True)
class Skipped:
    """A GGUF in the models directory that cannot be a model, and why."""

    file: str
    reason: str


@dataclass(frozen=True, slots=True)
class _Found:
    """A model file found by a scan; `target` is the file that its links lead to."""

    target: Path
    status: tuple[int, float]
    linked: bool


class Registry:
    """A view of one models directory; each method scans the directory anew.

    A missing directory counts as empty. Methods may be called from any thread.
    """

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def resolve(self, name: str) -> Resolved:
        """The files for a model's name. Raises UnknownModel, which suggests the nearest names."""
        known = self._by_name()
        model = self._find(name, known)
        if model.path is None:
            raise UnknownModel(
                f'Model "{model.name}" is in the catalog but not on this machine yet.',
                fix=f"Run: localspec models pull {model.name}",
                param="model",
            )
        draft = known.get(model.draft) if model.draft else None
        return Resolved(model.name, model.path, draft.path if draft else None, model.draft)

    def find(self, name: str) -> Model:
        """The model with this name or alias, installed or not. Raises UnknownModel."""
        return self._find(name, self._by_name())

    def models(self) -> list[Model]:
        """Every model here and in the catalog: installed ones first, then by name."""
        return sorted(self._by_name().values(), key=lambda model: (not model.installed, model.name))

    def skipped(self) -> list[Skipped]:
        """Files that look like models but cannot be used."""
        found, skipped = self._scan()
        names = _claimed(found)
        for file in sorted(found.keys() - names.values()):
            stem = _normal(file)
            skipped.append(Skipped(file, f'the name "{stem}" is taken by {names[stem]}'))
        targets = [each.target for each in found.values()]
        return [each for each in skipped if not self._adapts(self.directory / each.file, targets)]

    @staticmethod
    def _adapts(file: Path, targets: Iterable[Path]) -> bool:
        """Whether a file is an adapter of one of these models."""
        return adapters.is_adapter(file) and any(adapters.fits(each, file) for each in targets)

    def adapters(
        self, model: Model, table: Mapping[str, Mapping[str, float]], folder: Path
    ) -> list[Adapter]:
        """The LoRA adapters of an installed model, from `[models.adapters]` and from beside it.

        Raises ConfigError, BadGGUF.
        """
        if model.path is None:
            return []
        beside = [path for path in self._files() if _is_gguf(path)]
        names = (model.name, *model.aliases)
        return adapters.given(names, table, folder, model.path, beside)

    def _files(self) -> list[Path]:
        """The files of the directory, in order."""
        try:
            return sorted(self.directory.iterdir())
        except (FileNotFoundError, NotADirectoryError):
            return []

    def drafts(self) -> dict[str, str]:
        """The drafts that the user attached: model name to draft name. Raises ConfigError."""
        path = self.directory / DRAFTS_FILE
        try:
            return msgspec.json.decode(paths.read_regular(path), type=dict[str, str])
        except FileNotFoundError:
            return {}
        except NotADirectoryError:
            raise ConfigError(
                f"{self.directory}, where models are kept, is no directory.",
                fix="Name one in models.directory or LOCALSPEC_MODELS.",
            ) from None
        except (OSError, msgspec.DecodeError) as error:
            raise ConfigError(
                f"{path} cannot be read: {unreadable(error)}.", fix="Correct it or delete it."
            ) from error

    def head(self, target: Path, *, complete: bool = True) -> tuple[DraftHead | None, str]:
        """The draft head for the model in a file, or why none fits; "" if there is none. Blocks.

        Files beside the model come first, then shipped heads, then layers inside the target. Only
        a `complete` head can be loaded; without that the search is a second faster, which suffices
        to name the head (`draft_heads.find`). Raises BadGGUF for the target.
        """
        beside = sorted((self.directory / "heads").glob("*.gguf"))
        if target.parent != self.directory:  # the directory has a link to the target
            beside += sorted(target.parent.glob("*.gguf"))
            beside += sorted((target.parent / "heads").glob("*.gguf"))
        here = [path for path in self._files() if _is_gguf(path)]
        others = [each.path for each in self.models() if each.path]
        found, why = draft_heads.find(target, [*here, *beside], others, complete=complete)
        if found is None or not found.path:
            shipped = sorted(paths.shipped("models/heads").glob("*.gguf"))
            mine, _ = draft_heads.find(target, shipped, others, complete=complete)
            return mine or found, why
        return found, why

    def projector(self, target: Path) -> tuple[str, str]:
        """The projector of images for the model in a file, and why none is used; "" without any.

        Blocks.
        """
        try:
            return projectors.find(target, self.directory)
        except (BadGGUF, OSError):  # a fault of the target, which is reported when it is loaded
            return "", ""

    def attach(self, name: str, draft: str | None) -> None:
        """Make `draft` draft for `name` from now on; None detaches. Raises OSError, ConfigError."""
        with locks.records(self.directory):
            attached = {key: value for key, value in self.drafts().items() if key != name}
            if draft is not None:
                attached[name] = draft
            data = msgspec.json.format(msgspec.json.encode(attached), indent=2)
            paths.write_atomically(self.directory / DRAFTS_FILE, data + b"\n")

    def _find(self, name: str, known: Mapping[str, Model]) -> Model:
        wanted = _normal(name)
        if wanted in known:
            return known[wanted]
        aliases = {alias: model for model in known.values() for alias in model.aliases}
        if wanted in aliases:
            return aliases[wanted]
        self._refuse_skipped(name, wanted)
        spelled, short = entries.spelled(wanted), entries.short(wanted)
        colon = ":" in wanted and "/" not in wanted and not filenames.label(wanted)
        if colon and (spelled in known or spelled in aliases):
            return known.get(spelled) or aliases[spelled]
        if short and (named := _of_repository(short, aliases)):
            return named
        if "/" in wanted:
            raise UnknownModel(
                f'There is no model "{name[:80]}" here.',
                fix=f"Fetch it: localspec models pull {name[:120]}",
                param="model",
            )
        if short:
            relatives = [name for name in entries.relatives(wanted) if name != short.name]
            others = f"; also: {', '.join(relatives[:_SHOWN_RELATIVES])}" if relatives else ""
            (offer,) = (each for each in entries.offers() if each.name == short.name)
            size = f", about {show_bytes(offer.size_bytes)}" if offer.size_bytes else ""
            raise UnknownModel(
                f'Model "{wanted}" is not here; on the Hugging Face Hub it is '
                f"{short.repository}{size}.",
                fix=f"Fetch it: localspec models pull {short.name}"
                + (others if short.name != spelled else ""),
                param="model",
            )
        near = difflib.get_close_matches(wanted[:200], [*known, *aliases], n=3, cutoff=0.5)
        family = entries.relatives(wanted[:200])[:_SHOWN_RELATIVES]
        meant = f"Did you mean {' or '.join(near)}? " if near else ""
        if family and not near:
            meant = f"Models of that name: {', '.join(family)}; localspec models pull {family[0]}. "
        raise UnknownModel(
            f'There is no model "{name[:80]}", neither here nor in the catalog.',
            fix=f"{meant}`localspec models list` shows all.",
            param="model",
        )

    def _refuse_skipped(self, name: str, wanted: str) -> None:
        """Raise UnknownModel if a file of that name is here but cannot be a model."""
        for file, reason in ((each.file, each.reason) for each in self.skipped()):
            if wanted in {_normal(file), file.lower()}:
                raise UnknownModel(
                    f'There is no model "{name[:80]}": {file[:120]} is here, but {reason[:200]}.',
                    fix=f"Put a GGUF file in its place: {self.directory}",
                    param="model",
                )

    def _by_name(self) -> dict[str, Model]:
        found, _ = self._scan()
        attached = self.drafts()
        origin = origins.read(self.directory)
        catalog = entries.load()
        claimed = _claimed(found)
        known: dict[str, Model] = {}
        for name, file in claimed.items():
            here, entry = found[file], catalog.get(name)
            entry = entry if entry is not None and entry.installed_file == file else None
            stem = _normal(file)
            aliases = (*((stem,) if stem != name else ()), *origins.names(origin.get(file)))
            aliases += _without_tuning(entry)
            known[name] = Model(
                name=name,
                path=here.target,
                file=file,
                draft=attached.get(name, entry.draft if entry else None),
                role=entry.role if entry else "target",
                size_bytes=here.status[0],
                modified=here.status[1],
                linked=here.linked,
                aliases=aliases,
                from_catalog=entry is not None,
                projector=self.projector(here.target),
            )
        for name, entry in catalog.items():
            if name not in known:
                alias = (_normal(entry.installed_file), *_without_tuning(entry))
                known[name] = Model(
                    name,
                    path=None,
                    draft=entry.draft,
                    role=entry.role,
                    aliases=alias,
                    from_catalog=True,
                )
        return known

    def _scan(self) -> tuple[dict[str, _Found], list[Skipped]]:
        """Model files by file name, and the skipped files."""
        found: dict[str, _Found] = {}
        skipped: list[Skipped] = []
        for path in self._files():
            if not _is_gguf(path):
                continue
            try:
                target = path.resolve(strict=True)
                status = target.stat()
            except (OSError, RuntimeError):  # RuntimeError: a loop of links, before Python 3.13
                skipped.append(Skipped(path.name, "it is a link that leads nowhere"))
                continue
            if not stat.S_ISREG(status.st_mode):
                skipped.append(Skipped(path.name, "it is not a regular file"))
                continue
            shape = (status.st_size, status.st_mtime)
            if reason := _no_model(path.name, target, *shape):
                skipped.append(Skipped(path.name, reason))
                continue
            found[path.name] = _Found(target, shape, path.is_symlink())
        return found, skipped


def _is_gguf(path: Path) -> bool:
    return not path.name.startswith(".") and path.name.lower().endswith(_SUFFIX)


def _no_model(name: str, target: Path, size_bytes: int, modified: float) -> str:
    """The reason why a file is no model, by name, declared kind and header; "" if it is."""
    if adapters.is_adapter(target):
        return "it is a LoRA adapter for none of the models here"
    read = filenames.read(name)
    other = (read and read.other) or draft_heads.is_head(target)
    return _unsound(target, size_bytes, modified) if other else ""


@functools.lru_cache(maxsize=256)
def _unsound(target: Path, _size_bytes: int, _modified: float) -> str:
    """The reason why a header is not a model's; cached until the file changes."""
    try:
        header.read(target)
    except BadGGUF as error:
        return error.message.partition("cannot be used. ")[2] or error.message
    return ""


def _normal(name: str) -> str:
    """A name as the registry spells it: lower case, without the suffix."""
    return name.strip().lower().removesuffix(_SUFFIX)


def _without_tuning(entry: Entry | None) -> tuple[str, ...]:
    """A catalog model's name without its "instruct" suffix."""
    name = entry.name.removesuffix("-instruct") if entry else ""
    return (name,) if entry and name != entry.name else ()


def _of_repository(short: entries.Short, aliases: Mapping[str, Model]) -> Model | None:
    """The model fetched from that repository, in its quantization if `short` names one."""
    repo = short.repository.lower()
    return aliases.get(f"{repo}:{short.quantization.lower()}" if short.quantization else repo)


def _claimed(found: Mapping[str, _Found]) -> dict[str, str]:
    """The file of each model name: the catalog's files first, then each file by its own stem."""
    claimed = {
        name: entry.installed_file
        for name, entry in entries.load().items()
        if entry.installed_file in found
    }
    taken = set(claimed.values())
    for file in sorted(found):
        if file not in taken:
            claimed.setdefault(_normal(file), file)
    return claimed
