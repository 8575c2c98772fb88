"""Names that clients make up: what they mean here, by `[models.aliases]`."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase

from localspec.catalog.registry import Registry
from localspec.config import Models
from localspec.errors import UnknownModel

_DEFAULT = "default"
"""A name that means the default model under every table that says nothing else of it."""


@dataclass(frozen=True, slots=True)
class Aliases:
    """The table of one configuration. Names that are here, or in the catalog, mean themselves."""

    models: Models

    def meant(self, name: str, registry: Registry) -> str:
        """The name of the model that is meant; `name` where the table says nothing of it."""
        try:
            registry.find(name)
        except UnknownModel:
            found = self._looked_up(name)
            return name if found is None else found or self.models.default
        return name

    def _looked_up(self, name: str) -> str | None:
        """The table's word: an exact line before patterns, those in their order."""
        table = {_DEFAULT: ""} | self.models.aliases
        if name in table:
            return table[name]
        return next((to for line, to in table.items() if fnmatchcase(name, line)), None)
