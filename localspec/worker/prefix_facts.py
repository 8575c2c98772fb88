"""Makes the fingerprint under which copies of prefixes are found, of all that bits depend on."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from localspec.catalog import joining
from localspec.errors import BadGGUF
from localspec.prefixes import identity
from localspec.worker import planning
from localspec.worker.load_files import adapter_files

if TYPE_CHECKING:
    from localspec.worker.loader import Loader

_log = logging.getLogger("localspec.worker")

_FORMAT = 1
"""The version of the format of a copy: raised when the same bytes would be read differently."""


@dataclass(frozen=True, slots=True)
class PrefixFacts:
    """All that the bits of one model's memory depend on, except the class of forwards."""

    files: tuple[Path, ...]
    states: tuple[tuple[int, ...], ...]
    """The `identity.state` of each file when it was loaded."""
    others: Any

    @classmethod
    def of(cls, first: Path, adapters: Sequence[Path], *others: Any) -> PrefixFacts:
        """The facts of a model that is about to be loaded. Raises OSError, BadGGUF."""
        parts = (*joining.parts(first), *adapters)
        return cls(parts, tuple(map(identity.state, parts)), others)

    def fingerprint(self, forwards: Any) -> str | None:
        """The key of copies by these forwards; None if content is not known or files changed."""
        content = identity.known(self.files)
        try:
            same = tuple(map(identity.state, self.files)) == self.states
        except OSError:
            same = False
        if content is None or not same:
            return None
        said = msgspec.json.encode((_FORMAT, content, self.others, forwards))
        return hashlib.sha256(said).hexdigest()[:32]


def facts(loader: Loader) -> dict[str, PrefixFacts]:
    """The facts of a loader's models, before they are loaded; none on a simulated machine.

    A model whose file cannot be read has no facts: none of its prefixes are kept.
    """
    from localspec.engine.llama.library import libraries  # noqa: PLC0415 - see `assemble.load`

    command, plan = loader.command, loader.plan
    if command.machine:
        return {}
    engine = command.config.engine
    common = (loader.build, libraries(), command.safe_kernels)
    found = {}
    models = (("target", engine.target, plan.target), ("model", engine.draft, plan.draft))
    for file, (role, placement, layout) in zip(loader.files, models, strict=False):
        # With two sets of rotary factors, which one is used depends on the longest possible text.
        longest = plan.context if planning.ropes(file) > 1 else 0
        remote = engine.remote if role == "target" else ()
        adapters = adapter_files(command) if role == "target" else []
        try:
            found[role] = PrefixFacts.of(file, adapters, common, placement, layout, longest, remote)
        except (OSError, BadGGUF) as error:
            _log.warning("no prefixes file=%s reason=%s", file, error)
    return found
